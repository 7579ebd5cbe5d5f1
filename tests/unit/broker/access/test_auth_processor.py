"""The admin requests of users and policies, over connections in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.access.auth.tables import AuthTables
from kourou.broker.access.absent import NoAuthProcessor
from kourou.broker.access.auth_processor import AuthProcessor
from kourou.broker.part import processors_of
from kourou.protocol.bodies import AclInfo, DataVersion, UserInfo, decode_body, encode_body
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAccessRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)
from kourou.transport.request import Processor
from tests.unit.access.auth.calls import ALICE, ROOT, acl_info, data, entry
from tests.unit.broker.tables_kit import MemoryBroker

NO_HEADER = CreateUserRequestHeader()


class AuthBroker(MemoryBroker):
    """A broker with users. Its caller is a Super user, or not."""

    is_called_by_super = True

    def __init__(self, root: Path, **keys: Any) -> None:
        self.auth_tables = AuthTables(root / "config", lambda: 7)
        self.auth_tables.adopt(data(ALICE, ROOT))
        self.audited: list[bool] = []
        super().__init__(root, **keys)

    def processors(self) -> dict[int, Processor]:
        return processors_of(
            [
                AuthProcessor(
                    tables=self.auth_tables,
                    is_super=lambda request: self.is_called_by_super,
                    disk=self.disk,
                    requests=self.requests,
                    changing=asyncio.Lock(),
                    audit_secrets=lambda request, *, are_shown: self.audited.append(are_shown),
                )
            ]
        )

    async def ask(
        self, code: Code, header: msgspec.Struct = NO_HEADER, body: object = None
    ) -> RemotingCommand:
        """Send a request and wait for its response."""
        return await self.connect().call(code, header, b"" if body is None else encode_body(body))

    async def done(self, code: Code, header: msgspec.Struct = NO_HEADER, body: object = None) -> None:
        """Send a request that succeeds."""
        answer = await self.ask(code, header, body)
        assert (answer.code, answer.remark) == (0, None)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AuthBroker]:
    broker = AuthBroker(tmp_path)
    yield broker
    await broker.close()


async def test_user_is_created_changed_and_deleted(broker: AuthBroker, tmp_path: Path) -> None:
    await broker.done(Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="bob"), UserInfo(password="p"))
    info = UserInfo(user_status="disable", user_type="Super")
    await broker.done(Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="bob"), info)
    answer = await broker.ask(Code.AUTH_GET_USER, GetUserRequestHeader(username="bob"))
    assert answer.body == b'{"password":"p","userStatus":"disable","userType":"Super","username":"bob"}'
    again = AuthTables(tmp_path / "config", lambda: 7)
    again.load()
    assert again.current == broker.auth_tables.current
    await broker.done(Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="bob"))
    answer = await broker.ask(Code.AUTH_GET_USER, GetUserRequestHeader(username="bob"))
    assert (answer.code, answer.body) == (0, b"")


async def test_users_are_listed_by_a_part_of_their_names(broker: AuthBroker) -> None:
    answer = await broker.ask(Code.AUTH_LIST_USER, ListUsersRequestHeader(filter=""))
    assert [user.username for user in decode_body(answer.body, list[UserInfo])] == ["alice", "root"]
    answer = await broker.ask(Code.AUTH_LIST_USER, ListUsersRequestHeader(filter="none"))
    assert (answer.code, answer.body) == (0, b"")


async def test_passwords_are_for_super_users(broker: AuthBroker) -> None:
    listed = await broker.ask(Code.AUTH_LIST_USER)
    assert b"alice-secret" in listed.body
    broker.is_called_by_super = False
    listed = await broker.ask(Code.AUTH_LIST_USER)
    found = await broker.ask(Code.AUTH_GET_USER, GetUserRequestHeader(username="alice"))
    assert b"alice" in listed.body and b"alice" in found.body
    assert b"secret" not in listed.body + found.body


async def test_super_users_are_changed_by_super_users(broker: AuthBroker) -> None:
    broker.is_called_by_super = False
    info = UserInfo(password="p", user_type="Super")
    answer = await broker.ask(Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="bob"), info)
    assert (answer.code, answer.remark) == (1, "The super user can only be create by super user")
    for code, header, body in (
        (Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="root"), UserInfo(password="p")),
        (Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="root"), None),
    ):
        answer = await broker.ask(code, header, body)
        assert (answer.code, answer.remark) == (16, "The super user can only be update by super user")
    assert broker.auth_tables.current == data(ALICE, ROOT)


async def test_policies_are_created_merged_and_deleted(broker: AuthBroker) -> None:
    header = CreateAclRequestHeader(subject="User:alice")
    await broker.done(Code.AUTH_CREATE_ACL, header, acl_info(entry("Topic:a", "Pub")))
    await broker.done(Code.AUTH_UPDATE_ACL, header, acl_info(entry("Topic:b", "Sub")))
    found = await broker.ask(Code.AUTH_GET_ACL, GetAclRequestHeader(subject="User:alice"))
    (policy,) = decode_body(found.body, AclInfo).policies or []
    assert [each.resource for each in policy.entries or []] == ["Topic:a", "Topic:b"]
    listed = await broker.ask(Code.AUTH_LIST_ACL, ListAclsRequestHeader(resource_filter="Topic:b"))
    assert b"Topic:b" in listed.body and b"Topic:a" not in listed.body
    await broker.done(Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject="User:alice"))
    found = await broker.ask(Code.AUTH_GET_ACL, GetAclRequestHeader(subject="User:alice"))
    assert (found.code, found.body) == (0, b"")
    answer = await broker.ask(Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject="User:alice"))
    assert (answer.code, answer.remark) == (16, "The acl is not exist.")


async def test_change_that_cannot_be_written_is_refused(broker: AuthBroker, tmp_path: Path) -> None:
    (tmp_path / "config" / "users.json.tmp").mkdir(parents=True)
    answer = await broker.ask(
        Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="bob"), UserInfo(password="p")
    )
    assert answer.code == 1
    assert (answer.remark or "").startswith("nothing was changed, the file cannot be written: ")
    assert "bob" not in broker.auth_tables.current.users


async def test_broker_without_users_says_so(broker: AuthBroker) -> None:
    handlers = NoAuthProcessor().processors()
    assert handlers.keys() == broker.processors().keys() - {Code.GET_KOUROU_ACCESS}
    broker.processors = NoAuthProcessor().processors  # type: ignore[method-assign]
    broker.reopen()
    answer = await broker.ask(Code.AUTH_LIST_USER)
    assert answer.code == 1
    assert (answer.remark or "").startswith("The authenticationMetadataProvider is not configured")


async def test_tables_are_audited_as_shown_unless_a_slave_has_them(broker: AuthBroker) -> None:
    version = broker.auth_tables.current.version
    for known, is_shown in ((None, True), (DataVersion(timestamp=99), True), (version, False)):
        text = None if known is None else encode_body(known).decode()
        header = GetAccessRequestHeader(kourou_data_version=text)
        answer = await broker.ask(Code.GET_KOUROU_ACCESS, header)
        assert (bool(answer.body), broker.audited[-1]) == (is_shown, is_shown)
    assert len(broker.audited) == 3
