"""ProcessQueue: what may be committed, order, bounds, locks; against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.client.push.assigned_queue import ProcessQueue
from kourou.protocol.message import MessageExt


class Clock:
    """A clock in milliseconds that the test advances."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def message(queue_offset: int, store_size: int = 100) -> MessageExt:
    return MessageExt(
        store_size=store_size,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=queue_offset,
        phy_offset=0,
        sys_flag=0,
        born_timestamp=0,
        raw_born_host=b"",
        store_timestamp=0,
        raw_store_host=b"",
        reconsume_times=0,
        prepared_transaction_offset=0,
        stored_body=b"",
        topic="T",
        raw_properties=b"",
    )


def offsets(messages: list[MessageExt]) -> list[int]:
    return [each.queue_offset for each in messages]


def filled(*queue_offsets: int, clock: Clock | None = None) -> tuple[ProcessQueue, list[MessageExt]]:
    clock = clock or Clock()
    queue = ProcessQueue(clock, wall_ms=lambda: 5_000_000 + clock.now_ms)
    messages = [message(each) for each in queue_offsets]
    queue.add(messages)
    return queue, messages


def test_counts_sizes_and_span() -> None:
    queue, _ = filled(10, 11, 19)
    assert (queue.count, queue.size_bytes, queue.span) == (3, 300, 9)
    assert ProcessQueue().span == 0


def test_the_offset_to_commit_is_the_smallest_that_is_still_here() -> None:
    queue, (first, second, third) = filled(10, 11, 12)
    assert queue.remove([second]) == 10
    assert queue.remove([first]) == 12
    assert queue.remove([third]) == 13
    assert (queue.count, queue.size_bytes) == (0, 0)


def test_nothing_is_known_where_nothing_was_here() -> None:
    queue, messages = filled(10)
    assert ProcessQueue().remove([message(5)]) == -1
    assert queue.remove(messages) == 11
    assert queue.remove(messages) == -1
    assert queue.commit() == -1


def test_filtered_gaps_are_committed_with_what_follows() -> None:
    queue, messages = filled(10, 15)
    assert queue.remove(messages[:1]) == 15
    assert queue.remove(messages[1:]) == 16


def test_a_message_pulled_twice_is_here_once() -> None:
    queue, messages = filled(10, 11)
    assert offsets(queue.add([message(11), message(12)])) == [12]
    assert (queue.count, queue.size_bytes) == (3, 300)
    assert offsets(queue.take(2)) == [10, 11]
    assert queue.add([message(10)]) == []
    assert queue.remove([message(99)]) == 12


def test_messages_that_come_out_of_order_are_put_in_order() -> None:
    queue, _ = filled(20, 22)
    queue.add([message(21), message(19)])
    assert queue.span == 3
    assert offsets(queue.take(9)) == [19, 20, 21, 22]
    assert queue.commit() == 23


def test_orderly_take_and_commit() -> None:
    queue, _ = filled(1, 2, 3)
    assert offsets(queue.take(2)) == [1, 2]
    assert (queue.count, queue.size_bytes, queue.span) == (3, 300, 0)
    assert queue.commit() == 3
    assert (queue.count, queue.size_bytes) == (1, 100)
    assert offsets(queue.take(2)) == [3]
    assert queue.commit() == 4
    assert queue.take(1) == []


def test_what_is_put_back_comes_first_again() -> None:
    queue, (first, second, third) = filled(1, 2, 3)
    queue.take(2)
    queue.put_back([second])
    assert queue.commit() == 2
    queue.take(2)
    queue.rollback()
    assert offsets(queue.take(5)) == [2, 3]
    queue.put_back([first, third])
    assert queue.count == 2
    assert offsets(queue.take(5)) == [3]


def test_clear_forgets_everything() -> None:
    queue, messages = filled(1, 2, 3)
    queue.take(1)
    queue.clear()
    assert (queue.count, queue.size_bytes, queue.commit(), queue.remove(messages)) == (0, 0, -1, -1)
    queue.add([message(0)])
    assert queue.remove([message(0)]) == 1


