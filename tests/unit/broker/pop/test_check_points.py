"""CheckPointTable: single rules. All of it against a plain model: tests/property/test_check_points.py."""

from __future__ import annotations

import tracemalloc

from kourou.broker.pop.check_points import CheckPoint, CheckPointTable
from kourou.protocol.names import REVIVE_LOG_TOPIC_PREFIX
from kourou.protocol.pop.revive_records import CheckPointBody, CheckPointKey

BROKER = "broker-a"


def body(start_offset: int = 10, count: int = 3, **changes: object) -> CheckPointBody:
    fields: dict[str, object] = {
        "topic": "T",
        "group": "G",
        "queue_id": 0,
        "start_offset": start_offset,
        "pop_time": 1_000,
        "invisible_time": 60_000,
        "count": count,
        "offset_differences": list(range(count)),
        "broker_name": BROKER,
    }
    return CheckPointBody(**{**fields, **changes})  # type: ignore[arg-type]


def add(
    table: CheckPointTable, record: CheckPointBody, *, phy_offset: int = 0, due_ms: int = 0
) -> CheckPoint:
    added = table.add(record, revive_queue_id=0, due_ms=due_ms, phy_offset=phy_offset)
    assert added is not None
    return added


def test_messages_that_do_not_follow_each_other_are_acked_by_their_offsets() -> None:
    table = CheckPointTable(BROKER)
    found = add(table, body(offset_differences=[0, 4, 7]))
    assert found.bits_of([10, 17]) == 0b101
    assert found.bits_of([11, 12, 9, 18]) == 0
    assert found.offsets_of(0b110) == [14, 17]


def test_an_offset_far_outside_has_no_bit() -> None:
    found = add(CheckPointTable(BROKER), body())
    assert found.bits_of([2**62, -(2**62), 13, 9]) == 0


def test_a_check_point_of_an_early_version_without_offsets_has_those_that_follow() -> None:
    found = add(CheckPointTable(BROKER), body(offset_differences=None))
    assert found.offsets_of(found.unacked) == [10, 11, 12]


def test_a_record_without_a_broker_is_found_by_the_name_of_this_one() -> None:
    table = CheckPointTable(BROKER)
    found = add(table, body(broker_name=None))
    assert table.find(CheckPointKey("T", "G", 0, 10, 1_000, BROKER)) is found
    assert table.find(CheckPointKey("T", "G", 0, 10, 1_000, "")) is found
    assert table.find(CheckPointKey("T", "G", 0, 10, 1_000, "broker-b")) is None


def test_the_bits_that_apache_has_stored_count_as_acked() -> None:
    table = CheckPointTable(BROKER)
    assert add(table, body(bit_map=0b101)).unacked == 0b010
    assert table.count("T", "G") == 1
    assert table.add(body(20, bit_map=-1), revive_queue_id=0, due_ms=0, phy_offset=1) is None


def test_a_check_point_that_is_open_is_not_added_twice() -> None:
    table = CheckPointTable(BROKER)
    add(table, body())
    assert table.add(body(), revive_queue_id=0, due_ms=0, phy_offset=7) is None
    assert len(table) == 1


def test_all_records_of_a_finished_check_point_that_wait_on_the_wheel_are_settled() -> None:
    table = CheckPointTable(BROKER)
    found = add(table, body(), phy_offset=100)
    table.finish(found, 0b011, 200)
    assert not table.is_settled(100)
    table.finish(found, 0b100, 300)
    assert [offset for offset in (100, 200, 300, 400) if table.is_settled(offset)] == [100, 200, 300]
    table.forget_settled([100, 200, 300])
    assert table.settled_count == 0


def test_the_acks_of_a_check_point_in_the_revive_queue_follow_it_there() -> None:
    table = CheckPointTable(BROKER)
    found = add(table, body(), phy_offset=100)
    table.finish(found, 0b001, 200)
    table.place(found, 5)
    table.finish(found, 0b110, 300)
    assert table.settled_count == 0


