"""Workers: at most so many at once, few where few do, and an end that does not hang."""

from __future__ import annotations

import asyncio

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.push.worker_pool import Worker, WorkerPool

Item = int


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_work_that_does_not_wait_is_done_by_one_or_two_workers_in_order() -> None:
    done: list[int] = []
    failures: list[BaseException] = []

    async def work(worker: Worker[Item], item: Item) -> None:
        done.append(item)

    pool: WorkerPool[Item] = WorkerPool("unit", 20, work, failures.append)
    pool.put(range(100))
    await turns()
    pool.put(range(100, 200))
    await turns()
    assert done == list(range(200))
    assert len(pool.workers) <= 2
    assert await pool.stop(1)
    assert failures == []


async def test_work_that_waits_is_done_by_as_many_as_allowed() -> None:
    running, most = 0, 0
    gate = asyncio.Event()

    async def work(worker: Worker[Item], item: Item) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    pool: WorkerPool[Item] = WorkerPool("unit", 5, work, lambda error: None)
    pool.put(range(20))
    await turns()
    assert (most, pool.waiting) == (5, 15)
    gate.set()
    await turns(100)
    assert (running, pool.waiting, most) == (0, 0, 5)
    await pool.stop(1)


async def test_the_loop_turns_while_there_is_endless_work() -> None:
    async def work(worker: Worker[Item], item: Item) -> None:
        pool.put([item + 1])

    pool: WorkerPool[Item] = WorkerPool("unit", 1, work, lambda error: None)
    pool.put([0])
    await asyncio.wait_for(turns(5), 5)  # would never end otherwise
    assert await pool.stop(5)


async def test_a_failure_of_work_is_reported() -> None:
    failures: list[BaseException] = []

    async def work(worker: Worker[Item], item: Item) -> None:
        raise ZeroDivisionError

    pool: WorkerPool[Item] = WorkerPool("unit", 1, work, failures.append)
    pool.put([1])
    await turns()
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    await pool.stop(1)


async def test_stop_drops_what_waits_and_cancels_what_does_not_end() -> None:
    started: list[int] = []
    cancelled: list[int] = []

    async def work(worker: Worker[Item], item: Item) -> None:
        started.append(item)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    pool: WorkerPool[Item] = WorkerPool("unit", 2, work, lambda error: None)
    pool.put(range(5))
    await turns()
    assert not await pool.stop(0.01)
    assert (started, sorted(cancelled)) == ([0, 1], [0, 1])
    pool.put([9])
    assert pool.waiting == 0


async def test_cancellable_tasks_distinguish_their_cancellations() -> None:
    failures: list[BaseException] = []
    tasks = CancellableTasks(failures.append)

    async def wait() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ZeroDivisionError

    unstarted = tasks.start(wait(), "unstarted")
    tasks.cancel(unstarted)  # before its first step
    stranger = tasks.start(wait(), "stranger")
    tasks.start(fail(), "fail")
    await turns(2)
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    stranger.cancel()
    await turns(2)
    assert "stranger was cancelled from outside" in str(failures[1])
    tasks.start(wait(), "left")
    await tasks.stop()
    assert len(failures) == 2
