"""A name server with access control: who may register, administer and look, and what attackers get."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.access.auth.data import AuthData
from kourou.access.auth.model import User, UserType
from kourou.access.auth.tables import AuthTables
from kourou.access.model import RefusalKind
from kourou.config import NamesrvConfig
from kourou.errors import ConfigError
from kourou.namesrv import NameServer
from kourou.namesrv.access import BROKER_CODES, ROUTE_CODES, FollowedUsers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from kourou.protocol.signature import SigningKeys
from kourou.transport.client import RemotingClient
from tests.e2e.broker.test_metrics import scrape
from tests.unit.namesrv.memory_namesrv import topics_body

pytestmark = pytest.mark.e2e

INNER = SigningKeys("inner", "the inner secret")
ADMIN = SigningKeys("admin", "the admin secret")
NORMAL = SigningKeys("orders", "the orders secret")
BROKER = {"cluster_name": "C", "broker_name": "broker-a", "broker_addr": "10.0.0.1:10911", "broker_id": 0}
DENIED = ResponseCode.NO_PERMISSION


def users_of(folder: Path) -> AuthTables:
    tables = AuthTables(folder, now_ms=lambda: 0)
    tables.load()
    return tables


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[NameServer]:
    """With users of RocketMQ 5 unless the settings say otherwise; `orders` is a Normal one of them."""
    data = AuthData().with_user(User(NORMAL.access_key, NORMAL.secret_key, UserType.NORMAL))
    users_of(folder / "namesrv").replace(data)
    default: dict[str, Any] = {
        "authentication_enabled": True,
        "init_authentication_user": '{"username":"admin","password":"the admin secret"}',
        "inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"the inner secret"}',
    }
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        rocketmq_home=str(folder),
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
        **{**default, **settings},
    )
    async with NameServer(config) as namesrv:
        yield namesrv


@asynccontextmanager
async def calling(keys: SigningKeys | None = None) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(keys=keys)
    try:
        yield client
    finally:
        await client.stop()


def registration(**fields: Any) -> RemotingCommand:
    header = RegisterBrokerRequestHeader(**{**BROKER, "ha_server_addr": "", **fields})
    return RemotingCommand.request(RequestCode.REGISTER_BROKER, header, topics_body("T").encode())


def route() -> RemotingCommand:
    return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T"))


async def code_of(
    namesrv: NameServer, command: RemotingCommand, keys: SigningKeys | None = None
) -> tuple[int, str]:
    async with calling(keys) as client:
        answer = await client.call(namesrv.address, command)
        return answer.code, answer.remark or ""


@pytest.mark.parametrize(
    ("keys", "remark"),
    [
        (None, "username cannot be null."),
        (SigningKeys("nobody", "a secret"), "User:nobody is not found."),
        (SigningKeys("inner", "a wrong secret"), "check signature failed."),
        (NORMAL, "User:orders has no permission for request code 103 from 127.0.0.1, only super users have."),
    ],
)
async def test_only_an_administrator_registers_a_broker(
    tmp_path: Path, keys: SigningKeys | None, remark: str
) -> None:
    async with serving(tmp_path) as namesrv:
        assert await code_of(namesrv, registration(), keys) == (DENIED, remark)
        assert (await code_of(namesrv, route()))[0] == ResponseCode.TOPIC_NOT_EXIST
        assert not namesrv.state.routes.tables.topics


async def test_a_broker_that_signs_registers_and_clients_see_its_route(tmp_path: Path) -> None:
    async with serving(tmp_path) as namesrv, calling(INNER) as broker:
        assert (await broker.call(namesrv.address, registration())).code == 0
        assert (await code_of(namesrv, route()))[0] == 0


async def test_nobody_else_takes_a_brokers_place_or_takes_it_away(tmp_path: Path) -> None:
    """The address in a request is whatever its sender wrote."""
    unregistration = RemotingCommand.request(
        RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(**BROKER)
    )
    async with serving(tmp_path) as namesrv, calling(INNER) as broker:
        await broker.call(namesrv.address, registration())
        before = await broker.call(namesrv.address, route())
        for keys in (None, NORMAL):
            assert (await code_of(namesrv, registration(broker_addr="6.6.6.6:10911"), keys))[0] == DENIED
            assert (await code_of(namesrv, unregistration, keys))[0] == DENIED
        assert (await broker.call(namesrv.address, route())).body == before.body


async def test_brokers_that_cannot_sign_are_let_in_by_the_address_they_connect_from(tmp_path: Path) -> None:
    kv_list = RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG)
    async with serving(tmp_path / "a", access_allowed_brokers="127.0.0.0/8") as namesrv:
        async with calling() as broker:
            assert (await broker.call(namesrv.address, registration())).code == 0
            # As a broker only.
            assert (await broker.call(namesrv.address, kv_list)).code == DENIED
    async with serving(tmp_path / "b", access_allowed_brokers="10.0.0.1") as namesrv:
        assert (await code_of(namesrv, registration()))[0] == DENIED


async def test_every_other_request_is_refused_without_a_signature(tmp_path: Path) -> None:
    async with serving(tmp_path) as namesrv, calling() as client:
        for code in set(RequestCode) - ROUTE_CODES | {9_999}:
            answer = await client.call(namesrv.address, RemotingCommand.request(code))
            assert answer.code == DENIED, code
    assert BROKER_CODES.isdisjoint(ROUTE_CODES)


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PUT_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    ],
)
async def test_administration_is_for_administrators(tmp_path: Path, code: RequestCode) -> None:
    async with serving(tmp_path) as namesrv:
        command = RemotingCommand.request(code)
        assert (await code_of(namesrv, command, NORMAL))[0] == DENIED
        assert (await code_of(namesrv, command, ADMIN))[0] != DENIED


async def test_routes_need_a_signature_where_it_is_configured(tmp_path: Path) -> None:
    async with serving(tmp_path, access_routes_need_signature=True) as namesrv:
        assert (await code_of(namesrv, route()))[0] == DENIED
        assert (await code_of(namesrv, route(), NORMAL))[0] == ResponseCode.TOPIC_NOT_EXIST


async def test_an_administrator_changes_no_path_either(tmp_path: Path) -> None:
    """CVE-2023-37582: the name server wrote text of a request to a file of the request's choice."""
    victim = tmp_path / "victim"
    async with serving(tmp_path) as namesrv:
        for key in ("configStorePath", "kvConfigPath", "rocketmqHome", "accessUsersFolder"):
            body = f"{key}={victim}\nproductEnvName=test/path\\nanother\n".encode()
            command = RemotingCommand.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
            assert await code_of(namesrv, command, ADMIN) == (DENIED, "Can not update config in black list.")
        config = await code_of(namesrv, RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG), ADMIN)
        assert config[0] == 0
    assert not victim.exists()


