"""One ConsumeQueue: growing, reading, flushing, shortening."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.errors import DamageError
from kourou.store.disk.files import Files
from kourou.store.queue.consume_queue import MAX_GAP_UNITS, ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import UNIT, CqUnit
from kourou.testing.faulty_files import FaultyFiles
from tests.unit.store.consume_queue_kit import (
    BLANK,
    FILE_BYTES,
    append,
    can_read_nowait,
    message,
    names,
    open_queues,
    queue_folder,
    read_all,
    unpack,
)


@pytest.fixture
def queues(tmp_path: Path) -> ConsumeQueues:
    return open_queues(tmp_path)


@pytest.fixture
def queue(queues: ConsumeQueues) -> ConsumeQueue:
    return queues.get("orders", 0)


def reopen(root: Path) -> ConsumeQueue:
    return open_queues(root).get("orders", 0)


# -- growing -------------------------------------------------------------------------------------


def test_a_new_queue_is_empty_and_writes_nothing(queue: ConsumeQueue, tmp_path: Path) -> None:
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.next_queue_offset) == (0, 0, 0)
    assert queue.max_phy_offset == -1
    assert queue.read_units(0, 10) == b""
    assert names(tmp_path) == []


def test_appended_units_are_read_from_memory(queue: ConsumeQueue, tmp_path: Path) -> None:
    units = append(queue, 12)
    assert read_all(queue) == units
    assert queue.max_queue_offset == 12
    assert queue.max_phy_offset == 120
    assert names(tmp_path) == []


def test_units_come_in_bulk_too(queue: ConsumeQueue) -> None:
    units = [message(number) for number in range(7)]
    queue.append_units(b"".join(UNIT.pack(*unit) for unit in units), 7, 70)
    assert read_all(queue) == units
    assert (queue.max_queue_offset, queue.max_phy_offset) == (7, 70)


def test_files_are_rocketmqs_byte_for_byte(queue: ConsumeQueue, tmp_path: Path) -> None:
    queue.append(0x0102030405060708, 0x0A0B0C0D, -2)
    append(queue, 5, first=10**17)
    queue.flush()
    folder = queue_folder(tmp_path)
    assert names(folder) == ["00000000000000000000", "00000000000000000100"]
    first = (folder / "00000000000000000000").read_bytes()
    assert first[:20] == bytes.fromhex("0102030405060708 0a0b0c0d fffffffffffffffe")
    assert len(first) == FILE_BYTES
    second = (folder / "00000000000000000100").read_bytes()
    assert len(second) == FILE_BYTES
    assert second[20:] == bytes(FILE_BYTES - 20)


def test_a_file_has_its_full_length_and_takes_little_room(tmp_path: Path) -> None:
    queues = ConsumeQueues(Files(), tmp_path / "consumequeue", 6_000_000)
    append(queues.get("orders", 0), 3)
    queues.flush_round(least_bytes=0)
    status = (queue_folder(tmp_path) / "00000000000000000000").stat()
    assert status.st_size == 6_000_000
    assert status.st_blocks * 512 <= 16_384


def test_the_file_size_is_rounded_up_to_whole_units(tmp_path: Path) -> None:
    queues = ConsumeQueues(Files(), tmp_path / "consumequeue", 6_001)
    assert queues.get("orders", 0).units_per_file == 301


# -- reading -------------------------------------------------------------------------------------


def test_flushed_units_are_read_from_the_files(queue: ConsumeQueue) -> None:
    units = append(queue, 12)
    queue.flush()
    assert queue.unflushed_bytes == 0
    assert read_all(queue) == units
    units += append(queue, 4, first=12)
    assert read_all(queue) == units


def test_a_read_stops_at_the_end_of_a_file_and_where_memory_begins(queue: ConsumeQueue) -> None:
    units = append(queue, 7)
    queue.flush()
    units += append(queue, 4, first=7)
    assert unpack(queue.read_units(3, 100)) == units[3:5]
    assert unpack(queue.read_units(5, 100)) == units[5:7]
    assert unpack(queue.read_units(7, 100)) == units[7:]
    assert unpack(queue.read_units(1, 2)) == units[1:3]


@pytest.mark.parametrize("flushed", [False, True])
def test_nothing_is_read_outside_of_the_queue(queue: ConsumeQueue, flushed: bool) -> None:
    append(queue, 8)
    if flushed:
        queue.flush()
    assert queue.read_units(-1, 5) == b""
    assert queue.read_units(8, 5) == b""
    assert queue.read_units(2, 0) == b""
    assert queue.unit(8) is None
    assert queue.unit(7) == CqUnit(*message(7))


def test_reading_without_waiting_says_when_it_would(queue: ConsumeQueue, tmp_path: Path) -> None:
    if not can_read_nowait(tmp_path):
        pytest.skip("this system does not tell what is in memory")
    units = append(queue, 3)
    assert unpack(queue.read_units_nowait(0, 10) or b"") == units
    queue.flush()
    assert queue.read_units_nowait(0, 10) is None  # its file is not open: that takes the disk
    queue.read_units(0, 1)
    assert unpack(queue.read_units_nowait(0, 10) or b"") == units
    assert queue.read_units_nowait(3, 10) == b""
    assert queue.read_units_nowait(-1, 10) == b""


def test_units_not_in_the_page_cache_are_left_to_a_read_that_may_wait(tmp_path: Path) -> None:
    files = FaultyFiles()
    queue = open_queues(tmp_path, files).get("orders", 0)
    units = append(queue, 3)
    queue.flush()
    queue.read_units(0, 1)
    files.chill()
    assert queue.read_units_nowait(0, 10) is None
    assert unpack(queue.read_units(0, 10)) == units


def test_a_missing_file_reads_as_nothing(queue: ConsumeQueue, tmp_path: Path) -> None:
    append(queue, 12)
    queue.flush()
    (queue_folder(tmp_path) / "00000000000000000100").unlink()
    assert queue.read_units(5, 10) == b""
    assert unpack(queue.read_units(10, 10)) == [message(10), message(11)]


# -- what the dispatcher finds -------------------------------------------------------------------


def test_put_takes_the_next_record(queue: ConsumeQueue) -> None:
    assert queue.put(0, 0, 10, 1)
    assert queue.put(1, 50, 10, 2)
    assert read_all(queue) == [(0, 10, 1), (50, 10, 2)]
    assert queue.next_queue_offset == 2


def test_put_passes_over_what_is_there(queue: ConsumeQueue) -> None:
    units = append(queue, 4)
    for number in range(4):
        assert not queue.put(number, *message(number))
    assert read_all(queue) == units


def test_put_does_not_pull_back_offsets_that_are_promised(queue: ConsumeQueue) -> None:
    queue.next_queue_offset = 5
    queue.put(0, *message(0))
    assert queue.next_queue_offset == 5


def test_a_queue_that_begins_inside_a_file_is_filled_up_with_blank_units(tmp_path: Path) -> None:
    queue = open_queues(tmp_path).get("orders", 0)
    assert queue.put(8, *message(8))
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.next_queue_offset) == (8, 9, 9)
    queue.flush()
    folder = queue_folder(tmp_path)
    assert names(folder) == ["00000000000000000100"]
    raw = (folder / "00000000000000000100").read_bytes()
    assert unpack(raw) == [BLANK] * 3 + [message(8), (0, 0, 0)]
    assert raw[:20] == bytes.fromhex("0000000000000000 7fffffff 0000000000000000")


def test_its_minimum_is_found_again_after_a_restart(tmp_path: Path) -> None:
    queue = open_queues(tmp_path).get("orders", 0)
    queue.put(8, *message(8))
    queue.flush()
    queue = reopen(tmp_path)
    queue.correct_min(0)
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.max_phy_offset) == (8, 9, 90)


@pytest.mark.parametrize("flushed", [False, True])
def test_places_without_a_message_are_filled_and_never_moved(queue: ConsumeQueue, flushed: bool) -> None:
    append(queue, 3)
    if flushed:
        queue.flush()
    assert queue.put(9, *message(9))
    assert read_all(queue) == [message(0), message(1), message(2), *[BLANK] * 6, message(9)]
    assert queue.unit(9) == CqUnit(*message(9))
    assert (queue.max_queue_offset, queue.max_phy_offset) == (10, 100)


def test_a_wide_gap_does_not_stay_in_memory(tmp_path: Path) -> None:
    queue = ConsumeQueues(Files(), tmp_path / "consumequeue", 2_000_000).get("orders", 0)
    append(queue, 1)
    assert queue.put(150_000, *message(150_000))
    assert queue.unflushed_bytes < 2_000_000
    assert queue.unit(149_999) == CqUnit(*BLANK)
    assert queue.unit(150_000) == CqUnit(*message(150_000))


def test_an_offset_that_cannot_be_right_is_refused(queue: ConsumeQueue) -> None:
    append(queue, 1)
    for queue_offset in (MAX_GAP_UNITS + 2, 1 << 62, -7):
        with pytest.raises(DamageError, match=f"queue_offset {queue_offset}"):
            queue.put(queue_offset, *message(5))
    assert queue.max_queue_offset == 1


def test_an_empty_queue_refuses_offsets_beyond_all_files(queue: ConsumeQueue) -> None:
    for queue_offset in (-1, (1 << 63) // 20):
        with pytest.raises(DamageError):
            queue.put(queue_offset, *message(5))
    assert queue.max_queue_offset == 0


def test_a_place_that_is_taken_is_not_overwritten(
    queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    units = append(queue, 5)
    assert not queue.put(2, *message(77))
    assert read_all(queue) == units
    assert "orders/0 has the place of the record at 770 taken: queue_offset 2" in caplog.text


@pytest.mark.parametrize("flushed", [False, True])
def test_a_topic_made_anew_starts_its_queue_over(queue: ConsumeQueue, tmp_path: Path, flushed: bool) -> None:
    append(queue, 7)
    if flushed:
        queue.flush()
    assert queue.put(0, *message(50))
    assert queue.put(1, *message(51))
    queue.flush()
    assert read_all(queue) == [message(50), message(51)]
    assert names(queue_folder(tmp_path)) == ["00000000000000000000"]
    assert read_all(reopen(tmp_path)) == [message(50), message(51)]


def test_all_gone_then_a_gap_begins_at_the_new_message(queue: ConsumeQueue) -> None:
    append(queue, 3)
    queue.correct_min(1000)
    assert queue.min_queue_offset == 3
    assert queue.put(6, *message(200))
    assert queue.min_queue_offset == 6
    queue.correct_min(1500)
    assert queue.min_queue_offset == 6


# -- flushing ------------------------------------------------------------------------------------


def test_units_appended_while_a_flush_is_under_way_stay(queue: ConsumeQueue) -> None:
    units = append(queue, 4)
    epoch, queue_offset, raw = queue.unflushed()
    units += append(queue, 3, first=4)
    queue.write_units(epoch, queue_offset, raw)
    assert read_all(queue) == units
    queue.mark_flushed(epoch, 4)
    assert (queue.flushed_queue_offset, queue.unflushed_bytes) == (4, 60)
    assert read_all(queue) == units


def test_a_flush_under_way_does_not_bring_back_what_was_cut(queue: ConsumeQueue, tmp_path: Path) -> None:
    append(queue, 2)
    queue.flush()
    append(queue, 4, first=2)
    epoch, queue_offset, raw = queue.unflushed()
    queue.truncate(30)
    queue.write_units(epoch, queue_offset, raw)
    queue.mark_flushed(epoch, 6)
    assert read_all(queue) == [message(0), message(1), message(2)]
    queue.flush()
    assert read_all(reopen(tmp_path)) == [message(0), message(1), message(2)]


def test_a_flush_under_way_does_not_bring_back_a_deleted_queue(queue: ConsumeQueue, tmp_path: Path) -> None:
    append(queue, 4)
    jobs = queue.unflushed()
    queue.destroy()
    queue.write_units(*jobs)
    append(queue, 1)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["create", "set_length", "pwrite", "make_folder"])
def test_a_failed_flush_loses_no_unit_and_leaves_no_short_file(tmp_path: Path, kind: str) -> None:
    files = FaultyFiles()
    queue = open_queues(tmp_path, files).get("orders", 0)
    units = append(queue, 12)
    files.fail(kind, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        queue.flush()
    assert read_all(queue) == units
    assert all(path.stat().st_size == FILE_BYTES for path in queue_folder(tmp_path).glob("*"))
    queue.flush()
    assert read_all(queue) == units
    assert read_all(reopen(tmp_path)) == units


# -- shortening ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [0, 4, 7, 12])
@pytest.mark.parametrize("kept", range(13))
def test_truncate_drops_what_the_log_no_longer_has(tmp_path: Path, flushed: int, kept: int) -> None:
    queue = open_queues(tmp_path).get("orders", 0)
    append(queue, flushed)
    queue.flush()
    append(queue, 12 - flushed, first=flushed)
    assert not queue.truncate(kept * 10)
    units = [message(number) for number in range(kept)]
    assert read_all(queue) == units
    assert (queue.max_queue_offset, queue.next_queue_offset) == (kept, kept)
    assert queue.max_phy_offset == (kept * 10 or -1)
    queue.flush()
    assert read_all(reopen(tmp_path)) == units
    append(queue, 2, first=kept)
    queue.flush()
    assert read_all(reopen(tmp_path)) == [message(number) for number in range(kept + 2)]


def test_truncated_units_are_zeros_on_disk(queue: ConsumeQueue, tmp_path: Path) -> None:
    append(queue, 14)
    queue.flush()
    queue.truncate(70)
    folder = queue_folder(tmp_path)
    assert names(folder) == ["00000000000000000000", "00000000000000000100"]
    assert (folder / "00000000000000000100").read_bytes()[40:] == bytes(60)


def test_truncate_in_a_gap_drops_the_blank_units_with_it(queue: ConsumeQueue) -> None:
    append(queue, 2)
    queue.put(6, *message(6))
    queue.truncate(60)
    assert read_all(queue) == [message(0), message(1)]
    assert (queue.max_queue_offset, queue.max_phy_offset) == (2, 20)


def test_truncate_reports_a_unit_that_was_wrong(queue: ConsumeQueue) -> None:
    append(queue, 2)
    queue.append(20, 4_000, 0)  # the log ends at 30, so this record cannot be that long
    assert queue.truncate(30)
    assert (queue.max_queue_offset, queue.max_phy_offset) == (2, 20)


def test_a_queue_cut_to_nothing_keeps_counting(queue: ConsumeQueue, tmp_path: Path) -> None:
    queue.put(8, *message(8))
    queue.flush()
    queue.truncate(50)
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.next_queue_offset) == (8, 8, 8)
    assert names(queue_folder(tmp_path)) == []
    queue.append(50, 10, 0)
    assert read_all(queue) == [(50, 10, 0)]


@pytest.mark.parametrize("flushed", [0, 7, 12])
@pytest.mark.parametrize("first", range(13))
def test_the_minimum_follows_the_log(queue: ConsumeQueue, flushed: int, first: int) -> None:
    append(queue, flushed)
    queue.flush()
    append(queue, 12 - flushed, first=flushed)
    queue.correct_min(first * 10)
    assert queue.min_queue_offset == first
    assert read_all(queue) == [message(number) for number in range(first, 12)]
    assert queue.read_units(first - 1, 1) == b""


def test_the_minimum_is_the_next_message_when_the_log_begins_between_two(queue: ConsumeQueue) -> None:
    for number in (0, 100, 200, 300):
        queue.append(*message(number))
    queue.correct_min(1010)
    assert queue.min_queue_offset == 2


def test_files_below_the_minimum_go_but_never_the_last(queue: ConsumeQueue, tmp_path: Path) -> None:
    append(queue, 17)
    queue.flush()
    folder = queue_folder(tmp_path)
    assert queue.delete_expired(90) == 1
    assert names(folder)[0] == "00000000000000000100"
    assert queue.delete_expired(10_000) == 2
    assert names(folder) == ["00000000000000000300"]
    assert (queue.min_queue_offset, queue.max_queue_offset) == (17, 17)
    assert queue.delete_expired(20_000) == 0
    append(queue, 2, first=2000)
    queue.flush()
    assert read_all(queue) == [message(2000), message(2001)]
    reopened = reopen(tmp_path)
    reopened.correct_min(20_000)
    assert (reopened.min_queue_offset, reopened.max_queue_offset) == (17, 19)


def test_the_last_file_stays_even_when_it_is_full(queue: ConsumeQueue, tmp_path: Path) -> None:
    append(queue, 10)
    queue.flush()
    assert queue.delete_expired(10_000) == 1
    assert names(queue_folder(tmp_path)) == ["00000000000000000100"]
    assert reopen(tmp_path).max_queue_offset == 10


def test_a_unit_that_was_never_written_counts_as_the_next_written_one(queue: ConsumeQueue) -> None:
    append(queue, 4)
    queue.put(40, *message(40))
    append(queue, 3, first=41)

    def at_least(phy_offset: int) -> int:
        return queue.first_where(lambda unit: unit.phy_offset >= phy_offset)

    assert [at_least(phy) for phy in (0, 15, 30, 31, 400, 410, 430, 431)] == [0, 2, 3, 40, 40, 41, 43, 44]
