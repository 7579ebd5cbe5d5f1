"""The schedule against a broker: each queue's function is called, and its offsets are kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.client.pull.pull_schedule import AsyncPullSchedule, PullContext
from kourou.client.pull.pulls import PullStatus
from kourou.errors import ClientStateError
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.pull_kit import TOPIC, numbered, put, until

pytestmark = pytest.mark.e2e


class Reader:
    """A function that reads what there is."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.calls = 0

    async def __call__(self, context: PullContext) -> None:
        self.calls += 1
        result = await context.consumer.pull(context.queue, queue_offset=context.queue_offset)
        self.found += [message.body for message in result.messages()]
        context.queue_offset = result.next_begin_offset
        context.delay_ms = 0 if result.status is PullStatus.FOUND else 20


def schedule_of(running: Cluster) -> AsyncPullSchedule:
    return AsyncPullSchedule("scheduled", namesrv=running.namesrv_addr, client_ip="127.0.0.1", interval_ms=20)


async def test_every_queue_is_read_and_the_next_schedule_goes_on_there(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        for queue_id in range(4):
            await put(running, numbered(40, 40 * queue_id), queue_id=queue_id)
        reader = Reader()
        async with schedule_of(running) as schedule:
            await schedule.register(TOPIC, reader)
            await until(lambda: len(reader.found) == 160)
            assert len(schedule.assignment()) == 4
            with pytest.raises(ClientStateError, match="has a function already"):
                await schedule.register(TOPIC, reader)
        assert sorted(reader.found) == sorted(numbered(160))
        await put(running, [b"later"])
        reader = Reader()
        schedule = schedule_of(running)
        await schedule.register(TOPIC, reader)
        async with schedule:
            await until(lambda: reader.calls >= 8)
        assert reader.found == [b"later"]


async def test_a_group_shares_the_queues(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, schedule_of(running) as first:
        await put(running, [b"x"])
        await first.register(TOPIC, Reader())
        await until(lambda: len(first.assignment()) == 4)
        async with schedule_of(running) as second:
            await second.register(TOPIC, Reader())
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        await until(lambda: len(first.assignment()) == 4)


async def test_a_function_that_raises_is_called_again_at_the_same_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    async def fails(context: PullContext) -> None:
        if context.queue.queue_id == 0:
            asked.append(context.queue_offset)
            context.queue_offset += 1
            raise ValueError("a function's own mistake")

    async with cluster(tmp_path) as running, schedule_of(running) as schedule:
        await put(running, numbered(5))
        await schedule.register(TOPIC, fails)
        await until(lambda: len(asked) >= 3)
        assert set(asked) == {0}
        assert "the function for" in caplog.text and "a function's own mistake" in caplog.text
        caplog.clear()


async def test_a_stop_waits_for_a_function_that_runs_and_keeps_its_offset(tmp_path: Path) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(context: PullContext) -> None:
        if context.queue.queue_id == 0:
            began.set()
            await go_on.wait()
            context.queue_offset = 3

    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(5))
        async with schedule_of(running) as schedule:
            await schedule.register(TOPIC, slow)
            await began.wait()
            stopping = asyncio.ensure_future(schedule.stop())
            await until(lambda: schedule._stop_once.is_begun)
            assert not stopping.done()
            go_on.set()
            await stopping
        assert running.broker.services.offsets.query("scheduled", TOPIC, queue.queue_id) == 3


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="interval_ms is -1"):
        AsyncPullSchedule("scheduled", interval_ms=-1)