def test_the_acks_of_a_check_point_that_is_being_delivered_follow_it_too() -> None:
    table = CheckPointTable(BROKER)
    found = add(table, body(), phy_offset=1)
    table.finish(found, 0b011, ack_phy_offset=2)
    table.delivering(1, f"{REVIVE_LOG_TOPIC_PREFIX}C", "ck")
    table.delivering(2, f"{REVIVE_LOG_TOPIC_PREFIX}C", "ack")
    table.finish(found, 0b100, ack_phy_offset=3)
    assert [table.is_settled(phy_offset) for phy_offset in (1, 2, 3)] == [True, False, False]
    # Otherwise a kill before the progress of the queue is on disk finds it there without them.
    other = add(table, body(20), phy_offset=4)
    table.delivering(4, "TopicOfAUser", "ck")
    table.finish(other, 0b111, ack_phy_offset=5)
    assert table.is_settled(5)


def test_an_ack_that_is_stored_behind_the_last_one_is_settled_too() -> None:
    table = CheckPointTable(BROKER)
    found = add(table, body(), phy_offset=100)
    table.finish(found, 0b111)
    assert table.finish(found, 0b001, 300) == 0
    assert table.is_settled(300)


def test_a_record_that_went_to_the_revive_queue_at_once_is_not_taken_for_a_new_one() -> None:
    table = CheckPointTable(BROKER)
    found = table.add(body(), revive_queue_id=0, due_ms=0, phy_offset=100, is_waiting=False)
    assert found is not None
    table.finish(found, 0b111, 200)
    assert not table.is_settled(200), "a restart reads the check point in the queue, and needs the ack"
    assert table.is_settled(100)


def test_progress_is_below_the_oldest_open_check_point_of_the_queue() -> None:
    table = CheckPointTable(BROKER)
    first, second = add(table, body(10)), add(table, body(20))
    assert table.progress(0) == -1
    table.place(first, 4)
    table.place(second, 6)
    table.read(0, 8)
    assert table.progress(0) == 3
    table.finish(second, second.full)
    assert table.progress(0) == 3
    table.finish(first, first.full)
    assert table.progress(0) == 8


def test_due_check_points_come_once_and_in_order() -> None:
    table = CheckPointTable(BROKER)
    late, early, acked = (
        add(table, body(start, 1), due_ms=due_ms) for start, due_ms in ((1, 900), (2, 150), (3, 160))
    )
    table.finish(acked, 1)
    assert table.next_due_ms == 200
    assert table.take_due(199, 10) == []
    assert table.take_due(1_000, 1) == [early]
    assert table.take_due(1_000, 10) == [late]
    assert table.take_due(1_000_000, 10) == []
    table.postpone(early, 2_000)
    assert table.next_due_ms == 2_100
    assert table.take_due(2_100, 10) == [early]


def test_one_that_is_acked_while_it_is_overdue_is_not_given() -> None:
    table = CheckPointTable(BROKER)
    found = [add(table, body(start, 1), due_ms=5) for start in range(4)]
    assert table.take_due(100, 1) == found[:1]
    table.finish(found[1], 1)
    assert table.next_due_ms == 5
    assert table.take_due(100, 2) == found[2:]
    assert table.next_due_ms is None


def test_a_finished_check_point_leaves_nothing_behind_but_its_settled_records() -> None:
    table = CheckPointTable(BROKER)
    found = [add(table, body(start, 1), due_ms=start * 1_000, phy_offset=start) for start in range(100)]
    for check_point in found:
        table.finish(check_point, 1)
        table.forget_settled([check_point.phy_offset])
    assert (len(table), table.message_count, table.settled_count, table.next_due_ms) == (0, 0, 0, None)
    assert list(table.counts()) == []


def test_a_million_messages_that_were_popped_singly_take_less_than_half_a_kilobyte_each() -> None:
    table = CheckPointTable(BROKER)
    records = [body(start, 1, pop_time=1_700_000_000_000 + start // 8) for start in range(20_000)]
    tracemalloc.start()
    for number, record in enumerate(records):
        add(table, record, phy_offset=1 << 40 | number, due_ms=10**9 + number // 8)
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size_bytes / len(records) < 512


def test_acks_of_a_check_point_that_is_on_the_wheel_have_to_be_entered_too() -> None:
    """Else a restart would find it there without them, and deliver acknowledged messages again."""
    table = CheckPointTable(BROKER)
    first, second = add(table, body(10), phy_offset=100), add(table, body(20), phy_offset=200)
    table.entering(100)
    table.finish(first, first.full, 300)
    table.finish(first, 0b1, 350)
    table.finish(second, second.full, 400)
    table.finish(second, 0b1, 450)
    settled = (100, 200, 300, 350, 400, 450)
    assert all(map(table.is_settled, settled))
    assert [each for each in settled if not table.is_needless(each)] == [300, 350]
