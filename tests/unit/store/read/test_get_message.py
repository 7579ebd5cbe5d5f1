"""Reading a queue: status words, where to go on, limits, filters, runs, and reads from disk."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.record import decode_record, decode_records
from kourou.protocol.tags import tags_code
from kourou.store.disk.files import OpenFile
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import MANY, UNIT
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus
from kourou.store.read.transfer_limits import MAX_MESSAGES, TransferLimits
from kourou.store.steps import run_steps
from tests.unit.store.message_stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_UNITS,
    StoreKit,
    body_for,
    faulty,
    put,
)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


@pytest.fixture
def bulk_store(kit: StoreKit) -> MessageStore:
    """Many messages, four of queue 0 and one of another in turn, in large files."""
    opened = kit.open(commit_log_file_bytes=1 << 20, consume_queue_file_bytes=4_096 * 20)
    for _ in range((MANY + 203) // 4 + 1):
        fill(opened, 4)
        fill(opened, 1, queue_id=1)
    return opened


def fill(store: MessageStore, count: int, *, tags: str = "", size: int = 200, queue_id: int = 0) -> None:
    for number in range(count):
        tag = tags[number % len(tags)] if tags else ""
        properties = f"TAGS\x01{tag}\x02" if tag else ""
        put(store, b"%03d" % number + body_for(size - 3), queue_id=queue_id, properties=properties)


def get(store: MessageStore, queue_offset: int, max_messages: int = 32, **rest: Any) -> GetMessageResult:
    return store.get_message("orders", 0, queue_offset, max_messages, **rest)


def numbers(result: GetMessageResult) -> list[int]:
    return [int(m.body[:3]) for buffer in result.buffers for m in decode_records(bytes(buffer))]


def answer(result: GetMessageResult) -> tuple[str, int, int, int]:
    return result.status.name, result.next_begin_offset, result.min_offset, result.max_offset


# -- status words --------------------------------------------------------------------------------


def test_no_such_queue(store: MessageStore) -> None:
    assert answer(get(store, 7)) == ("NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
    assert store.queues.find("orders", 0) is None


def test_a_queue_without_messages(store: MessageStore) -> None:
    store.queue("orders", 0)
    assert answer(get(store, 7)) == ("NO_MESSAGE_IN_QUEUE", 0, 0, 0)


def test_offsets_outside_of_the_queue(store: MessageStore) -> None:
    fill(store, 5)
    assert answer(get(store, 5)) == ("OFFSET_OVERFLOW_ONE", 5, 0, 5)
    assert answer(get(store, 6)) == ("OFFSET_OVERFLOW_BADLY", 5, 0, 5)
    assert answer(get(store, -1)) == ("OFFSET_TOO_SMALL", 0, 0, 5)


def delete_first_file(store: MessageStore) -> None:
    store.log.delete_first()
    store.queues.delete_expired(store.log.min_phy_offset)


def test_an_offset_whose_message_was_deleted(store: MessageStore) -> None:
    fill(store, 45)
    delete_first_file(store)
    assert answer(get(store, 3)) == ("OFFSET_TOO_SMALL", 20, 20, 45)
    assert numbers(get(store, 20, 3)) == [20, 21, 22]


def test_a_queue_all_of_whose_messages_were_deleted(store: MessageStore) -> None:
    fill(store, 5)
    fill(store, 40, queue_id=1)
    delete_first_file(store)
    assert answer(get(store, 3)) == ("OFFSET_TOO_SMALL", 5, 5, 5)
    assert answer(get(store, 5)) == ("OFFSET_OVERFLOW_ONE", 5, 5, 5)


def test_messages_found(store: MessageStore) -> None:
    fill(store, 5)
    result = get(store, 1, 3)
    assert answer(result) == ("FOUND", 4, 0, 5)
    assert numbers(result) == [1, 2, 3]
    assert (result.message_count, result.size_bytes, result.last_phy_offset) == (3, 600, 600)


@pytest.mark.parametrize("start", [QUEUE_FILE_UNITS, 3 * QUEUE_FILE_UNITS], ids=["inner", "last"])
def test_a_file_of_the_queue_that_is_missing_is_made_anew(
    kit: StoreKit, store: MessageStore, start: int
) -> None:
    fill(store, 3 * QUEUE_FILE_UNITS + 5)
    store.flush_derived(thorough=True)
    path = store.config.queue_folder / "orders" / "0" / f"{start * 20:020d}"
    before = path.read_bytes()
    path.unlink()
    assert numbers(get(store, start + 3, 2)) == [start + 3, start + 4]
    assert path.read_bytes() == before
    assert store.damages.rebuilt_units == min(QUEUE_FILE_UNITS, 35 - start)


def test_messages_that_are_gone_from_the_log_are_stepped_over(store: MessageStore) -> None:
    """Between the deletion of a file of the log and the correction of the queue."""
    fill(store, 45)
    store.log.delete_first()
    assert answer(get(store, 3, 5)) == ("MESSAGE_WAS_REMOVING", 8, 0, 45)
    result = get(store, 18, 5)
    assert answer(result) == ("FOUND", 23, 0, 45)
    assert numbers(result) == [20, 21, 22]


def test_blank_places_are_stepped_over(store: MessageStore) -> None:
    """They hold places of lost messages: offset 0 and a size of 2 GiB."""
    put(store, b"000")
    queue = store.queue("orders", 0)
    assert queue.put(4, store.log.max_phy_offset, 200, 0)
    queue.next_queue_offset = 5
    put(store, b"005")
    assert answer(get(store, 1, 2)) == ("MESSAGE_WAS_REMOVING", 3, 0, 6)
    assert numbers(get(store, 0, 2)) == [0]


def test_units_that_point_behind_the_log_give_nothing(store: MessageStore) -> None:
    put(store, b"000")
    store.queue("orders", 0).append(store.log.max_phy_offset, 200, 0)
    store.queue("orders", 0).append(store.log.max_phy_offset + 10_000, 200, 0)
    assert answer(get(store, 1)) == ("MESSAGE_WAS_REMOVING", 3, 0, 3)
    assert get(store, 1).is_loaded


# -- limits --------------------------------------------------------------------------------------


def test_the_number_of_messages_is_limited(store: MessageStore) -> None:
    fill(store, 8)
    assert get(store, 0, 5).message_count == 5
    assert get(store, 0, 8).next_begin_offset == 8


@pytest.mark.parametrize("max_messages", [0, -5])
def test_however_few_are_asked_for_one_is_given(store: MessageStore, max_messages: int) -> None:
    fill(store, 2)
    assert numbers(get(store, 0, max_messages)) == [0]


def test_the_bytes_are_limited_but_one_message_is_always_given(store: MessageStore) -> None:
    fill(store, 8)
    assert get(store, 0, max_bytes=599).message_count == 2
    assert get(store, 0, max_bytes=600).message_count == 3
    assert get(store, 0, max_bytes=1).message_count == 1


def test_the_stores_own_limit_cannot_be_exceeded(kit: StoreKit) -> None:
    store = kit.open(max_transfer_bytes=500)
    fill(store, 8)
    assert get(store, 0, max_bytes=10_000).message_count == 2
    assert get(store, 0).message_count == 2


def by_apaches_rule(store: MessageStore, limits: TransferLimits, asked: int, tags: str = "") -> list[int]:
    """What `getMessage` and `isTheBatchFull` of Apache's store give; the bodies' numbers."""
    given: list[int] = []
    total = 0
    queue = store.queues.find("orders", 0)
    assert queue is not None
    units = UNIT.iter_unpack(queue.read_units(0, queue.max_queue_offset))
    for number, (phy_offset, size, code) in enumerate(units):
        if store.log.max_phy_offset - phy_offset > limits.memory_bytes:
            most, most_bytes = limits.on_disk
        else:
            most, most_bytes = limits.in_memory
        if given and (len(given) + 1 > asked or total + size > most_bytes or len(given) > most - 1):
            break
        if not tags or code == tags_code(tags):
            given.append(number)
            total += size
    return given


@pytest.mark.parametrize("tags", ["", "a"])
@pytest.mark.parametrize("asked", [0, 5, 50])
@pytest.mark.parametrize(("disk_messages", "disk_bytes"), [(4, 10_000), (8, 1_000), (1, 1), (8, 1_600)])
def test_a_pull_ends_where_apaches_does(
    kit: StoreKit, disk_messages: int, disk_bytes: int, asked: int, tags: str
) -> None:
    store = kit.open(commit_log_file_bytes=1 << 20, consume_queue_file_bytes=100 * 20)
    fill(store, 40, tags="ab")
    for memory_bytes in (0, 199, 200, 201, 6_000, 6_999, 7_000, 7_001, 7_999, 8_000, 1 << 40):
        limits = TransferLimits((32, 3_000), (disk_messages, disk_bytes), memory_bytes)
        found = store.reader.get_message(
            store.queues.find("orders", 0),
            0,
            asked,
            limits=limits,
            tags_filter=(lambda code: code == tags_code(tags)) if tags else None,
        )
        assert numbers(found) == by_apaches_rule(store, limits, asked, tags), memory_bytes


def test_a_pull_ends_at_a_file_of_the_queue_and_goes_on_there(store: MessageStore) -> None:
    fill(store, 2 * QUEUE_FILE_UNITS + 5)
    store.flush_derived(thorough=True)
    assert numbers(get(store, 7)) == [7, 8, 9]
    assert numbers(get(store, 10)) == list(range(10, 20))
    assert numbers(get(store, 20)) == [20, 21, 22, 23, 24]


# -- runs ----------------------------------------------------------------------------------------


def test_neighbours_in_the_log_are_one_run(store: MessageStore) -> None:
    fill(store, 6)
    result = get(store, 1, 4)
    assert [len(buffer) for buffer in result.buffers] == [800]
    assert numbers(result) == [1, 2, 3, 4]


def test_runs_end_where_other_queues_and_files_come_between(store: MessageStore) -> None:
    for _ in range(3):
        fill(store, 2)
        fill(store, 1, queue_id=1)
    assert numbers(get(store, 0)) == [0, 1] * 3
    fill(store, 20)
    assert numbers(get(store, 6)) == list(range(20))


def together(result: GetMessageResult) -> bytes:
    return b"".join(map(bytes, result.buffers))


@pytest.mark.parametrize("max_bytes", [None, 100_000, 250, 1])
@pytest.mark.parametrize("max_messages", [MANY + 200, MANY + 50, MANY + 1])
def test_bulk_readers_get_what_others_get_piece_by_piece(
    bulk_store: MessageStore, max_messages: int, max_bytes: int | None
) -> None:
    bulk = get(bulk_store, 3, max_messages, max_bytes=max_bytes)
    pieces, at = [], 3
    while at < bulk.next_begin_offset:
        piece = get(bulk_store, at, min(32, bulk.next_begin_offset - at))
        pieces.append(together(piece))
        at = piece.next_begin_offset
    assert together(bulk) == b"".join(pieces)
    assert (bulk.status.name, bulk.message_count) == ("FOUND", bulk.next_begin_offset - 3)
    assert (bulk.size_bytes, bulk.last_phy_offset) == (len(together(bulk)), piece.last_phy_offset)
    expected = max_messages if max_bytes is None else max(1, min(max_messages, max_bytes // 200))
    assert bulk.message_count == expected


def test_bulk_readers_get_runs(bulk_store: MessageStore) -> None:
    result = get(bulk_store, 0, MANY + 200)
    assert len(result.buffers) == (MANY + 200) // 4, "four by four they lie side by side"


@pytest.mark.parametrize(
    ("past_end", "is_there"), [(-1, True), (0, True), (1, False)], ids=["before", "at", "behind"]
)
def test_bulk_readers_get_nothing_behind_the_end_of_the_log(
    bulk_store: MessageStore, past_end: int, is_there: bool
) -> None:
    queue = bulk_store.queues.get("orders", 0)
    units, size = queue.read_units(0, MANY + 100), 300
    wrong = UNIT.pack(bulk_store.log.max_phy_offset - size + past_end, size, 0)
    units = units[: 7 * UNIT.size] + wrong + units[8 * UNIT.size :]
    result = bulk_store.reader.get_message(queue, 0, MANY + 100, units=units)
    assert (result.message_count, result.next_begin_offset) == (MANY + 99 + is_there, MANY + 100)
    assert result.size_bytes == sum(map(len, result.buffers))


@pytest.mark.parametrize(("phy_offset", "is_there"), [(-1, False), (0, True), (1, True)])
def test_bulk_readers_get_nothing_in_front_of_the_log(
    bulk_store: MessageStore, phy_offset: int, is_there: bool
) -> None:
    queue = bulk_store.queues.get("orders", 0)
    units = UNIT.pack(phy_offset, 300, 0) + queue.read_units(1, MANY + 100)
    result = bulk_store.reader.get_message(queue, 0, MANY + 101, units=units)
    assert result.message_count == MANY + 100 + is_there


# -- filters -------------------------------------------------------------------------------------


def has_tag(tag: str) -> Callable[[int], bool]:
    return tags_code(tag).__eq__


def test_tags_are_filtered_by_the_queue_alone(store: MessageStore) -> None:
    fill(store, 9, tags="abc")
    result = get(store, 0, 2, tags_filter=has_tag("b"))
    assert numbers(result) == [1, 4]
    assert answer(result) == ("FOUND", 5, 0, 9)


def test_when_nothing_matches_the_reader_goes_on_behind_what_was_looked_at(kit: StoreKit) -> None:
    store = kit.open(max_filter_units=6)
    fill(store, 20, tags="a")
    assert answer(get(store, 1, 3, tags_filter=has_tag("b"))) == ("NO_MATCHED_MESSAGE", 7, 0, 20)
    for many in (12, 2**31 - 1):
        assert answer(get(store, 1, many, tags_filter=has_tag("b"))) == ("NO_MATCHED_MESSAGE", 7, 0, 20)


def test_no_more_units_are_looked_at_than_there_is_sense_in(store: MessageStore) -> None:
    reader = store.reader
    assert reader.units_wanted(32, is_filtered=False) == 32
    assert reader.units_wanted(2**31 - 1, is_filtered=False) == MAX_MESSAGES
    for senseless in (0, -5):
        assert reader.units_wanted(senseless, is_filtered=False) == 1
    assert reader.units_wanted(2**31 - 1, is_filtered=True) == store.config.max_filter_units


def test_units_that_were_read_before_are_not_read_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 5)
    queue = store.queues.find("orders", 0)
    assert queue is not None
    units = queue.read_units(1, 3)
    monkeypatch.setattr(ConsumeQueue, "read_units", None)
    assert numbers(store.reader.get_message(queue, 1, 32, units=units)) == [1, 2, 3]
    assert answer(store.reader.get_message(queue, 5, 32, units=b""))[0] == "OFFSET_OVERFLOW_ONE"


def test_records_are_filtered_by_their_bytes(store: MessageStore) -> None:
    fill(store, 9, tags="abc")

    def even(record: Any) -> bool:
        return int(decode_record(bytes(record)).body[:3]) % 2 == 0

    assert numbers(get(store, 0, record_filter=even)) == [0, 2, 4, 6, 8]
    assert numbers(get(store, 0, record_filter=even, tags_filter=has_tag("a"))) == [0, 6]


def test_a_filter_reads_records_from_disk_where_it_must(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    fill(store, 9)
    faulty(kit).chill()
    result = get(store, 0, record_filter=lambda record: bytes(record[88:91]) == b"004")
    assert numbers(result) == [4]


# -- from disk -----------------------------------------------------------------------------------


@pytest.fixture
def cold_store(kit: StoreKit) -> MessageStore:
    """A store that reads only its newest bytes through a map, and has nothing in the page cache."""
    store = kit.open(read_window_bytes=300)
    fill(store, 45)
    faulty(kit).chill()
    return store


def test_old_messages_are_left_to_a_thread_that_may_wait(cold_store: MessageStore) -> None:
    result = get(cold_store, 0, 3, wait=False)
    assert answer(result) == ("FOUND", 3, 0, 45)
    assert (result.is_loaded, result.buffers) == (False, [b""])
    result.load()
    assert result.is_loaded
    assert numbers(result) == [0, 1, 2]
    result.release()


def fill_side_by_side(store: MessageStore, count: int, queues: int = 3) -> None:
    """`count` messages in each queue, dealt out in turn: no two of a queue are neighbours in the log."""
    for number in range(count):
        for queue_id in range(queues):
            put(store, b"%03d" % number + body_for(197), queue_id=queue_id)


def test_cold_messages_between_those_of_other_queues_take_few_reads(
    kit: StoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kit.open(read_window_bytes=0)
    fill_side_by_side(store, 12)
    faulty(kit).chill()
    result = get(store, 0, wait=False)
    reads: list[int] = []
    pread = OpenFile.pread

    def spied(file: OpenFile, size_bytes: int, position: int) -> bytes:
        reads.append(size_bytes)
        return pread(file, size_bytes, position)

    monkeypatch.setattr(OpenFile, "pread", spied)
    result.load()
    result.release()
    assert numbers(result) == list(range(12))
    assert len(reads) == len(store.log.log_files), "one read for each file of the log"


@pytest.mark.parametrize(("queues", "is_dense"), [(3, True), (40, False)])
def test_what_lies_behind_is_fetched_for_one_who_reads_most_of_it(
    kit: StoreKit, monkeypatch: pytest.MonkeyPatch, queues: int, is_dense: bool
) -> None:
    store = kit.open(read_window_bytes=0)
    fill_side_by_side(store, 12, queues)
    faulty(kit).chill()
    hints: list[int] = []
    monkeypatch.setattr(OpenFile, "will_need", lambda file, size_bytes, position: hints.append(position))
    result = get(store, 0, wait=False)
    result.load()
    result.release()
    assert numbers(result) == list(range(12))
    assert bool(hints) is is_dense


def test_the_newest_messages_are_not_old(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=300)
    fill(store, 45)
    queue = store.queues.get("orders", 0)
    reader = store.reader
    assert reader.is_old(queue.read_units(0, 1)) and not reader.is_old(queue.read_units(44, 1))
    assert not reader.is_old(b""), "there is nothing to read"


def test_old_messages_in_the_page_cache_are_read_through_a_map(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    fill_side_by_side(store, 12)
    region = store.log.region_at(0)
    assert region is not None and region.end == LOG_FILE_BYTES
    result = get(store, 0, wait=False)
    assert result.is_loaded and numbers(result) == list(range(12))
    assert store.log.region_at(400) is region, "believed for a while"
    newest = store.log.region_at(store.log.max_phy_offset - 1)
    assert newest is not None and newest.end == store.log.max_phy_offset, "behind it nothing is written"


def test_a_log_that_is_cold_has_no_regions(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    fill_side_by_side(store, 12)
    faulty(kit).chill()
    assert store.log.region_at(0) is None


def test_a_file_that_is_deleted_is_let_go_of(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    fill_side_by_side(store, 20)
    assert store.log.region_at(0) is not None
    oldest = store.log.log_files[0]
    delete_first_file(store)
    assert store.log.region_at(0) is None
    assert oldest._map is None, "its blocks are freed"


def test_units_that_point_nowhere_are_passed_over(store: MessageStore) -> None:
    fill(store, 5)
    queue = store.queues.find("orders", 0)
    assert queue is not None
    for nowhere in ((0, 0, 0), (-1, 200, 0), (0, -5, 0), (store.log.max_phy_offset - 10, 200, 0)):
        units = UNIT.pack(*nowhere) + queue.read_units(1, 4)
        assert numbers(store.reader.get_message(queue, 0, 32, units=units)) == [1, 2, 3, 4]


def test_a_read_ends_before_a_unit_that_was_overwritten(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next read begins with it, after its file was rebuilt."""
    fill(store, 5)
    queue = store.queues.get("orders", 0)
    units = queue.read_units(0, 5)
    monkeypatch.setattr(ConsumeQueue, "distrust", lambda *_: True)
    result = store.reader.get_message(queue, 0, 32, units=units[: 2 * UNIT.size] + bytes(UNIT.size) + units)
    assert (numbers(result), result.next_begin_offset) == ([0, 1], 2)


