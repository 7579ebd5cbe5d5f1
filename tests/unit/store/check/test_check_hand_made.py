"""The check on stores that are sound and odd, or wrong in ways that bit flips do not make."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.message_id import encode_host
from kourou.protocol.record import append_property_crc
from kourou.store.check.check import CheckOptions, CheckReport, check_store
from kourou.store.check.invariants import Invariant
from kourou.store.disk.files import Files
from kourou.store.queue.cq_unit import BLANK_SIZE
from kourou.testing.store_check import assert_store_ok
from tests.unit.store.broken_stores import check, named
from tests.unit.store.hand_made_store import HandMadeStore


@pytest.fixture
def store(tmp_path: Path) -> HandMadeStore:
    return HandMadeStore(tmp_path / "store")


def notes(report: CheckReport) -> list[str]:
    """The notes, without those that every hand-made store gets."""
    usual = ("there is none: the next start", "there is no index")
    return [found.text(report.root) for found in report.notes if not found.what.startswith(usual)]


def test_a_store_without_anything_is_sound(store: HandMadeStore) -> None:
    report = check(store.write())
    assert report.ok and report.counts.records == 0 and not report.notes


def test_records_over_several_files_and_queues_are_sound(store: HandMadeStore) -> None:
    for number in range(100):
        store.append("orders", number % 3, number // 3, properties={"TAGS": f"t{number % 2}", "KEYS": "a b"})
    report = check(store.write())
    assert report.ok and report.counts.units == 100 and report.counts.log_files == 3
    assert [found.what for found in report.notes] == [
        "there is no index: messages cannot be found by key",
        "there is none: the next start reads the whole log",
    ]


def test_ipv6_hosts_and_long_topics_are_read(store: HandMadeStore) -> None:
    topic = "%RETRY%" + "g" * 200  # a V2 record
    for number in range(5):
        store.append(topic, 0, number, born_host=encode_host("2001:db8::1", 5))
        store.append("orders", 0, number, born_host=encode_host("2001:db8::1", 5), properties={"TAGS": "é😀"})
    assert assert_store_ok(store.write()).counts.units == 10


def test_prepared_and_rolled_back_records_need_no_unit(store: HandMadeStore) -> None:
    for sys_flag in (0x4, 0xC):
        store.append("orders", 0, 0, sys_flag=sys_flag, with_unit=False)
    store.append("orders", 0, 0, sys_flag=0x8)
    assert assert_store_ok(store.write()).counts.units == 1


def test_a_queue_that_starts_over_needs_no_units_for_its_earlier_life(store: HandMadeStore) -> None:
    for queue_offset in range(5):
        store.append("orders", 0, queue_offset, with_unit=False)
    for queue_offset in range(3):
        store.append("orders", 0, queue_offset)
    root = store.write()
    report = assert_store_ok(root)
    assert notes(report) == [
        "consumequeue/orders/0: 5 records in the log are from before this topic was deleted and created again"
    ]


def test_a_queue_that_starts_over_and_kept_its_old_units_is_wrong(store: HandMadeStore) -> None:
    for queue_offset in range(5):
        store.append("orders", 0, queue_offset)
    store.append("orders", 0, 0, with_unit=False)
    assert (Invariant.QUEUE_UNIT, "consumequeue/orders/0/00000000000000000000", 0) in named(
        check(store.write())
    )


def test_a_queue_offset_that_is_used_twice_is_named(store: HandMadeStore) -> None:
    for queue_offset in (0, 1, 2):
        store.append("orders", 0, queue_offset)
    store.append("orders", 0, 1, with_unit=False)
    store.append("orders", 0, 3)
    assert named(check(store.write())) == [
        (Invariant.QUEUE_OFFSET_ONCE, "consumequeue/orders/0/00000000000000000000", 20)
    ]


def test_blank_units_in_front_and_between_are_recognised(store: HandMadeStore) -> None:
    for queue_offset in (10, 11):
        store.unit("orders", 0, queue_offset, 0, BLANK_SIZE)
    store.append("orders", 0, 12)
    for queue_offset in (13, 14):
        store.unit("orders", 0, queue_offset, 0, BLANK_SIZE)
    store.append("orders", 0, 15)
    report = assert_store_ok(store.write())
    assert notes(report) == ["consumequeue: blank units, which hold the place of lost messages: 4"]


def test_units_of_records_before_the_first_file_are_right_if_they_ascend(store: HandMadeStore) -> None:
    store.first_phy_offset = 3 * store.log_file_bytes
    store.unit("orders", 0, 0, 100, 120)
    store.unit("orders", 0, 1, 700, 120)
    store.append("orders", 0, 2)
    store.unit("gone", 0, 0, 300, 120)
    assert assert_store_ok(store.write()).counts.units == 4


def test_units_of_records_before_the_first_file_out_of_order_are_named(store: HandMadeStore) -> None:
    store.first_phy_offset = 3 * store.log_file_bytes
    store.unit("orders", 0, 0, 700, 120)
    store.unit("orders", 0, 1, 100, 120)
    store.append("orders", 0, 2)
    assert named(check(store.write())) == [
        (Invariant.QUEUE_ORDER, "consumequeue/orders/0/00000000000000000000", 20)
    ]


def test_a_queue_without_records_that_points_into_the_log_is_named(store: HandMadeStore) -> None:
    store.append("orders", 0, 0)
    store.unit("ghost", 0, 0, 5, 120)
    report = check(store.write())
    assert named(report) == [(Invariant.QUEUE_UNIT, "consumequeue/ghost/0/00000000000000000000", 0)]
    assert report.violations[0].what == "unit 0 points at 5; no record is there"


def test_a_record_for_two_light_queues_has_a_unit_in_each(store: HandMadeStore) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,7", "TAGS": "x"}
    phy_offset = store.append("orders", 2, 0, properties=properties)
    size = len(store.log)
    store.unit("%LMQ%a", 0, 0, phy_offset, size, 120)  # Java's hash of "x"
    store.unit("%LMQ%b", 0, 7, phy_offset, size, 120)
    for queue_offset in range(7):
        store.unit("%LMQ%b", 0, queue_offset, 0, BLANK_SIZE)
    assert assert_store_ok(store.write()).counts.units == 3


def test_addresses_in_the_extension_stand_for_tags_codes_only_where_there_is_one(
    store: HandMadeStore,
) -> None:
    phy_offset = store.append("orders", 0, 0, properties={"TAGS": "x"})
    store.unit("orders", 0, 0, phy_offset, len(store.log), -(1 << 63) + 40)
    root = store.write()
    assert named(check(root)) == [(Invariant.QUEUE_UNIT, "consumequeue/orders/0/00000000000000000000", 0)]
    extension = root / "consumequeue_ext/orders/0"
    extension.mkdir(parents=True)
    (extension / "00000000000000000000").write_bytes(bytes(100))
    assert notes(assert_store_ok(root)) == [
        "consumequeue: units that lead to consumequeue_ext, not looked at: 1"
    ]


def test_delays_are_computed_with_the_levels_given(store: HandMadeStore) -> None:
    timestamp = 1_700_000_000_000
    properties = {"DELAY": "2"}
    phy_offset = store.append("SCHEDULE_TOPIC_XXXX", 1, 0, properties=properties, timestamp=timestamp)
    store.unit("SCHEDULE_TOPIC_XXXX", 1, 0, phy_offset, len(store.log), timestamp + 60_000)
    root = store.write()
    (found,) = check(root).violations
    assert "messageDelayLevel" in found.what
    assert check_store(Files(), root, options=CheckOptions(delay_levels=(1_000, 60_000))).ok


def test_a_deleted_topic_is_a_note(store: HandMadeStore) -> None:
    store.append("orders", 0, 0)
    store.append("gone", 0, 0, with_unit=False)
    root = store.write()
    text = "consumequeue/gone: 1 record of this topic in the log, no queue: it was deleted"
    assert notes(check(root)) == [text]


def test_a_store_that_lost_all_its_queues_is_wrong_unless_the_topics_were_deleted(
    store: HandMadeStore,
) -> None:
    store.append("orders", 0, 0, with_unit=False)
    root = store.write()
    with pytest.raises(AssertionError, match="no unit for 1 record, the first at 0 with queue_offset 0"):
        assert_store_ok(root)
    assert_store_ok(root, deleted_topics=["orders"])


def test_a_topic_in_the_configuration_must_have_its_queue(store: HandMadeStore) -> None:
    store.append("orders", 0, 0)
    store.append("gone", 0, 0, with_unit=False)
    root = store.write()
    (root / "config").mkdir()
    (root / "config/topics.json").write_text('{"topicConfigTable":{"gone":{"topicName":"gone"}}}')
    assert named(check(root)) == [(Invariant.QUEUE_COMPLETE, "consumequeue/gone/0/00000000000000000000", 0)]


def test_a_clock_that_goes_back_is_a_note(store: HandMadeStore) -> None:
    store.append("orders", 0, 0, timestamp=2_000)
    later = store.append("orders", 0, 1, timestamp=1_000)
    report = assert_store_ok(store.write())
    assert notes(report) == [
        f"commitlog/00000000000000000000: byte {later}: store timestamps go back 1 time, here first: "
        "the clock was set back"
    ]


def test_a_record_is_held_to_the_crc_in_its_properties(store: HandMadeStore) -> None:
    store.append("orders", 0, 0)
    sealed = append_property_crc(bytes(store.log))
    for raw, is_right in ((sealed, True), (sealed[:16] + b"\0\0\0\1" + sealed[20:], False)):  # its flag
        store.log = bytearray(raw)
        store.unit("orders", 0, 0, 0, len(raw))
        expected = [] if is_right else [(Invariant.LOG_RECORD, "commitlog/00000000000000000000", 0)]
        assert named(check(store.write())) == expected


def test_queues_of_batches_are_left_out(store: HandMadeStore) -> None:
    store.append("orders", 0, 0)
    store.append("batches", 0, 0, sys_flag=0x80, with_unit=False)
    store.append("batches", 0, 1, with_unit=False)
    root = store.write()
    (root / "batchconsumequeue/batches/0").mkdir(parents=True)
    assert notes(assert_store_ok(root)) == ["batchconsumequeue/batches: queues of batches are not looked at"]


def test_files_in_quarantine_are_a_note(store: HandMadeStore) -> None:
    store.append("orders", 0, 0)
    root = store.write()
    (root / "quarantine").mkdir()
    (root / "quarantine/x").write_bytes(b"")
    (root / "quarantine/damages.json").write_bytes(b"{}")
    assert sorted(notes(assert_store_ok(root))) == [
        "quarantine/damages.json: damage that the broker has found in this store",
        "quarantine/x: what a recovery cut off the log",
    ]


def test_a_record_larger_than_a_piece_is_read_whole(store: HandMadeStore) -> None:
    store.log_file_bytes = 1 << 24
    for queue_offset, size in enumerate((10, 5 << 20, 10)):
        store.append("orders", 0, queue_offset, body=bytes(size))
    assert assert_store_ok(store.write()).counts.units == 3


def test_windows_of_records_are_compared_one_after_the_other(
    store: HandMadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.store.check.check_window.MAX_RECORDS", 1)
    monkeypatch.setattr("kourou.store.check.check_log._PIECE_BYTES", 500)
    for number in range(60):
        store.append("orders", number % 3, number // 3)
    root = store.write()
    assert assert_store_ok(root).counts.units == 60
    path = root / "consumequeue/orders/1/00000000000000000200"
    path.write_bytes(path.read_bytes()[:40] + b"\x01" + path.read_bytes()[41:])
    assert named(check(root)) == [(Invariant.QUEUE_UNIT, "consumequeue/orders/1/00000000000000000200", 40)]


def test_floods_are_counted(store: HandMadeStore) -> None:
    store.queue_file_bytes = 20 * 100
    for queue_offset in range(100):
        phy_offset = store.append("orders", 0, queue_offset)
        store.unit("orders", 0, queue_offset, phy_offset + 1, 5)
    report = check(store.write())
    assert len(report.violations) == 21
    assert "80 more wrong units" in {found.what for found in report.violations}
