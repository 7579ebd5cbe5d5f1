"""Connection on a transport in memory: passes, back-pressure, bounds, ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from kourou.errors import CallTimeoutError, ConnectionLostError, RequestError, TooManyRequestsError
from kourou.protocol.command import RemotingCommand
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.request import Processor, Request
from kourou.transport.settings import ConnectionLimits

ECHO, BIG, FAIL, REFUSE, HOLD = 1, 2, 3, 4, 5


@dataclass
class Bench:
    """A connection, its peer in memory, and what happened."""

    connection: Connection
    peer: MemoryTransport
    held: list[Request] = field(default_factory=list)

    def receive(self, *commands: RemotingCommand) -> None:
        self.connection.data_received(b"".join(command.encode() for command in commands))


def request(code: int, opaque: int = 0, *, body: bytes = b"", flag: int = 0) -> RemotingCommand:
    return RemotingCommand(code=code, opaque=opaque, flag=flag, body=body)


def _fail(_: Request) -> None:
    raise ValueError("boom")


def _refuse(_: Request) -> None:
    raise RequestError(16, "no permission")


MakeBench = Callable[..., Bench]


@pytest.fixture
async def bench() -> MakeBench:
    def make(*, reads: bool = True, budget_bytes: int = 1 << 30, **limits: int) -> Bench:
        held: list[Request] = []
        processors: Mapping[int, Processor] = {
            ECHO: lambda r: r.reply(body=r.body),
            BIG: lambda r: r.reply(body=b"x" * 100_000),
            FAIL: _fail,
            REFUSE: _refuse,
            HOLD: held.append,
        }
        connection = Connection(
            Cycles(), Dispatcher(processors), ConnectionLimits(**limits), InboundBudget(budget_bytes)
        )
        return Bench(connection, MemoryTransport(connection, reads=reads), held)

    return make


async def test_all_requests_of_one_read_are_answered_by_one_write(bench: MakeBench) -> None:
    b = bench()
    b.receive(*(request(ECHO, opaque, body=b"%d" % opaque) for opaque in range(3)))
    assert b.peer.written == []
    await asyncio.sleep(0)
    assert len(b.peer.written) == 1
    answers = b.peer.commands()
    assert [(a.opaque, a.code, a.body, a.is_response) for a in answers] == [
        (0, 0, b"0", True),
        (1, 0, b"1", True),
        (2, 0, b"2", True),
    ]


async def test_bytes_at_the_end_of_a_cycle_are_written_at_once_behind_those_that_wait(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench()
    b.connection.send_at_end(b"first")
    assert b.peer.written == [b"first"]
    b.connection.send(b"second, ")
    b.connection.send_at_end(b"third")
    assert b.peer.written == [b"first"]
    await asyncio.sleep(0)
    assert b.peer.written == [b"first", b"second, third"]

    def broken(_: bytes) -> None:
        raise RuntimeError("unable to write")

    monkeypatch.setattr(b.peer, "write", broken)
    b.connection.send_at_end(b"fourth")
    assert b.connection.closed
    b.connection.send_at_end(b"fifth")


async def test_bytes_at_the_end_of_a_cycle_count_for_a_peer_that_never_reads(bench: MakeBench) -> None:
    b = bench(reads=False, write_high_bytes=1_000, max_unsent_bytes=50_000)
    for _ in range(10):
        b.connection.send_at_end(b"x" * 10_000)
    await asyncio.sleep(0)
    assert b.connection.closed


async def test_one_way_requests_get_no_answer_not_even_an_error(bench: MakeBench) -> None:
    b = bench()
    b.receive(request(ECHO, flag=2), request(REFUSE, flag=2), request(999, flag=2))
    await asyncio.sleep(0)
    assert b.peer.commands() == []


async def test_errors_become_answers(bench: MakeBench, caplog: pytest.LogCaptureFixture) -> None:
    b = bench()
    b.receive(request(FAIL, 1), request(REFUSE, 2), request(999, 3))
    await asyncio.sleep(0)
    assert [(a.opaque, a.code, a.remark) for a in b.peer.commands()] == [
        (1, 1, "ValueError: boom"),
        (2, 16, "no permission"),
        (3, 3, " request type 999 not supported"),
    ]
    assert [record.message for record in caplog.records] == ["request 3 from 10.0.0.9:40000 failed"]


async def test_a_held_request_is_answered_later(bench: MakeBench) -> None:
    b = bench()
    b.receive(request(HOLD, 5))
    await asyncio.sleep(0)
    assert b.peer.commands() == []
    b.held[0].reply(body=b"late")
    await asyncio.sleep(0)
    assert [a.body for a in b.peer.commands()] == [b"late"]


async def test_garbage_closes_after_the_answers_in_front_of_it(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    b = bench()
    b.connection.data_received(request(ECHO, body=b"good").encode() + b"\xff" * 20)
    assert b.connection.closed
    assert [a.body for a in b.peer.commands()] == [b"good"]
    assert "is over the limit" in caplog.text


async def test_a_header_that_is_none_closes(bench: MakeBench) -> None:
    b = bench()
    b.connection.data_received(b"\0\0\0\x06\0\0\0\x02{]")
    assert b.connection.closed


async def test_others_may_wait_until_the_peer_takes_its_answers_or_is_gone(bench: MakeBench) -> None:
    b = bench(reads=False, write_high_bytes=150_000)
    await b.connection.wait_writable()  # at once
    ends: tuple[Callable[[], None], ...] = (b.peer.take, lambda: b.connection.abort("gone"))
    for end in ends:
        b.receive(request(BIG, 0), request(BIG, 1))
        await asyncio.sleep(0)
        assert b.connection.is_write_paused
        waiting = [asyncio.ensure_future(b.connection.wait_writable()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        end()
        await asyncio.wait_for(asyncio.gather(*waiting), 1)


async def test_a_peer_that_does_not_read_is_not_read_until_it_does(bench: MakeBench) -> None:
    b = bench(reads=False, write_high_bytes=150_000)
    b.receive(*(request(BIG, opaque) for opaque in range(5)))
    await asyncio.sleep(0)
    # Two answers pass the mark; the other three requests wait undecoded.
    assert [a.opaque for a in b.peer.commands()] == [0, 1]
    assert not b.peer.reading
    b.receive(request(ECHO, 9))  # what was in flight when reading paused
    b.peer.take()
    await asyncio.sleep(0)
    assert [a.opaque for a in b.peer.commands()] == [2, 3]
    b.peer.take()
    await asyncio.sleep(0)
    assert [a.opaque for a in b.peer.commands()] == [4, 9]
    assert b.peer.reading


async def test_a_peer_that_sends_much_lets_others_have_their_turn(bench: MakeBench) -> None:
    b = bench()
    b.receive(request(ECHO, 1, body=b"x" * 200_000))
    assert not b.peer.reading
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(lambda: turns.append("another"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns == ["another"] and b.peer.reading
    b.receive(request(ECHO, 2, body=b"x" * 200_000))
    b.connection.stop_reading()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not b.peer.reading, "a server that stops does not begin again"


async def test_a_peer_that_never_reads_is_given_up(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    b = bench(reads=False, write_high_bytes=1_000, max_unsent_bytes=50_000)
    for opaque in range(10):
        b.receive(request(HOLD, opaque))
    for held in b.held:
        held.reply(body=b"x" * 10_000)
    await asyncio.sleep(0)
    assert b.connection.closed
    assert "bytes of answers unread" in caplog.text


async def test_half_frames_of_all_connections_share_one_budget(bench: MakeBench) -> None:
    b = bench(budget_bytes=1_000)
    half = request(ECHO, body=b"x" * 5_000).encode()[:900]
    b.connection.data_received(half)
    assert not b.connection.closed
    b.connection.data_received(b"x" * 200)
    assert b.connection.closed


async def test_a_finished_frame_gives_its_budget_back(bench: MakeBench) -> None:
    b = bench(budget_bytes=6_000)
    data = request(ECHO, body=b"x" * 5_000).encode()
    for _ in range(3):
        b.connection.data_received(data[:4_000])
        b.connection.data_received(data[4_000:])
    await asyncio.sleep(0)
    assert len(b.peer.commands()) == 3
    assert not b.connection.closed


async def test_call_gets_the_answer_with_its_opaque(bench: MakeBench) -> None:
    b = bench()
    calls = [asyncio.create_task(b.connection.call(request(40), 5_000)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sent = b.peer.commands()
    b.receive(*(request(0, c.opaque, body=b"%d" % c.opaque, flag=1) for c in reversed(sent)))
    assert [(await call).body for call in calls] == [b"%d" % c.opaque for c in sent]


async def test_a_call_without_answer_times_out_and_a_late_answer_is_dropped(bench: MakeBench) -> None:
    b = bench()
    with pytest.raises(CallTimeoutError, match="10.0.0.9:40000"):
        await b.connection.call(request(40), 1)
    b.receive(request(0, 0, flag=1))
    assert not b.connection.closed


async def test_pending_calls_fail_with_the_reason_of_the_disconnect(bench: MakeBench) -> None:
    b = bench()
    call = asyncio.create_task(b.connection.call(request(40), 5_000))
    await asyncio.sleep(0)
    b.peer.break_off(ConnectionResetError(104, "Connection reset by peer"))
    with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
        await call
    with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
        await b.connection.call(request(40), 5_000)


async def test_a_reset_after_an_answer_is_no_hint_of_tls(bench: MakeBench) -> None:
    for is_answered in (False, True):
        b = bench()
        call = b.connection.call_nowait(request(40), 5_000)
        if is_answered:
            b.receive(request(0, 0, flag=1))
            await call
            call = b.connection.call_nowait(request(40), 5_000)
        b.peer.break_off(ConnectionResetError(104, "Connection reset by peer"))
        with pytest.raises(ConnectionLostError) as caught:
            await call
        assert ("requires TLS" in str(caught.value)) is not is_answered


async def test_one_way_commands_are_bounded_while_the_peer_does_not_read(bench: MakeBench) -> None:
    b = bench(reads=False, write_high_bytes=1_000, max_unsent_oneways=3)
    b.connection.send_oneway(request(40, body=b"x" * 2_000))
    for _ in range(3):
        b.connection.send_oneway(request(40))
    with pytest.raises(TooManyRequestsError, match="3 one-way requests"):
        b.connection.send_oneway(request(40))
    b.peer.take()
    b.connection.send_oneway(request(40))


async def test_replies_after_the_end_are_dropped(bench: MakeBench) -> None:
    b = bench()
    b.receive(request(HOLD))
    b.peer.break_off()
    b.held[0].reply(body=b"too late")
    await asyncio.sleep(0)
    assert b.peer.commands() == []


async def test_idle_counts_from_the_last_byte_in_either_direction(bench: MakeBench) -> None:
    b = bench(idle_timeout_ms=120_000)
    last = b.connection.last_active
    assert not b.connection.is_idle(last + 119.9)
    assert b.connection.is_idle(last + 120.1)


async def test_closing_writes_what_is_collected(bench: MakeBench) -> None:
    b = bench()
    b.receive(request(ECHO, body=b"last words"))
    b.connection.close("test")
    assert [a.body for a in b.peer.commands()] == [b"last words"]
    assert b.connection.closed


async def test_a_server_that_stops_reads_no_more_even_after_the_peer_caught_up(bench: MakeBench) -> None:
    b = bench(reads=False, write_high_bytes=1_000)
    b.receive(request(BIG), request(ECHO, 1))
    b.connection.stop_reading()
    b.peer.take()
    await asyncio.sleep(0)
    assert not b.peer.reading


@pytest.fixture(autouse=True)
def _warnings_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
