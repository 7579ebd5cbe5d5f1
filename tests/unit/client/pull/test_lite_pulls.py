"""A lite pull consumer's queue: what is in hand, and how far its user is."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.pull.lite_pulls import LiteQueue
from kourou.client.pull.pulls import PullResult, PullStatus
from kourou.client.push.assigned_queue import FlowLimits
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.message import MessageExt
from kourou.protocol.record import RecordEncoder, decode_record

QUEUE = MessageQueue("TopicTest", "broker-a", 0)


def message(queue_offset: int) -> MessageExt:
    parts = RecordEncoder("TopicTest", 0, bytes(8)).parts(
        b"body",
        b"",
        queue_offset=queue_offset,
        phy_offset=0,
        store_timestamp=0,
        born_timestamp=0,
        born_host=bytes(8),
        sys_flag=0,
        flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    return decode_record(b"".join(parts))


def messages(first: int, end: int) -> list[MessageExt]:
    return [message(queue_offset) for queue_offset in range(first, end)]


def lite_queue(limits: FlowLimits | None = None) -> LiteQueue:
    lite = LiteQueue(QUEUE, SubscriptionData(topic="TopicTest"), limits or FlowLimits(1_000, 1 << 20, 2_000))
    lite.begin(0)
    return lite


def offsets(lite: LiteQueue) -> tuple[int | None, int | None, int | None]:
    return lite.pull_offset, lite.polled_offset, lite.done_offset


def test_what_is_polled_is_done_with_at_the_next_poll() -> None:
    lite = lite_queue()
    lite.add(messages(0, 3), 3)
    lite.add(messages(3, 5), 5)
    assert offsets(lite) == (5, 0, 0)
    assert [each.queue_offset for each in lite.take()] == [0, 1, 2]
    assert offsets(lite) == (5, 3, 0)
    lite.finish_polled()
    assert offsets(lite) == (5, 3, 3)


def test_offsets_without_messages_are_passed_with_those_before_them() -> None:
    lite = lite_queue()
    lite.add([], 4)
    assert offsets(lite) == (4, 4, 0)
    lite.add(messages(4, 6), 6)
    lite.add([], 20)
    assert offsets(lite) == (20, 4, 0)
    lite.take()
    assert offsets(lite) == (20, 20, 0)


def test_counts_and_bytes_follow_what_is_in_hand() -> None:
    lite = lite_queue()
    lite.add(messages(0, 3), 3)
    assert (lite.count, lite.size_bytes) == (3, sum(each.store_size for each in messages(0, 3)))
    assert lite.is_ready
    lite.take()
    assert (lite.count, lite.size_bytes, lite.is_ready) == (0, 0, False)


@pytest.mark.parametrize(
    ("limits", "is_full"),
    [
        (FlowLimits(3, 1 << 20, 2_000), False),
        (FlowLimits(2, 1 << 20, 2_000), True),
        (FlowLimits(3, 100, 2_000), True),
        (FlowLimits(3, 1 << 20, 1), True),
    ],
)
def test_it_is_full_by_count_bytes_or_span(limits: FlowLimits, is_full: bool) -> None:
    lite = lite_queue(limits)
    assert not lite.is_full
    lite.add(messages(0, 3), 3)
    assert lite.is_full is is_full


def test_a_paused_queue_is_not_ready_and_keeps_what_it_has() -> None:
    lite = lite_queue()
    lite.add(messages(0, 3), 3)
    lite.pause(True)
    assert not lite.is_ready and lite.count == 3
    lite.pause(False)
    assert lite.is_ready


def test_a_move_back_drops_what_comes_again_and_one_forward_keeps_it() -> None:
    lite = lite_queue()
    lite.begin(10)
    lite.add(messages(10, 13), 13)
    lite.moved(500)
    assert lite.count == 3 and offsets(lite) == (500, 10, 10)
    lite.moved(2)
    assert lite.count == 0 and offsets(lite) == (2, 2, 2)


async def test_a_seek_makes_a_pull_on_its_way_worthless() -> None:
    lite = lite_queue()
    pulling: asyncio.Future[PullResult] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(lite.wait_pull(pulling))
    await asyncio.sleep(0)
    lite.add(messages(0, 3), 3)
    lite.seek(100)
    assert await waiting is None
    assert pulling.cancelled() and offsets(lite) == (100, 100, 100) and lite.count == 0


async def test_a_pull_that_ends_together_with_a_seek_is_not_taken() -> None:
    lite = lite_queue()
    pulling: asyncio.Future[PullResult] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(lite.wait_pull(pulling))
    await asyncio.sleep(0)
    pulling.set_result(PullResult(PullStatus.FOUND, 3, 0, 3, 0, b"", "broker-a"))
    lite.seek(100)
    assert await waiting is None


async def test_a_cancellation_from_outside_goes_through_even_after_a_seek() -> None:
    lite = lite_queue()
    pulling: asyncio.Future[PullResult] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(lite.wait_pull(pulling))
    await asyncio.sleep(0)
    lite.seek(100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_changes_end_a_wait_and_time_does_too() -> None:
    lite = lite_queue()
    await asyncio.wait_for(lite.wait_changed(0.001), 5)
    for change in (lambda: lite.pause(True), lambda: lite.seek(1), lite.drop):
        waiting = asyncio.ensure_future(lite.wait_changed(60))
        await asyncio.sleep(0)
        change()
        await asyncio.wait_for(waiting, 5)