def test_the_newest_messages_never_wait(cold_store: MessageStore) -> None:
    assert numbers(get(cold_store, 44, wait=False)) == [44]


def test_with_wait_the_messages_are_there_on_return(cold_store: MessageStore) -> None:
    assert numbers(get(cold_store, 18, 5)) == [18, 19, 20, 21, 22]


def test_a_file_deleted_while_it_is_read_is_read_to_the_end(cold_store: MessageStore) -> None:
    result = get(cold_store, 18, 5, wait=False)
    oldest = cold_store.log.log_files[0]
    delete_first_file(cold_store)
    assert not oldest.path.exists()
    result.load()
    assert numbers(result) == [18, 19, 20, 21, 22]
    result.release()
    run_steps(cold_store.log.close_removed_steps())
    with pytest.raises((OSError, ValueError)):
        oldest.file.length()
    assert answer(get(cold_store, 18)) == ("OFFSET_TOO_SMALL", 20, 20, 45)


def test_files_are_let_go_of_when_reading_them_fails(kit: StoreKit, cold_store: MessageStore) -> None:
    faulty(kit).fail("pread", error=errno.EIO, part_of_path="commitlog", for_ever=True)
    with pytest.raises(OSError, match="Input/output"):
        get(cold_store, 0, 3)
    faulty(kit).heal()
    oldest = cold_store.log.log_files[0]
    delete_first_file(cold_store)
    with pytest.raises((OSError, ValueError)):
        oldest.file.length()


def test_all_status_words() -> None:
    assert {status.name for status in GetMessageStatus} == {
        "FOUND",
        "NO_MATCHED_MESSAGE",
        "MESSAGE_WAS_REMOVING",
        "OFFSET_FOUND_NULL",
        "OFFSET_OVERFLOW_BADLY",
        "OFFSET_OVERFLOW_ONE",
        "OFFSET_TOO_SMALL",
        "NO_MATCHED_LOGIC_QUEUE",
        "NO_MESSAGE_IN_QUEUE",
    }


@pytest.mark.parametrize("wanted", [None, "a", "b"])
def test_the_offsets_of_what_was_found(store: MessageStore, wanted: str | None) -> None:
    fill(store, 6, tags="ab")
    codes = None if wanted is None else {tags_code(wanted)}
    result = get(store, 1, tags_filter=None if codes is None else codes.__contains__)
    records = [m for buffer in result.buffers for m in decode_records(bytes(buffer))]
    assert list(result.found_offsets()) == [record.queue_offset for record in records]
    assert list(get(store, 6).found_offsets()) == []
