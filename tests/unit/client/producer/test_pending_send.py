"""Room for sends: bounded by count and bytes, first come first served, none forgotten."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.producer.pending_send import InFlight


def soon() -> float:
    return asyncio.get_running_loop().time() + 5


async def test_count_and_bytes_are_bounded() -> None:
    room = InFlight(2, 100)
    assert room.try_enter(60)
    assert not room.try_enter(41)
    assert room.try_enter(40)
    assert not room.try_enter(0), "two are in"
    room.leave(60)
    room.leave(40)
    assert (room.count, room.size_bytes) == (0, 0)
    assert room.try_enter(1_000), "a large one goes alone"
    assert not room.try_enter(1)


async def test_who_waits_gets_in_in_order() -> None:
    room = InFlight(1, 100)
    assert room.try_enter(1)
    order: list[int] = []

    async def wait(number: int) -> None:
        await room.enter(1, soon())
        order.append(number)
        room.leave(1)

    tasks = [asyncio.ensure_future(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert not room.try_enter(1), "nobody overtakes"
    room.leave(1)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4] and room.count == 0


async def test_waiting_ends_at_its_time_and_the_next_moves_up() -> None:
    room = InFlight(2, 100)
    assert room.try_enter(50)
    large = asyncio.ensure_future(room.enter(60, asyncio.get_running_loop().time() + 0.02))
    small = asyncio.ensure_future(room.enter(10, soon()))
    with pytest.raises(TimeoutError):
        await large
    await small
    assert (room.count, room.size_bytes) == (2, 60)


async def test_one_cancelled_in_the_moment_it_is_let_in_gives_the_room_back() -> None:
    room = InFlight(1, 100)
    assert room.try_enter(1)
    first = asyncio.ensure_future(room.enter(1, soon()))
    second = asyncio.ensure_future(room.enter(1, soon()))
    await asyncio.sleep(0)
    room.leave(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert room.count == 1


async def test_one_cancelled_before_that_is_passed_over() -> None:
    room = InFlight(1, 100)
    assert room.try_enter(1)
    first = asyncio.ensure_future(room.enter(1, soon()))
    second = asyncio.ensure_future(room.enter(1, soon()))
    await asyncio.sleep(0)
    first.cancel()
    room.leave(1)
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert room.count == 1


async def test_idle_is_waited_for() -> None:
    room = InFlight(5, 100)
    await room.wait_idle()
    room.try_enter(1)
    room.try_enter(2)
    waiting = asyncio.ensure_future(room.wait_idle())
    await asyncio.sleep(0)
    room.leave(1)
    await asyncio.sleep(0)
    assert not waiting.done()
    room.leave(2)
    await waiting
