"""Reads of what is old take turns while messages are sent, and only then."""

from __future__ import annotations

import asyncio

import pytest

from kourou.broker.pull import cold_pulls as read_turns
from kourou.broker.pull.cold_pulls import ColdReadThrottle


class Log:
    """A log that grows when a test says so."""

    def __init__(self) -> None:
        self.end = 0

    def __call__(self) -> int:
        return self.end


async def an_iteration() -> None:
    """What was called soon has been called."""
    await asyncio.sleep(0)


async def test_without_sends_no_pull_waits() -> None:
    turns = ColdReadThrottle(Log())
    assert all(turns.take_nowait() for _ in range(5))
    await asyncio.wait_for(turns.wait(), 1)


async def test_while_messages_are_put_one_reads_in_some_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "SENDING_S", 60.0)
    log = Log()
    turns = ColdReadThrottle(log)
    log.end = 100
    assert [turns.take_nowait() for _ in range(3)] == [True, False, False]
    for _ in range(read_turns.ITERATIONS - 1):
        await an_iteration()
        assert not turns.take_nowait()
    await an_iteration()
    assert [turns.take_nowait() for _ in range(2)] == [True, False]


async def test_who_reads_much_waits_the_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "SENDING_S", 60.0)
    log = Log()
    turns = ColdReadThrottle(log)
    log.end = 100
    assert turns.take_nowait()
    turns.spend(4 * read_turns.TURN_BYTES)
    for _ in range(4 * read_turns.ITERATIONS - 1):
        await an_iteration()
        assert not turns.take_nowait()
    await an_iteration()
    assert turns.take_nowait()
    turns.spend(1)
    for _ in range(read_turns.ITERATIONS):
        assert not turns.take_nowait()
        await an_iteration()
    assert turns.take_nowait()


async def test_reads_without_concurrent_sends_take_no_turn() -> None:
    turns = ColdReadThrottle(Log())
    turns.spend(1 << 30)
    assert turns.take_nowait()


async def test_those_who_wait_come_in_order_and_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "SENDING_S", 60.0)
    log, came = Log(), list[int]()
    turns = ColdReadThrottle(log)
    log.end = 100
    assert turns.take_nowait()

    async def read(number: int) -> None:
        await turns.wait()
        assert not turns.take_nowait()
        came.append(number)

    reads = [asyncio.create_task(read(number)) for number in range(4)]
    await asyncio.wait_for(asyncio.gather(*reads), 5)
    assert came == [0, 1, 2, 3]


async def test_those_who_wait_all_go_on_when_sending_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    turns = ColdReadThrottle(log)
    log.end = 100
    monkeypatch.setattr(read_turns, "SENDING_S", 60.0)
    assert turns.take_nowait()
    waiting = [asyncio.create_task(turns.wait()) for _ in range(4)]
    await an_iteration()
    turns._sending_until_s = 0.0
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert turns.take_nowait() and turns.take_nowait()


async def test_a_cancelled_waiter_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "SENDING_S", 60.0)
    log = Log()
    turns = ColdReadThrottle(log)
    log.end = 100
    first, gone, there = (asyncio.create_task(turns.wait()) for _ in range(3))
    await first
    assert not gone.done()
    gone.cancel()
    await asyncio.wait_for(there, 5)
    assert gone.cancelled()


async def test_what_pops_put_is_no_send() -> None:
    log = Log()
    turns = ColdReadThrottle(log)
    for _ in range(3):
        turns.ignore_next()
        assert all(turns.take_nowait() for _ in range(3)), "before it is written"
        log.end += 1
        assert all(turns.take_nowait() for _ in range(3))
    turns.ignore_next()
    log.end += 2  # and a send
    assert [turns.take_nowait() for _ in range(2)] == [True, False]
