"""The opaque table, with a loop clock that the test moves."""

from __future__ import annotations

import asyncio
import time

import pytest

from kourou.errors import CallTimeoutError, ConnectionLostError, TooManyRequestsError
from kourou.protocol.command import CommandHead
from kourou.transport.pending_calls import PendingCalls


def table(limit: int = 10) -> PendingCalls:
    return PendingCalls(asyncio.get_running_loop(), "10.0.0.1:10911", limit)


class Sink:
    """Receives the result of a call, in place of a future."""

    def __init__(self) -> None:
        self.reported: list[object] = []

    def done(self) -> bool:
        return bool(self.reported)

    def set_answer(self, head: CommandHead, body: bytes) -> None:
        self.reported.append((head.code, body))

    def set_exception(self, error: Exception) -> None:
        self.reported.append(error)


async def test_answer_reaches_the_call_with_its_opaque() -> None:
    calls = table()
    first, first_answer = calls.add(105, 1000)
    second, second_answer = calls.add(105, 1000)
    assert calls.take(second) is second_answer
    assert calls.take(second) is None
    assert not first_answer.done()
    calls.fail_all("end of test")
    with pytest.raises(ConnectionLostError):
        await first_answer
    assert first != second


async def test_a_response_without_a_waiter_is_reported() -> None:
    assert table().take(7) is None


async def test_a_sink_is_notified_of_timeouts_and_of_the_end() -> None:
    calls = table()
    late, cut = Sink(), Sink()
    now = asyncio.get_running_loop().time()
    calls.enter(310, now + 1, 1_000, late)
    opaque = calls.enter(310, now + 60, 60_000, cut)
    calls.expire(now + 30)
    assert isinstance(late.reported[0], CallTimeoutError) and not cut.reported
    calls.fail_all("reset")
    assert isinstance(cut.reported[0], ConnectionLostError)
    assert calls.take(opaque) is None


async def test_only_calls_past_their_deadline_expire() -> None:
    calls = table()
    now = asyncio.get_running_loop().time()
    _, soon = calls.add(105, 1_000)
    _, later = calls.add(11, 60_000)
    calls.expire(now + 30)
    with pytest.raises(CallTimeoutError, match="no answer from 10.0.0.1:10911 to request 105 within 1000 ms"):
        await soon
    assert not later.done()
    assert len(calls) == 1
    calls.fail_all("end of test")
    with pytest.raises(ConnectionLostError):
        await later


async def test_the_timer_rings_at_the_earliest_deadline() -> None:
    calls = table()
    _, later = calls.add(11, 60_000)
    _, soon = calls.add(105, 1)
    with pytest.raises(CallTimeoutError):
        await asyncio.wait_for(soon, 5)
    assert not later.done()
    calls.fail_all("end of test")
    with pytest.raises(ConnectionLostError):
        await later


async def test_a_full_table_refuses_with_its_limit() -> None:
    calls = table(limit=1)
    opaque, _ = calls.add(105, 1000)
    with pytest.raises(TooManyRequestsError, match="1 calls to 10.0.0.1:10911"):
        calls.add(105, 1000)
    calls.take(opaque)
    calls.add(105, 1000)
    calls.fail_all("end of test")


async def test_opaque_in_use_is_not_given_twice_after_the_counter_wraps() -> None:
    calls = table()
    opaque, _ = calls.add(105, 1000)
    calls._next_opaque = 0x7FFF_FFFF
    assert calls.next_opaque() == 0x7FFF_FFFF
    assert calls.next_opaque() == opaque + 1
    calls.fail_all("end of test")


async def test_a_cancelled_call_leaves_the_table() -> None:
    calls = table()
    opaque, answer = calls.add(105, 1000)
    answer.cancel()
    calls.forget(opaque, answer)
    assert len(calls) == 0


@pytest.mark.parametrize("has_answer", [True, False])
async def test_a_process_that_was_held_up_reads_before_it_gives_calls_up(has_answer: bool) -> None:
    calls = table()
    opaque, answer = calls.add(105, 20)
    time.sleep(0.2)  # noqa: ASYNC251 - nothing on this loop happens meanwhile
    for _ in range(3):
        await asyncio.sleep(0)  # the timer rings, and sockets are read
    assert not answer.done()
    if has_answer:
        assert calls.take(opaque) is answer
    else:
        with pytest.raises(CallTimeoutError):
            await answer
    assert len(calls) == 0
