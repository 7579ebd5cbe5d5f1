"""Orderly push consumers: the order of each queue, failures in their place, locks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.protocol.bodies import LockBatchRequestBody, MessageQueue, encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    call,
    consuming,
    make_topic,
    queues_of,
    send,
    stored_offset,
    until,
)
from tests.e2e.client.test_push_consumer_retry import dead_letters

pytestmark = pytest.mark.e2e


def numbered(count: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(count)]


async def try_lock(running: Cluster, client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> bool:
    """Whether another client gets the lock of the first queue."""
    queue = MessageQueue(TOPIC, "broker-a", 0)
    body = LockBatchRequestBody(consumer_group=GROUP, client_id=client_id, mq_set=[queue])
    answer = await call(running, code, body=encode_body(body))
    return b"broker-a" in answer.body


async def test_each_queue_is_consumed_in_order_one_at_a_time(tmp_path: Path) -> None:
    running_now: set[int] = set()
    seen: dict[int, list[bytes]] = {}

    async def handler(message: MessageExt) -> None:
        assert message.queue_id not in running_now
        running_now.add(message.queue_id)
        await asyncio.sleep(0)
        seen.setdefault(message.queue_id, []).append(message.body)
        running_now.discard(message.queue_id)

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=3)
        for queue_id in range(3):
            await send(running, numbered(50), queue_id=queue_id)
        async with consuming(running, handler, orderly=True) as consumer:
            await until(lambda: consumer.stats().consumed == 150)
        assert seen == {queue_id: numbered(50) for queue_id in range(3)}
        assert [await stored_offset(running, queue_id) for queue_id in range(3)] == [50] * 3


@pytest.mark.parametrize("failure", [ConsumeResult.SUSPEND, ConsumeResult.LATER, ValueError("no")])
async def test_a_failure_is_tried_again_in_its_place(
    tmp_path: Path, failure: ConsumeResult | Exception
) -> None:
    notes = Notes(None, failure, failure)
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b", b"c"])
        async with consuming(running, notes, orderly=True, suspend_ms=10) as consumer:
            await until(lambda: consumer.stats().consumed == 3)
            assert consumer.stats().failed == 2
        assert notes.bodies == [b"a", b"b", b"b", b"b", b"c"]


async def test_after_the_last_attempt_it_is_a_dead_letter_and_the_queue_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(message: MessageExt, context: ConsumeContext) -> ConsumeResult | None:
        tries.append((message.body, message.reconsume_times))
        context.suspend_ms = 10
        return ConsumeResult.SUSPEND if message.body == b"poison" else None

    tries: list[tuple[bytes, int]] = []
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"poison", b"next"])
        options = {"orderly": True, "max_reconsume_times": 2, "suspend_ms": 30_000}
        async with consuming(running, handler, **options) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
        assert tries == [(b"poison", 0), (b"poison", 1), (b"poison", 2), (b"next", 0)]
        (dead,) = await dead_letters(running)
        assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"poison", TOPIC)
        assert await stored_offset(running) == 2
        assert f"after 3 attempts, now in %DLQ%{GROUP}" in caplog.text


async def test_a_batch_stays_together_and_in_order(tmp_path: Path) -> None:
    batches: list[list[bytes]] = []

    def handler(messages: list[MessageExt]) -> ConsumeResult:
        batches.append([message.body for message in messages])
        return ConsumeResult.SUSPEND if len(batches) == 1 else ConsumeResult.SUCCESS

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, numbered(5))
        async with consuming(running, handler, orderly=True, batch_size=2, suspend_ms=10) as consumer:
            await until(lambda: consumer.stats().consumed == 5)
        assert [body for batch in batches[1:] for body in batch] == numbered(5)
        assert batches[0] == numbered(2)


async def test_a_queue_is_locked_while_it_is_ours_and_free_after_the_end(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        async with consuming(running, notes, orderly=True):
            await until(lambda: notes.messages)
            assert not await try_lock(running, "somebody else")
        assert await try_lock(running, "somebody else")


async def test_a_queue_that_another_has_locked_is_taken_when_it_is_free(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        assert await try_lock(running, "somebody else")
        async with consuming(running, notes, orderly=True) as consumer:
            await until(lambda: queues_of(consumer, f"%RETRY%{GROUP}"))
            assert (queues_of(consumer), notes.messages) == ([], [])
            await try_lock(running, "somebody else", RequestCode.UNLOCK_BATCH_MQ)
            await until(lambda: notes.bodies == [b"a"])


async def test_two_members_share_the_queues_and_order_holds_when_one_leaves(tmp_path: Path) -> None:
    first, second = Notes(), Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=4)
        async with consuming(running, first, orderly=True) as one:
            async with consuming(running, second, orderly=True) as two:
                await until(lambda: sorted(queues_of(one) + queues_of(two)) == [0, 1, 2, 3])
                await until(lambda: len(queues_of(one)) == 2)
                for queue_id in range(4):
                    await send(running, numbered(10), queue_id=queue_id)
                await until(lambda: one.stats().consumed + two.stats().consumed == 40)
                assert one.stats().consumed == 20
            await until(lambda: queues_of(one) == [0, 1, 2, 3])
            for queue_id in range(4):
                await send(running, [b"more"], queue_id=queue_id)
            await until(lambda: one.stats().consumed == 24)
        for queue_id in range(4):
            seen = [m.body for notes in (second, first) for m in notes.messages if m.queue_id == queue_id]
            assert seen == [*numbered(10), b"more"]


async def test_stop_waits_for_the_handler_and_commits_it(tmp_path: Path) -> None:
    gate, started = asyncio.Event(), asyncio.Event()

    async def handler(message: MessageExt) -> None:
        started.set()
        await gate.wait()

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, handler, orderly=True) as consumer:
            await started.wait()
            stopping = asyncio.ensure_future(consumer.stop())
            await asyncio.sleep(0)
            gate.set()
            await stopping
        assert await stored_offset(running) == 1