def test_a_lock_is_one_that_was_confirmed_within_30_seconds() -> None:
    clock = Clock()
    queue = ProcessQueue(clock)
    assert not queue.is_locked
    queue.lock()
    clock.now_ms += 30_000
    assert queue.is_locked
    clock.now_ms += 1
    assert not queue.is_locked and queue.is_lock_expired
    queue.lock()
    assert queue.is_locked
    queue.unlock()
    assert not queue.is_locked


def test_a_queue_without_pulls_for_two_minutes_is_abandoned() -> None:
    clock = Clock()
    queue = ProcessQueue(clock)
    clock.now_ms += 120_000
    assert not queue.is_pull_expired
    clock.now_ms += 1
    assert queue.is_pull_expired
    queue.pulled()
    assert not queue.is_pull_expired


def test_handlers_that_take_too_long_are_found_among_the_first() -> None:
    clock = Clock()
    queue, messages = filled(*range(30), clock=clock)
    assert queue.waiting_too_long(1_000) == []
    queue.start(messages[:2] + messages[20:21])
    clock.now_ms += 1_000
    assert queue.waiting_too_long(1_000) == []
    queue.start(messages[1:2])
    clock.now_ms += 1
    assert offsets(queue.waiting_too_long(1_000)) == [0]
    queue.remove(messages[:10])
    assert offsets(queue.waiting_too_long(1_000)) == [20]
    queue.remove(messages[20:21])
    assert queue.waiting_too_long(1_000) == []


def test_a_message_that_comes_again_starts_anew() -> None:
    clock = Clock()
    queue, messages = filled(1, 2, clock=clock)
    queue.start(messages)
    clock.now_ms += 5_000
    queue.remove(messages[:1])
    queue.add(messages[:1])
    assert offsets(queue.waiting_too_long(1_000)) == [2]


def test_the_description_for_running_info() -> None:
    clock = Clock()
    queue, _ = filled(5, 6, 7, 8, clock=clock)
    queue.size_bytes += 3 << 20
    queue.take(1)
    queue.lock()
    queue.try_unlock_times = 2
    queue.is_dropped = True
    clock.now_ms += 7
    queue.pulled()
    info = queue.describe(5)
    assert (info.commit_offset, info.cached_msg_min_offset, info.cached_msg_max_offset) == (5, 6, 8)
    assert (info.cached_msg_count, info.cached_msg_size_in_mib) == (3, 3)
    assert (info.transaction_msg_min_offset, info.transaction_msg_max_offset) == (5, 5)
    assert (info.transaction_msg_count, info.locked, info.try_unlock_times, info.dropped) == (
        1,
        True,
        2,
        True,
    )
    # Wall time, though they are measured by the monotonic clock.
    assert (info.last_lock_timestamp, info.last_pull_timestamp) == (6_000_000, 6_000_007)
    assert info.last_consume_timestamp == 6_000_000
    empty = ProcessQueue(clock).describe(0)
    assert (empty.cached_msg_min_offset, empty.cached_msg_max_offset, empty.locked) == (0, 0, False)
    assert empty.last_lock_timestamp == 0


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.sets(st.integers(0, 30))), max_size=30))
def test_like_a_plain_set(steps: list[tuple[str, set[int]]]) -> None:
    queue = ProcessQueue(Clock())
    model: set[int] = set()
    highest = -1
    for what, chosen in steps:
        messages = [message(each, store_size=each + 1) for each in chosen]
        if what == "add":
            assert set(offsets(queue.add(messages))) == chosen - model
            model |= chosen
            highest = max(chosen | {highest})
        else:
            was_empty = not model
            model -= chosen
            expected = -1 if was_empty else min(model, default=highest + 1)
            assert queue.remove(messages) == expected
        assert queue.count == len(model)
        assert queue.size_bytes == sum(each + 1 for each in model)
        assert queue.span == (max(model) - min(model) if model else 0)
