"""Consumer lag for metrics: computed in slices, kept for a while, right beside a model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.protocol.bodies import TopicConfig
from tests.e2e.broker.broker_kit import Peer, running

pytestmark = pytest.mark.e2e

TOPICS, GROUPS, QUEUES = 40, 10, 8


async def fill(peer: Peer) -> None:
    services = peer.controller.services
    for number in range(TOPICS):
        services.topics.update(TopicConfig(f"T{number}", QUEUES, QUEUES))
    for group in range(GROUPS):
        services.groups.find(f"G{group}")
    for queue_id in range(QUEUES):
        await asyncio.gather(*(peer.send(f"T{n}", queue_id=queue_id) for n in range(TOPICS)))
    for number in range(TOPICS):
        for group in range(GROUPS):
            for queue_id in range(QUEUES):
                services.offsets.commit(
                    f"G{group}", f"T{number}", queue_id, (number + group + queue_id) % 2, ""
                )


async def test_many_groups_are_computed_in_turns_with_other_work(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        await fill(peer)
        metrics = peer.controller._metrics
        assert metrics is not None
        turns = 0
        refreshing = asyncio.create_task(metrics.lag.refresh(20))
        while not refreshing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > TOPICS * GROUPS * QUEUES / 200  # at least one for each slice
        table = {(lag.topic, lag.group): lag for lag in metrics.lag.table}
        assert len(table) == TOPICS * GROUPS
        for number in range(TOPICS):
            for group in range(GROUPS):
                lag = table[f"T{number}", f"G{group}"]
                behind = [1 - (number + group + queue_id) % 2 for queue_id in range(QUEUES)]
                assert [queue.lag for queue in lag.queues] == behind
                assert (lag.lag, lag.consumer_offset) == (sum(behind), QUEUES - sum(behind))
                assert (lag.lag_since_ms > 0) == (lag.lag > 0)


async def test_young_numbers_are_kept_and_a_deleted_topic_is_left_out(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        await fill(peer)
        metrics = peer.controller._metrics
        assert metrics is not None
        await metrics.lag.refresh(20)
        kept = metrics.lag.table
        await metrics.lag.refresh(20)
        assert metrics.lag.table is kept
        peer.controller.services.topics.delete("T0")
        metrics.lag._computed_ms = None
        await metrics.lag.refresh(20)
        assert len(metrics.lag.table) == (TOPICS - 1) * GROUPS
