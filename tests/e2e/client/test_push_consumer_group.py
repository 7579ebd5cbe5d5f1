"""Groups of push consumers: who has which queue, when members, brokers and offsets come and go."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from kourou.embed import Broker
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.offsets import UpdateConsumerOffsetRequestHeader
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    LIMIT_S,
    TOPIC,
    Notes,
    call,
    consumer_of,
    consuming,
    make_topic,
    queues_of,
    send,
    spread,
    stored_offset,
    until,
)

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def restarted(running: Cluster) -> AsyncIterator[Broker]:
    """The first broker stops, and a new one comes up in its place, at the same address."""
    old = running.brokers[0]
    port = int(old.address.rpartition(":")[2])
    await old.stop()
    async with Broker(dataclasses.replace(old.config, listen_port=port)) as broker:
        running.brokers[0] = broker
        try:
            yield broker
        finally:
            running.brokers[0] = old


async def test_two_members_share_the_queues_and_one_takes_all_when_the_other_leaves(tmp_path: Path) -> None:
    one, two = Notes(), Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running)
        async with consuming(running, one) as first:
            await until(lambda: queues_of(first) == [0, 1, 2, 3])
            async with consuming(running, two) as second:
                await until(lambda: sorted([queues_of(first), queues_of(second)]) == [[0, 1], [2, 3]])
                bodies = await spread(running, 40)
                await until(lambda: len(one.messages) + len(two.messages) == 40)
                assert sorted(one.bodies + two.bodies) == sorted(bodies)
                assert len(one.messages) == len(two.messages) == 20
            # Told by the broker, long before the next round of 20 s.
            await until(lambda: queues_of(first) == [0, 1, 2, 3])
            await spread(running, 4)
            await until(lambda: len(one.messages) == 24)
            assert len(two.messages) == 20


QUEUES = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in range(4)]


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (AllocateAveragely(), [[0, 1], [2, 3]]),
        (AllocateAveragelyByCircle(), [[0, 2], [1, 3]]),
        (AllocateConsistentHash(), None),
        (AllocateByConfig(QUEUES[:1]), [[0], [0]]),
        (AllocateByMachineRoom(["elsewhere"]), [[], []]),
        (
            AllocateMachineRoomNearby(AllocateAveragely(), lambda queue: "a", lambda client_id: "a"),
            [[0, 1], [2, 3]],
        ),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
async def test_queues_are_shared_by_the_strategy(
    tmp_path: Path, strategy: AllocateStrategy, shares: list[list[int]] | None
) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running)
        async with (
            consuming(running, Notes(), strategy=strategy) as first,
            consuming(running, Notes(), strategy=strategy) as second,
        ):
            members = sorted([first, second], key=lambda member: member.client_id)
            ids = [member.client_id for member in members]
            expected = shares or [
                [queue.queue_id for queue in strategy.allocate(GROUP, client_id, QUEUES, ids)]
                for client_id in ids
            ]
            retry = f"%RETRY%{GROUP}"
            if not isinstance(strategy, AllocateByConfig | AllocateByMachineRoom):
                await until(lambda: sum(len(queues_of(member, retry)) for member in members) == 1)
            await until(lambda: [queues_of(member) for member in members] == expected)


async def test_a_strategy_that_fails_is_reported_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Moody(AllocateAveragely):
        calls = 0

        def allocate(self, *arguments: Any) -> list[MessageQueue]:
            self.calls += 1
            if self.calls <= 2:
                raise RuntimeError("not in the mood")
            return super().allocate(*arguments)

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        async with consuming(running, Notes(), strategy=Moody()) as consumer:
            await until(lambda: queues_of(consumer) == [0])
        assert "not in the mood" in caplog.text


async def test_a_broker_restart_is_survived_without_loss(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=2)
        await send(running, [b"before"])
        async with consuming(running, notes) as consumer:
            await until(lambda: notes.bodies == [b"before"])
            await until(lambda: consumer.stats().in_hand == 0)
            await until(lambda: stored(running) == 1)
            async with restarted(running):
                await send(running, [b"after"])
                await until(lambda: b"after" in notes.bodies)
                await send(running, [b"and on"], queue_id=1)
                await until(lambda: b"and on" in notes.bodies)
                assert notes.bodies == [b"before", b"after", b"and on"]
                await consumer.stop()
                assert await stored_offset(running) == 2


async def test_one_broker_of_two_is_gone_and_the_other_is_consumed(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path, brokers=2) as running:
        await make_topic(running, queues=1)
        async with consuming(running, notes) as consumer:
            await until(lambda: len(queues_of(consumer)) == 2)
            await running.brokers[1].stop()
            await send(running, [b"still here"])
            await until(lambda: notes.bodies == [b"still here"])
        assert await stored_offset(running) == 1


# -- where it begins -----------------------------------------------------------------------------


AGED: dict[str, Any] = {"mapped_file_size_commit_log": 64 * 1024, "max_message_size": 16 * 1024}


async def aged(running: Cluster) -> int:
    """A queue whose first messages are gone, as every queue's are after a while; where it begins now.

    Of a queue that still has its first message Apache's brokers, and ours, tell a new group to begin there.
    """
    await make_topic(running, queues=1)
    await send(running, [b"old" * 3_000] * 20)
    store = running.broker.services.store
    async with asyncio.timeout(LIMIT_S):
        # Files that are not flushed yet are not deleted.
        while not store.min_offset_in_queue(TOPIC, 0):
            for log_file in store.log.log_files:
                os.utime(log_file.path, (0, 0))
            answer = await call(running, RequestCode.DELETE_EXPIRED_COMMITLOG)
            assert answer.code == 0, answer.remark
    return store.min_offset_in_queue(TOPIC, 0)


async def test_last_begins_with_what_comes_from_now_on(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path, **AGED) as running:
        await aged(running)
        async with consuming(running, notes, consume_from="last") as consumer:
            await until(lambda: queues_of(consumer) == [0])
            await send(running, [b"new"])
            await until(lambda: notes.messages)
        assert notes.bodies == [b"new"]


async def test_first_begins_at_0_and_the_broker_corrects_it(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path, **AGED) as running:
        first = await aged(running)
        async with consuming(running, notes, consume_from="first") as consumer:
            await until(lambda: consumer.stats().consumed == 20 - first)
        assert [message.queue_offset for message in notes.messages] == list(range(first, 20))


async def test_a_datetime_begins_at_that_time(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"old"])
        (old,) = await everything(running)
        while datetime.now().timestamp() * 1000 <= old.store_timestamp + 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        since = datetime.now()
        await send(running, [b"new"])
        async with consuming(running, notes, consume_from=since):
            await until(lambda: b"new" in notes.bodies)


async def everything(running: Cluster) -> list[MessageExt]:
    notes = Notes()
    async with consuming(running, notes, group="reader"):
        await until(lambda: notes.messages)
    return notes.messages


async def test_an_offset_that_is_illegal_is_corrected_by_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, Notes()) as consumer:
            await until(lambda: consumer.stats().consumed == 2)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1_000
        )
        await call(running, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        async with consuming(running, notes):
            await until(lambda: stored(running) == 2)
            await send(running, [b"c"])
            await until(lambda: notes.bodies == [b"c"])
    assert (
        f"{TOPIC}/broker-a/0: offset reset from 1000 to 2 (group {GROUP}; the queue has offsets 0 to 2)"
        in caplog.messages
    )


def stored(running: Cluster) -> int:
    return running.broker.services.offsets.query(GROUP, TOPIC, 0)


async def test_many_starts_and_stops_leave_nothing_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        before = asyncio.all_tasks()
        for _ in range(20):
            consumer = consumer_of(running)
            await consumer.subscribe(TOPIC, Notes())
            async with consumer:
                pass
        # The rest is the broker's, which notices the end of the last connection a moment later.
        await until(lambda: len(asyncio.all_tasks()) <= len(before))
