"""What a slave makes of its master's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kourou.access.auth.tables import AuthTables
from kourou.broker.access.auth_following import AuthFollower
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.errors import CallTimeoutError, RequestError
from kourou.protocol.bodies import AccessTables, DataVersion, UserInfo, encode_body
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from kourou.transport.request import Request
from tests.unit.access.auth.calls import ALICE, ROOT, data

MASTER = "10.0.0.1:10911"
UNKNOWN = RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
REFUSED = RemotingCommand(ResponseCode.NO_PERMISSION, remark="User:inner is not found.")
SIGNED = cast(Request, SimpleNamespace(code=3001, ext_fields={"Signature": "s"}, body=b""))


class FakeClient:
    """Returns one answer, or none in time."""

    def __init__(self) -> None:
        self.answer: RemotingCommand | None = UNKNOWN
        self.calls: list[RemotingCommand] = []
        self.open_calls = 0

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.calls.append(command)
        self.open_calls += 1
        assert self.open_calls == 1, "two copies at a time"
        await asyncio.sleep(0)
        self.open_calls -= 1
        if self.answer is None:
            raise CallTimeoutError(address, command.code, timeout_ms)
        return self.answer


@asynccontextmanager
async def follower(folder: Path) -> AsyncIterator[tuple[AuthFollower, AuthTables, FakeClient]]:
    tables, client, disk = AuthTables(folder, lambda: 7), FakeClient(), DiskThreads()
    tables.adopt(data(ALICE))
    made = AuthFollower(
        tables=tables, client=cast(RemotingClient, client), disk=disk, changing=asyncio.Lock()
    )
    try:
        yield made, tables, client
    finally:
        disk.stop()


def answer(*users: UserInfo) -> RemotingCommand:
    body = encode_body(AccessTables(DataVersion(timestamp=1, counter=9), list(users)))
    return RemotingCommand(ResponseCode.SUCCESS, body=body)


async def test_apache_master_is_asked_rarely_and_changes_are_made_here(tmp_path: Path) -> None:
    async with follower(tmp_path) as (found, tables, client):
        for _ in range(61):
            await found.follow(MASTER)
        assert len(client.calls) == 1
        assert await found.pass_on(SIGNED) is None
        await found.follow(MASTER)
        await found.follow("10.0.0.2:10911")
        assert len(client.calls) == 3
        assert tables.current == data(ALICE)


async def test_other_version_is_taken_over_and_stored(tmp_path: Path) -> None:
    async with follower(tmp_path) as (found, tables, client):
        client.answer = answer(ROOT.info(with_password=True))
        await found.follow(MASTER)
        again = AuthTables(tmp_path, lambda: 7)
        again.load()
        assert again.current == tables.current
        assert tables.current.users == {"root": ROOT}
        client.answer = RemotingCommand(ResponseCode.SUCCESS)
        await found.follow(MASTER)
        assert (client.calls[1].ext_fields or {})["kourouDataVersion"] == (
            '{"counter":9,"stateVersion":0,"timestamp":1}'
        )
        assert tables.current.users == {"root": ROOT}


async def test_an_older_copy_is_not_taken_over_after_a_newer_one(tmp_path: Path) -> None:
    async with follower(tmp_path) as (found, _, client):
        client.answer = answer(ROOT.info(with_password=True))
        await asyncio.gather(found.follow(MASTER), found.follow(MASTER))
        assert len(client.calls) == 2


@pytest.mark.parametrize(
    "said",
    [None, REFUSED, answer(UserInfo("x", "hidden", "Boss")), RemotingCommand(0, body=b'{"users":"hidden"')],
)
async def test_problem_is_logged_once_and_nothing_changes(
    tmp_path: Path, said: RemotingCommand | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with follower(tmp_path) as (found, tables, client):
        client.answer = said
        for _ in range(3):
            await found.follow(MASTER)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "are not copied" in caplog.text and "hidden" not in caplog.text
        assert tables.current == data(ALICE)


async def test_change_without_signature_is_not_passed_on(tmp_path: Path) -> None:
    async with follower(tmp_path) as (found, _, client):
        client.answer = RemotingCommand(ResponseCode.SUCCESS)
        await found.follow(MASTER)
        unsigned = cast(Request, SimpleNamespace(code=3001, ext_fields={}, body=b""))
        with pytest.raises(RequestError, match=f"change them at {MASTER}"):
            await found.pass_on(unsigned)
