"""Lines of pulls: how many of a connection are under way, in which order, and when none is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kourou.broker.connection_state import ConnectionState
from kourou.broker.pull import cold_pulls as pull_lines
from kourou.broker.pull.cold_pulls import MAX_UNDER_WAY, ColdPullQueues
from kourou.errors import RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.request import Request
from kourou.transport.settings import ConnectionLimits
from kourou.transport.tasks import TaskOwner


class Bench:
    """Lines, and a peer whose pulls wait for `allow`."""

    def __init__(self, *, reads: bool = True) -> None:
        self.tasks = TaskOwner("pulls")
        self.lines = ColdPullQueues(self.tasks)
        self.started: list[int] = []
        self.allow = asyncio.Semaphore(0)
        self.connection = Connection(
            Cycles(),
            self._pull,
            ConnectionLimits(write_high_bytes=1000),
            InboundBudget(2**30),
            new_state=ConnectionState,
        )
        self.peer = MemoryTransport(self.connection, reads=reads)

    def _pull(self, request: Request) -> None:
        async def work() -> None:
            self.started.append(request.opaque)
            await self.allow.acquire()
            request.reply(body=b"x" * 2000)

        self.lines.run(request, work)

    def receive(self, *opaques: int) -> None:
        self.connection.data_received(b"".join(RemotingCommand(11, opaque=n).encode() for n in opaques))

    async def let(self, count: int) -> None:
        """Let so many come to their end, as far as they have begun."""
        for _ in range(count):
            self.allow.release()
        for _ in range(10):
            await asyncio.sleep(0)

    def answered(self) -> list[int]:
        return [answer.opaque for answer in self.peer.commands()]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.tasks.stop()


async def test_a_few_are_under_way_and_the_others_follow_in_their_order(bench: Bench) -> None:
    bench.receive(*range(6))
    await bench.let(0)
    assert bench.started == list(range(MAX_UNDER_WAY))
    await bench.let(1)
    assert bench.started == list(range(MAX_UNDER_WAY + 1)) and bench.answered() == [0]
    await bench.let(5)
    assert bench.answered() == [1, 2, 3, 4, 5]


async def test_connections_do_not_wait_for_each_other() -> None:
    one, other = Bench(), Bench()
    one.receive(*range(6))
    other.receive(7)
    await one.let(0)
    assert other.started == [7]
    for bench in (one, other):
        await bench.tasks.stop()


async def test_none_begins_while_the_peer_does_not_take_its_answers() -> None:
    bench = Bench(reads=False)
    bench.receive(*range(6))
    await bench.let(0)
    await bench.let(6)
    assert bench.started == [0, 1] and bench.connection.is_write_paused
    bench.peer.take()
    await bench.let(0)
    assert bench.started == [0, 1, 2]
    for _ in range(3):
        bench.peer.take()
        await bench.let(0)
    assert bench.started == [0, 1, 2, 3, 4, 5]
    await bench.tasks.stop()


async def test_those_of_a_peer_that_has_gone_never_begin() -> None:
    bench = Bench(reads=False)
    bench.receive(*range(6))
    await bench.let(0)
    bench.connection.abort("gone")
    await bench.let(6)
    await bench.tasks.wait_idle(1)
    assert bench.started == [0, 1]
    assert bench.connection.state.cold_pulls.under_way == 0


async def test_one_more_than_may_wait_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_lines, "MAX_WAITING", 3)
    with pytest.raises(RequestError) as caught:
        bench.receive(*range(6))
    assert caught.value.response_code == ResponseCode.SYSTEM_BUSY
    assert "3 pulls of this connection wait" in caught.value.remark
    await bench.let(3)
    assert bench.answered() == [0, 1, 2]


async def test_an_error_is_the_answer_and_the_next_one_follows(bench: Bench) -> None:
    async def refuse() -> None:
        raise RequestError(16, "not you")

    for opaque in range(3):
        request = _request_of(bench.connection, opaque)
        bench.lines.run(request, refuse)
    await bench.let(0)
    answers = bench.peer.commands()
    assert [(answer.opaque, answer.code, answer.remark) for answer in answers] == [
        (0, 16, "not you"),
        (1, 16, "not you"),
        (2, 16, "not you"),
    ]


def _request_of(connection: Connection, opaque: int) -> Request:
    requests: list[Request] = []
    other = Connection(Cycles(), requests.append, ConnectionLimits(), InboundBudget(2**30))
    MemoryTransport(other)
    other.data_received(RemotingCommand(11, opaque=opaque).encode())
    requests[0].connection = connection
    return requests[0]
