"""Users and policies at a slave: copied from its master, changed there, kept when it is promoted."""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.protocol.bodies import AccessTables, UserInfo, decode_body, encode_body
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.command import RemotingCommand
from kourou.protocol.ext_fields import ext_fields_of
from kourou.protocol.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAccessRequestHeader,
    GetUserRequestHeader,
    UpdateUserRequestHeader,
)
from kourou.protocol.signature import SigningKeys
from tests.e2e.broker.broker_kit import Peer, running
from tests.e2e.broker.replication_kit import following, master, namesrv, slave
from tests.unit.access.auth.calls import acl_info, entry

pytestmark = pytest.mark.e2e

ROOT = SigningKeys("root", "root-secret")
AUTH: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"root","password":"root-secret"}',
    "inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}
ALICE = CreateUserRequestHeader(username="alice")


async def ask(
    peer: Peer,
    code: Code,
    header: msgspec.Struct | None = None,
    body: object = None,
    keys: SigningKeys | None = ROOT,
) -> RemotingCommand:
    """Send a signed request."""
    raw = b"" if body is None else encode_body(body)
    fields = {} if header is None else dict(ext_fields_of(header))
    if keys is not None:
        keys.sign(fields, raw)
    command = RemotingCommand(code, ext_fields=fields, body=raw)
    return await peer.client.call(peer.controller.address, command, 10_000)


async def done(peer: Peer, code: Code, header: msgspec.Struct, body: object = None) -> None:
    """Send a request that succeeds."""
    answer = await ask(peer, code, header, body)
    assert answer.code == 0, answer.remark


async def password_of(peer: Peer, name: str) -> str | None:
    """What a broker has of a user; None: no such user."""
    answer = await ask(peer, Code.AUTH_GET_USER, GetUserRequestHeader(username=name))
    assert answer.code == 0, answer.remark
    return decode_body(answer.body, UserInfo).password if answer.body else None


async def copy_tables(peer: Peer) -> None:
    """What a slave does every few seconds."""
    part = peer.controller._open.running.slave
    assert part is not None
    await part.copy_tables()


@contextlib.asynccontextmanager
async def auth_pair(root: Path) -> AsyncIterator[tuple[Peer, Peer]]:
    """A master and a slave with access control."""
    async with namesrv() as address, master(root, address, **AUTH) as of_master:
        await done(of_master, Code.AUTH_CREATE_USER, ALICE, UserInfo(password="one"))
        async with slave(root, address, **AUTH) as of_slave:
            await following(of_master, 1)
            await copy_tables(of_slave)
            yield of_master, of_slave


async def test_slave_copies_users_and_has_them_when_it_is_promoted(tmp_path: Path) -> None:
    async with auth_pair(tmp_path) as (of_master, of_slave):
        assert await password_of(of_slave, "alice") == "one"
        await done(
            of_master,
            Code.AUTH_UPDATE_USER,
            UpdateUserRequestHeader(username="alice"),
            UserInfo(password="two"),
        )
        acl = acl_info(entry("Topic:TopicTest", "Pub"))
        await done(of_master, Code.AUTH_CREATE_ACL, CreateAclRequestHeader(subject="User:alice"), acl)
        await copy_tables(of_slave)
        assert await password_of(of_slave, "alice") == "two"
    config = tmp_path / "slave-1" / "store" / "config"
    for name in ("users.json", "acls.json"):
        assert (config / name).read_bytes() == (tmp_path / "master" / "store" / "config" / name).read_bytes()
        assert stat.S_IMODE((config / name).stat().st_mode) == 0o600
    async with running(tmp_path / "slave-1", **AUTH) as promoted:
        assert await password_of(promoted, "alice") == "two"
        await done(promoted, Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="alice"))


@pytest.mark.parametrize("slave_first", [False, True])
async def test_tool_that_writes_to_all_replicas_succeeds_at_each(tmp_path: Path, slave_first: bool) -> None:
    subject = "User:alice"
    acl = acl_info(entry("Topic:TopicTest", "Pub"))
    changes: list[tuple[Code, msgspec.Struct, object]] = [
        (Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="bob"), UserInfo(password="b")),
        (Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="bob"), None),
        (Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="bob"), UserInfo(password="b")),
        (Code.AUTH_CREATE_ACL, CreateAclRequestHeader(subject=subject), acl),
        (Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject=subject), None),
    ]
    async with auth_pair(tmp_path) as (of_master, of_slave):
        for change in changes:
            for peer in (of_slave, of_master) if slave_first else (of_master, of_slave):
                await done(peer, *change)
        assert await password_of(of_slave, "bob") == await password_of(of_master, "bob") == "b"
        again = await ask(of_master, *changes[-1])
        assert (again.code, again.remark) == (16, "The acl is not exist.")
        refused = await ask(of_slave, Code.AUTH_CREATE_USER, ALICE, UserInfo(password="x"))
        assert (refused.code, refused.remark) == (16, "The user is existed")


async def test_change_at_a_slave_without_its_master_is_refused(tmp_path: Path) -> None:
    async with slave(tmp_path, **AUTH) as of_slave:
        answer = await ask(of_slave, Code.AUTH_CREATE_USER, ALICE, UserInfo(password="x"))
        assert answer.code == 1
        assert "has not found the master yet" in (answer.remark or "")
        assert await password_of(of_slave, "alice") is None


async def test_tables_are_for_administrators(tmp_path: Path) -> None:
    async with running(tmp_path, **AUTH) as peer:
        await done(peer, Code.AUTH_CREATE_USER, ALICE, UserInfo(password="one"))
        acl = acl_info(entry("*", "All"))
        await done(peer, Code.AUTH_CREATE_ACL, CreateAclRequestHeader(subject="User:alice"), acl)
        refused = await ask(peer, Code.GET_KOUROU_ACCESS, keys=SigningKeys("alice", "one"))
        assert refused.code == 16 and not refused.body
        assert b"root-secret" in (await ask(peer, Code.GET_KOUROU_ACCESS)).body


async def test_slaves_that_ask_are_audited_when_they_get_passwords(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    async with running(tmp_path, **AUTH, access_audit_log_path=str(log)) as peer:
        inner = SigningKeys("inner", "inner-secret")
        tables = decode_body((await ask(peer, Code.GET_KOUROU_ACCESS, keys=inner)).body, AccessTables)
        known = GetAccessRequestHeader(kourou_data_version=encode_body(tables.data_version).decode())
        for keys in (inner, inner, ROOT):
            answer = await ask(peer, Code.GET_KOUROU_ACCESS, known, keys=keys)
            assert (answer.code, answer.body) == (0, b"")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    shown, other = (line for line in lines if line["request"] == "GET_KOUROU_ACCESS")
    assert (shown["user"], shown["event"], shown["outcome"]) == ("inner", "admin", 0)
    assert other["user"] == ROOT.access_key


async def test_broker_without_users_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answer = await ask(peer, Code.AUTH_CREATE_USER, ALICE, UserInfo(password="x"))
        assert answer.code == 1
        assert "without authenticationEnabled=true" in (answer.remark or "")


async def test_damaged_users_stop_the_start(tmp_path: Path) -> None:
    async with running(tmp_path, **AUTH):
        pass
    (tmp_path / "store" / "config" / "users.json").write_bytes(b"{")
    with pytest.raises(Exception, match=r"users\.json is damaged"):
        async with running(tmp_path, **AUTH):
            pass
