"""map_each: order, the number at a time, errors."""

from __future__ import annotations

import asyncio

import pytest

from kourou.admin.each import map_each


async def test_results_are_in_order_and_few_run_at_a_time() -> None:
    running, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running -= 1
        return number * 10

    assert await map_each(range(50), ask, at_once=4) == [number * 10 for number in range(50)]
    assert most == 4
    assert await map_each([], ask) == []


async def test_an_error_ends_the_others() -> None:
    asked: list[int] = []
    never = asyncio.Event()

    async def ask(number: int) -> None:
        asked.append(number)
        if number == 1:
            raise ValueError("no")
        await never.wait()

    with pytest.raises(ValueError, match="no"):
        await map_each(range(10), ask, at_once=2)
    await asyncio.sleep(0)
    assert asked == [0, 1]
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "map-each"]
