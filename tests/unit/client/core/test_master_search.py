"""MasterSearch: asks until a broker has a master that answers, and wakes what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from kourou.client.core import master_search
from kourou.client.core.api import ClientApi
from kourou.client.core.master_search import MasterSearch
from kourou.client.core.routes import Routes
from kourou.errors import AccessDeniedError, AccountLimitError, ConnectError, NoRouteError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.transport.tasks import TaskOwner

QUEUE = MessageQueue("T", "a", 0)


class Set:
    """A broker whose master is at `answering` after so many requests for routes."""

    def __init__(self, found_after: int) -> None:
        self.routes = Routes(cast(ClientApi, None))
        self.routes.brokers["a"] = {0: "old:1", 1: "new:1"}
        self.left = found_after
        self.asked = 0
        self.heartbeats: list[str] = []

    async def refresh(self) -> None:
        self.asked += 1
        self.left -= 1
        if self.left == 0:
            self.routes.brokers["a"] = {0: "new:1", 1: "old:1"}

    async def heartbeat(self, address: str) -> bool:
        self.heartbeats.append(address)
        return address == "new:1"


@asynccontextmanager
async def searching(brokers: Set) -> AsyncIterator[MasterSearch]:
    tasks = TaskOwner("test")
    try:
        yield MasterSearch(brokers.routes, tasks, brokers.refresh, brokers.heartbeat)
    finally:
        await tasks.stop()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_search, "_FIRST_PAUSE_S", 0.0)


async def test_a_lost_connection_begins_one_search_which_ends_at_the_new_master() -> None:
    brokers = Set(found_after=3)
    found: list[str] = []
    async with searching(brokers) as masters:
        masters.on_found.append(found.append)
        masters.lost("elsewhere:1")
        masters.lost("old:1")
        await asyncio.gather(*(masters.wait("a", 10) for _ in range(5)))
        assert (brokers.asked, found) == (3, ["a"])
        assert brokers.heartbeats == ["old:1", "old:1", "new:1"]
        await masters.wait("a", 10)
        assert found == ["a", "a"], "a second search is another one"


async def test_a_request_is_repeated_at_the_new_master() -> None:
    brokers = Set(found_after=2)
    asked: list[str] = []

    async def request(address: str) -> str:
        asked.append(address)
        if len(asked) == 1:
            raise ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, "not master", address)
        if address == "old:1":
            raise ConnectError(address, "refused")
        return "done"

    async with searching(brokers) as masters:
        assert await masters.call_master(QUEUE, 10, request) == "done"
    assert asked == ["old:1", "new:1"]


async def test_a_request_ends_with_its_error_when_no_master_is_found_or_another_would_not_help() -> None:
    brokers = Set(found_after=0)
    brokers.routes.brokers.clear()

    async def refused(address: str) -> None:
        raise ResponseError(ResponseCode.SYSTEM_ERROR, "wrong group", address)

    async with searching(brokers) as masters:
        with pytest.raises(NoRouteError, match="broker 'a' has no master at present"):
            await masters.call_master(QUEUE, 0, refused)
        brokers.routes.brokers["a"] = {0: "old:1"}
        with pytest.raises(ResponseError, match="wrong group"):
            await masters.call_master(QUEUE, 10, refused)


async def test_pauses_grow_with_refusals_and_are_those_of_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(round(seconds, 1))

    monkeypatch.setattr(master_search, "_FIRST_PAUSE_S", 0.1)
    brokers = Set(found_after=1)
    async with searching(brokers) as masters:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", sleep)
            for error in (AccessDeniedError(16, "no permission"), ResponseError(1, "failed")):
                for failures in (1, 5, 9, 1_000):
                    await masters.pause("a", error, failures)
            for wait_ms in (200, 7_000, 90_000, None):
                await masters.pause("a", AccountLimitError(2, "", account="", limit="", wait_ms=wait_ms), 1)
    assert pauses == [0.1, 1.6, 25.6, 30.0, 0.1, 1.0, 1.0, 1.0, 0.2, 7.0, 30.0, 0.1]
    assert brokers.asked == 0
