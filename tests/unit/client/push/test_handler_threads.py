"""Threads for plain handlers: bounded, owned, and never in the way of the end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kourou.client.push.handler_threads import HandlerThreads


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("unit-handler")]


async def test_results_and_errors_come_back() -> None:
    threads = HandlerThreads("unit", 2)
    assert await threads.run(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ValueError, match="no"):
        await threads.run(int, "no")
    with pytest.raises(RuntimeError, match="SystemExit") as reported:
        await threads.run(exit_now)
    assert isinstance(reported.value.__cause__, SystemExit)
    assert await threads.stop() == 0
    assert ours() == []


def exit_now() -> None:
    raise SystemExit(3)


async def test_there_are_never_more_threads_than_allowed_and_idle_ones_are_used_again() -> None:
    threads = HandlerThreads("unit", 3)
    names = [await threads.run(lambda: threading.current_thread().name) for _ in range(20)]
    assert set(names) == {"unit-handler-1"}
    barrier = threading.Barrier(3, timeout=10)
    await asyncio.gather(*(threads.run(barrier.wait) for _ in range(9)))
    assert len(ours()) == 3
    assert await threads.stop() == 0


async def test_many_calls_all_return() -> None:
    threads = HandlerThreads("unit", 4)
    assert await asyncio.gather(*(threads.run(str, n) for n in range(2_000))) == [
        str(n) for n in range(2_000)
    ]
    assert threads.unfinished == 0
    await threads.stop()


async def test_handlers_that_wait_run_at_once_up_to_the_limit() -> None:
    threads = HandlerThreads("unit", 8)
    running, most = 0, 0
    lock, all_there = threading.Lock(), threading.Barrier(8, timeout=10)

    def waits() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_there.wait()
        with lock:
            running -= 1

    ended: list[BaseException | None] = []
    threads.submit([(waits, (), lambda result, error: ended.append(error))] * 16)
    assert await threads.drain(10)
    assert (ended, most) == ([None] * 16, 8)
    assert await threads.stop() == 0


async def test_drain_says_whether_everything_has_returned() -> None:
    threads = HandlerThreads("unit", 1)
    assert await threads.drain(1)
    release = threading.Event()
    blocked = threads.run(release.wait, 30)
    assert not await threads.drain(0.01)
    release.set()
    assert await threads.drain(10)
    assert await blocked
    assert await threads.stop() == 0


async def test_no_job_is_lost_between_busy_and_idle() -> None:
    threads = HandlerThreads("unit", 3)
    for _ in range(300):
        assert await asyncio.gather(*(threads.run(str, n) for n in range(5))) == ["0", "1", "2", "3", "4"]
    assert await threads.stop() == 0


async def test_stop_leaves_a_thread_that_blocks_and_runs_nothing_that_waited() -> None:
    threads = HandlerThreads("unit", 1)
    release, ran = threading.Event(), threading.Event()
    blocked = threads.run(release.wait, 30)
    waiting = threads.run(ran.set)
    began = time.monotonic()
    assert await threads.stop() == 1
    assert time.monotonic() - began < 5
    release.set()
    await blocked
    await waiting
    assert not ran.is_set()
    for thread in threading.enumerate():
        if thread.name.startswith("unit-handler"):
            thread.join(5)
    assert ours() == []


async def test_a_caller_that_went_away_is_no_problem() -> None:
    threads = HandlerThreads("unit", 1)
    release = threading.Event()
    call = threads.run(release.wait, 30)
    call.cancel()
    release.set()
    assert await threads.run(lambda: 1) == 1
    assert threads.unfinished == 0
    await threads.stop()