async def test_the_accounts_of_rocketmq_4(tmp_path: Path) -> None:
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.parent.mkdir()
    accounts.write_text(
        "accounts:\n"
        "- {accessKey: 'inner-key', secretKey: 'the inner secret', admin: true}\n"
        "- {accessKey: 'orders-key', secretKey: 'the orders secret', defaultTopicPerm: PUB|SUB}\n"
    )
    os.chmod(accounts, 0o600)
    async with serving(tmp_path, acl_enable=True, authentication_enabled=False) as namesrv:
        for keys in (None, SigningKeys("orders-key", "the orders secret"), SigningKeys("inner-key", "wrong")):
            assert (await code_of(namesrv, registration(), keys))[0] == ResponseCode.SYSTEM_ERROR
        assert (await code_of(namesrv, registration(), SigningKeys("inner-key", "the inner secret")))[0] == 0


async def test_refusals_and_administration_are_in_the_audit_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as namesrv:
        await code_of(namesrv, registration())
        await code_of(namesrv, RemotingCommand.request(RequestCode.UPDATE_NAMESRV_CONFIG), ADMIN)
    lines = (tmp_path / "logs" / "audit_namesrv.log").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [(each["event"], each["request"]) for each in events] == [
        ("refused", "REGISTER_BROKER"),
        ("admin", "UPDATE_NAMESRV_CONFIG"),
    ]
    assert events[1]["user"] == "admin"


async def test_it_needs_a_folder_for_what_it_keeps() -> None:
    with pytest.raises(ConfigError, match="rocketmqHome is not set"):
        await NameServer(NamesrvConfig(listen_port=0, authentication_enabled=True)).start()


# -- users ---------------------------------------------------------------------------------------------------


def followed(folder: Path, **settings: Any) -> FollowedUsers:
    return FollowedUsers(
        NamesrvConfig(access_users_folder=str(folder), rocketmq_home=str(folder), **settings)
    )


def test_the_files_of_a_broker_are_followed_and_never_written(tmp_path: Path) -> None:
    users = followed(tmp_path, inner_client_authentication_credentials='{"accessKey":"i","secretKey":"s"}')
    users.load()
    assert not users.reload_if_changed()
    assert list(tmp_path.iterdir()) == []
    users_of(tmp_path).replace(AuthData().with_user(User("late", "a password", UserType.SUPER)))
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert users.reload_if_changed()
    assert users.rules.sender("late", "T") is not None and users.rules.sender("i", "T") is not None
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_the_configured_users_are_there_while_files_are_read_again(tmp_path: Path) -> None:
    """For a moment brokers were refused, in the thread that reads: their wrong logins were counted."""
    users = followed(tmp_path, inner_client_authentication_credentials='{"accessKey":"i","secretKey":"s"}')
    users.load()
    seen: list[bool] = []
    users._tables.on_change.append(lambda: seen.append("i" in users._tables.current.users))
    users_of(tmp_path).replace(AuthData().with_user(User("late", "a password", UserType.SUPER)))
    assert users.reload_if_changed()
    assert seen and all(seen)


def test_a_damaged_file_stops_a_start_and_changes_nothing_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users_of(tmp_path).replace(AuthData().with_user(User("ann", "a password", UserType.SUPER)))
    users = followed(tmp_path)
    users.load()
    (tmp_path / "users.json").write_text("{a password")
    assert not users.reload_if_changed() and not users.reload_if_changed()
    assert users.rules.sender("ann", "T") is not None
    assert "users.json is damaged" in caplog.text and "a password" not in caplog.text
    assert caplog.text.count("stay as they were") == 1
    with pytest.raises(ConfigError, match="damaged"):
        followed(tmp_path).load()


def test_both_versions_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        NamesrvConfig(acl_enable=True, authentication_enabled=True)


async def test_refusals_are_a_metric_by_their_kind(tmp_path: Path) -> None:
    async with serving(tmp_path, http_port=0) as namesrv:
        for keys in (None, NORMAL, NORMAL):
            async with calling(keys) as client:
                assert (await client.call(namesrv.address, registration(), 5_000)).code == DENIED
        found = await scrape(namesrv)
    counts = {
        kind: found.value("kourou_namesrv_access_refusals_total", kind=kind.name.lower())
        for kind in RefusalKind
    }
    expected = {RefusalKind.NO_CREDENTIALS: 1, RefusalKind.NO_PERMISSION: 2}
    assert counts == {kind: expected.get(kind, 0) for kind in RefusalKind}
