"""DiskThreads: what was begun is completed, with or without a waiter."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from kourou.broker.storage.disk_threads import DiskThreads


@pytest.fixture
async def disk() -> AsyncIterator[DiskThreads]:
    threads = DiskThreads()
    yield threads
    threads.stop()


async def test_results_and_errors_come_back(disk: DiskThreads) -> None:
    assert await disk.run(pow, 2, 10) == 1024
    with pytest.raises(FileNotFoundError):
        await disk.run(open, "/no/such/file")


async def test_who_is_cancelled_leaves_nothing_running(disk: DiskThreads) -> None:
    """Otherwise two would write the same file: one without a waiter, and the last one at a stop."""
    begun, go_on, steps = threading.Event(), threading.Event(), []

    def write() -> None:
        begun.set()
        go_on.wait(10)
        steps.append("written")

    writing = asyncio.ensure_future(disk.run(write))
    await asyncio.to_thread(begun.wait, 10)
    writing.cancel()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert steps == ["written"]
