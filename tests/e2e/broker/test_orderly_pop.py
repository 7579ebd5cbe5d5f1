"""Orderly POP by requests: a queue is blocked until what was popped is acknowledged, or visible again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from kourou.protocol.pop.offset_infos import decode_order_counts
from kourou.protocol.pop.receipt_handle import ORDERLY_REVIVE_QUEUE_ID, ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind
from tests.e2e.broker.pop_delivery_kit import GROUP, PopAnswer, PopPeer, popping

pytestmark = pytest.mark.e2e

TOPIC = "TopicTest"
NOTHING = ResponseCode.POLLING_TIMEOUT
QUEUE = 0


async def send(pops: PopPeer, count: int) -> None:
    for number in range(count):
        assert (await pops.peer.send(TOPIC, b"%d" % number)).code == 0


async def pop(pops: PopPeer, attempt_id: str, count: int = 2, **fields: int) -> PopAnswer:
    return await pops.pop(
        order=True, attempt_id=attempt_id, max_msg_nums=count, **{"queue_id": QUEUE, **fields}
    )


def handles(answer: PopAnswer) -> list[ReceiptHandle]:
    """As a client builds them from the answer."""
    header = answer.header
    assert header is not None and header.revive_qid == ORDERLY_REVIVE_QUEUE_ID
    return [
        ReceiptHandle(
            queue.start_offset,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            queue.kind,
            "broker-a",
            queue.queue_id,
            offset,
        )
        for queue in answer.queues
        for offset in queue.offsets
    ]


async def ack(pops: PopPeer, handle: ReceiptHandle, group: str = GROUP) -> RemotingCommand:
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=TOPIC,
        queue_id=handle.queue_id,
        extra_info=handle.encode(),
        queue_offset=handle.queue_offset,
    )
    return await pops.peer.call(RequestCode.ACK_MESSAGE, header)


async def change(
    pops: PopPeer, handle: ReceiptHandle, invisible_time: int
) -> ChangeInvisibleTimeResponseHeader:
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=handle.queue_id,
        extra_info=handle.encode(),
        queue_offset=handle.queue_offset,
        invisible_time=invisible_time,
    )
    answer = await pops.peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert answer.code == 0, answer.remark
    return answer.header(ChangeInvisibleTimeResponseHeader)


def held(pops: PopPeer, attempt_id: str, **fields: int) -> asyncio.Task[PopAnswer]:
    now_ms = pops.peer.controller.services.now_ms()
    return asyncio.ensure_future(pop(pops, attempt_id, poll_time=20_000, born_time=now_ms, **fields))


async def test_what_is_acknowledged_lets_the_next_ones_follow(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 5)
        first = await pop(pops, "a")
        assert first.bodies == [b"0", b"1"]
        assert (await pop(pops, "b")).code == NOTHING
        zero, one = handles(first)
        assert (await ack(pops, one)).code == 0
        assert pops.committed() == 0
        assert (await pop(pops, "b")).code == NOTHING
        assert (await ack(pops, zero)).code == 0
        assert pops.committed() == 2
        second = await pop(pops, "b")
        assert second.bodies == [b"2", b"3"]
        for old in (zero, one):
            assert (await ack(pops, old)).code == 0, "as RocketMQ answers"
        assert pops.committed() == 2


@pytest.mark.parametrize("queue_id", [QUEUE, -1])
async def test_an_ack_wakes_a_held_pop(tmp_path: Path, queue_id: int) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 4)
        first = handles(await pop(pops, "a"))
        waiting = held(pops, "b", queue_id=queue_id)
        await pops.until_held(1)
        for handle in first:
            await ack(pops, handle)
        assert (await asyncio.wait_for(waiting, 2)).bodies == [b"2", b"3"]


@pytest.mark.parametrize("queue_id", [QUEUE, -1])
async def test_the_end_of_the_time_wakes_a_held_pop(tmp_path: Path, queue_id: int) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 3)
        began = time.monotonic()
        first = await pop(pops, "a", invisible_time=300)
        waiting = held(pops, "b", queue_id=queue_id)
        again = await asyncio.wait_for(waiting, 5)
        assert 0.3 <= time.monotonic() - began
        assert again.bodies == first.bodies == [b"0", b"1"]
        assert again.header is not None
        counts = decode_order_counts(again.header.order_count_info)
        assert [counts.count_of(PopTopicKind.NORMAL, QUEUE, offset) for offset in (0, 1)] == [1, 1]
        for handle in handles(first):
            assert (await ack(pops, handle)).code == 0
        assert pops.committed() == 0, "acks of the earlier pop have no effect"


async def test_a_changed_time_ends_the_block(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 2)
        first = await pop(pops, "a")
        zero, one = handles(first)
        assert first.header is not None
        changed = await change(pops, one, 200)
        assert (changed.pop_time, changed.revive_qid) == (first.header.pop_time, ORDERLY_REVIVE_QUEUE_ID)
        assert 200 <= changed.invisible_time < 60_000
        waiting = held(pops, "b")
        await pops.until_held(1)
        await ack(pops, zero)
        again = await asyncio.wait_for(waiting, 5)
        assert again.bodies == [b"1"]


async def test_a_repeated_attempt_gets_the_same_messages(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 3)
        first = await pop(pops, "a")
        again = await pop(pops, "a")
        assert again.bodies == first.bodies
        assert again.header is not None
        counts = decode_order_counts(again.header.order_count_info)
        assert counts.count_of(PopTopicKind.NORMAL, QUEUE, 0) == 0
        for handle in handles(again):
            await ack(pops, handle)
        assert pops.committed() == 2


async def test_acks_of_what_was_not_popped_change_nothing(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 5)
        (zero,) = handles(await pop(pops, "a", 1))
        forged = zero._replace(queue_offset=3)
        refused = await ack(pops, forged)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL and "not among those" in (refused.remark or "")
        assert (await ack(pops, zero._replace(pop_time=zero.pop_time - 1))).code == 0
        pops.peer.controller.services.groups.find("others")
        assert (await ack(pops, zero._replace(queue_offset=4), "others")).code == 0
        assert pops.committed() == 0
        assert pops.peer.controller.services.offsets.query("others", TOPIC, QUEUE) == -1
        assert (await pop(pops, "b")).code == NOTHING
        assert (await ack(pops, zero)).code == 0
        assert (await pop(pops, "b")).bodies == [b"1", b"2"]


async def test_a_restart_keeps_the_block(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 4)
        zero, one = handles(await pop(pops, "a"))
        await ack(pops, zero)
    async with popping(tmp_path) as pops:
        assert (await pop(pops, "b")).code == NOTHING
        await ack(pops, one)
        assert (await pop(pops, "b")).bodies == [b"2", b"3"]


async def test_a_block_that_was_kept_ends_by_itself(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await send(pops, 2)
        await pop(pops, "a", invisible_time=1_000)
    async with popping(tmp_path) as pops:
        again = await asyncio.wait_for(held(pops, "b"), 5)
        assert again.bodies == [b"0", b"1"]
