"""The admin requests of RocketMQ 4's access control, over connections in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.broker.access.absent import NoPlainAclProcessor
from kourou.broker.access.plain_processor import PlainAclProcessor
from kourou.broker.part import processors_of
from kourou.protocol.bodies import PlainAclConfig, decode_body
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from kourou.transport.request import Processor
from tests.unit.access.plain.accounts_kit import SECRET, home_files, rules_of
from tests.unit.broker.tables_kit import MemoryBroker


class AclBroker(MemoryBroker):
    """A broker with accounts. Its caller is an administrator, or not."""

    is_called_by_admin = True

    def __init__(self, root: Path, **keys: Any) -> None:
        self.rules = rules_of(home_files(root / "home", other="globalWhiteRemoteAddresses: [1.2.3.4]"))
        self.changes = 0
        super().__init__(root / "store", **keys)

    def processors(self) -> dict[int, Processor]:
        return processors_of([self.wired(PlainAclProcessor)])

    def is_admin(self, request: object) -> bool:
        return self.is_called_by_admin

    def rules_changed(self) -> None:
        self.changes += 1

    def now_ms(self) -> int:
        return 1_700_000_000_000

    async def ask(self, code: Code, header: msgspec.Struct | None = None) -> RemotingCommand:
        """Send a request and wait for its response."""
        return await self.connect().call(code, header or DeleteAccessConfigRequestHeader(access_key="none"))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AclBroker]:
    broker = AclBroker(tmp_path)
    yield broker
    await broker.close()


def new_account(**values: Any) -> CreateAccessConfigRequestHeader:
    return CreateAccessConfigRequestHeader(**{"access_key": "newcomer", "secret_key": "87654321", **values})


def outcome(answer: RemotingCommand) -> tuple[int, str | None]:
    return answer.code, answer.remark


async def test_account_is_created_changed_and_deleted(
    broker: AclBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        header = new_account(admin=True, topic_perms="a=PUB,b=SUB|PUB", group_perms="g=SUB")
        assert outcome(await broker.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, header)) == (0, None)
    account = broker.rules.table.accounts["newcomer"]
    assert account.is_admin and set(account.listed) == {"a", "b", "%RETRY%g"}
    assert broker.changes == 1
    assert "account newcomer written by" in caplog.text
    assert "87654321" not in caplog.text
    await broker.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, new_account())
    assert not broker.rules.table.accounts["newcomer"].is_admin
    header = DeleteAccessConfigRequestHeader(access_key="newcomer")
    assert outcome(await broker.ask(Code.DELETE_ACL_CONFIG, header)) == (0, None)
    assert "newcomer" not in broker.rules.table.accounts
    assert broker.changes == 3


async def test_refused_changes_have_codes_and_reasons(broker: AclBroker) -> None:
    code, remark = outcome(await broker.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, new_account(secret_key=None)))
    assert code == 209
    assert remark == (
        "The accessKey=newcomer and secretKey=null cannot be null and length should longer than 6"
    )
    code, remark = outcome(await broker.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, new_account(topic_perms="")))
    assert (code, (remark or "")[:33]) == (209, "Parse Resource format error for .")
    assert outcome(await broker.ask(Code.DELETE_ACL_CONFIG)) == (
        210,
        "The accesskey[none] corresponding to accessConfig has been deleted failed.",
    )
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(
        global_white_addrs="*", acl_file_full_path="/etc/passwd"
    )
    assert outcome(await broker.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)) == (
        211,
        "The globalWhiteAddresses[*] has been updated failed.",
    )
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs="10.0.0.0/8")
    code, remark = outcome(await broker.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header))
    assert code == 211 and "'10.0.0.0/8' is not an IP address" in (remark or "")
    assert broker.changes == 0


async def test_exempt_addresses(broker: AclBroker) -> None:
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs="10.0.0.{1,2}, 10.1.*.*,::1")
    assert outcome(await broker.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)) == (0, None)
    other = broker.rules.files.folder / "other.yml"
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(
        global_white_addrs="5.6.7.8", acl_file_full_path=str(other)
    )
    assert outcome(await broker.ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)) == (0, None)
    body = decode_body((await broker.ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG)).body, PlainAclConfig)
    assert body.global_white_addrs == ["5.6.7.8", "10.0.0.{1,2}", "10.1.*.*", "::1"]


async def test_versions(broker: AclBroker) -> None:
    await broker.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, new_account())
    answer = await broker.ask(Code.GET_BROKER_CLUSTER_ACL_INFO)
    header = msgspec.convert(answer.ext_fields, GetBrokerAclConfigResponseHeader)
    written = {"counter": 1, "timestamp": 1_700_000_000_000}
    assert json.loads(header.version) == written
    assert json.loads(header.all_acl_file_version or "") == {
        str(broker.rules.files.default): written,
        str(broker.rules.files.folder / "other.yml"): {**written, "counter": 0},
    }
    assert (header.broker_name, header.broker_addr) == ("broker-a", broker.address)
    assert header.cluster_name == "DefaultCluster"


async def test_accounts_are_listed_with_secrets_for_administrators_only(broker: AclBroker) -> None:
    answer = await broker.ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG)
    body = decode_body(answer.body, PlainAclConfig)
    assert [account.access_key for account in body.plain_access_configs] == [
        "producer",
        "everything",
        "limited-admin",
    ]
    producer = body.plain_access_configs[0]
    assert producer.secret_key == SECRET
    assert producer.topic_perms == ["orders=PUB|SUB", "bills=SUB"]
    assert json.loads(answer.body)["plainAccessConfigs"][1] == {
        "accessKey": "everything",
        "admin": True,
        "secretKey": SECRET,
    }
    broker.is_called_by_admin = False
    answer = await broker.ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG)
    assert SECRET.encode() not in answer.body
    assert decode_body(answer.body, PlainAclConfig).plain_access_configs[0].secret_key == "***"


class OpenBroker(MemoryBroker):
    """A broker without access control."""

    def processors(self) -> dict[int, Processor]:
        return processors_of([NoPlainAclProcessor()])


async def test_all_requests_are_answered_where_access_control_is_off(tmp_path: Path) -> None:
    broker = OpenBroker(tmp_path)
    client = broker.connect()
    answers = [
        await client.call(code, DeleteAccessConfigRequestHeader(access_key="x")) for code in range(50, 55)
    ]
    assert [answer.code for answer in answers] == [209, 210, 1, 211, 1]
    assert all("without aclEnable=true" in (answer.remark or "") for answer in answers)
    await broker.close()
