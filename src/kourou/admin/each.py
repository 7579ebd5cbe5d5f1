"""map_each: the same request for many topics or groups, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 16
"""Enough to keep the servers busy, few enough that they can serve other clients."""

T = TypeVar("T")
R = TypeVar("R")


async def map_each(items: Iterable[T], ask: Callable[[T], Awaitable[R]], at_once: int = AT_ONCE) -> list[R]:
    """The results in the order of the items. The first error is raised, and ends the others.

    There are as many tasks as requests at a time, not one for each item: 7,000 of them take 20 MB.
    """
    waiting = enumerate(items)
    results: dict[int, R] = {}

    async def work() -> None:
        for number, item in waiting:
            results[number] = await ask(item)

    workers = [asyncio.create_task(work(), name="map-each") for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return [results[number] for number in range(len(results))]
