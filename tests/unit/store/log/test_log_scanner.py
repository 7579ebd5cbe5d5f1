"""LogScanner: walking records over files, what it calls bad, and finding the next good one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.protocol.record import encode_blank
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS
from kourou.store.log.dispatch_request import Blank, DispatchRequest
from kourou.store.log.log_scanner import BadRecord, LogScanner
from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import LOG_FILE_BYTES, StoreKit, body_for, put


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


def scanner(store: MessageStore, **options: int) -> LogScanner:
    limits = {"max_record_bytes": 1 << 20, **options}
    return LogScanner(store.log, DEFAULT_DELAY_LEVELS, **limits)


def damage(store: MessageStore, phy_offset: int, data: bytes) -> None:
    log_file = store.log.file_at(phy_offset)
    assert log_file is not None
    log_file.file.pwrite(data, phy_offset - log_file.start_phy_offset)


def starts(store: MessageStore, phy_offset: int = 0, end: int | None = None, **options: int) -> list[int]:
    found = scanner(store, **options).records(phy_offset, store.log.max_phy_offset if end is None else end)
    return [record.phy_offset for record in found]


def test_records_come_in_order_over_blanks_and_files(store: MessageStore) -> None:
    places = [put(store, body_for(size)).phy_offset for size in (1000, 2000, 1500, 2588, 100)]
    assert places == [0, 1000, 4096, 5596, 8192]
    assert starts(store) == places
    assert starts(store, 4096) == places[2:]
    assert starts(store, 0, 3000) == places[:2]
    assert starts(store, 8292) == []


def test_a_bad_record_is_the_last(store: MessageStore) -> None:
    for _ in range(3):
        put(store, body_for(200))
    damage(store, 200 + 90, b"\xff\xff")
    *good, bad = scanner(store).records(0, store.log.max_phy_offset)
    assert [record.phy_offset for record in good] == [0]
    assert isinstance(bad, BadRecord)
    assert (bad.phy_offset, "CRC" in bad.reason) == (200, True)


def test_the_zeros_behind_the_last_record_are_bad(store: MessageStore) -> None:
    put(store, body_for(200))
    *_, bad = scanner(store).records(0, LOG_FILE_BYTES)
    assert bad == BadRecord(200, "magic 0x00000000 is not that of a record")


def test_a_blank_has_to_reach_the_end_of_its_file(store: MessageStore) -> None:
    put(store, body_for(200))
    damage(store, 200, encode_blank(LOG_FILE_BYTES - 200))
    assert scanner(store).record_at(200) == Blank(LOG_FILE_BYTES - 200)
    damage(store, 200, encode_blank(1000))
    found = scanner(store).record_at(200)
    assert isinstance(found, BadRecord)
    assert "a blank of 1000 bytes does not reach the file's end" in found.reason
    damage(store, 0, encode_blank(LOG_FILE_BYTES))
    assert isinstance(scanner(store).record_at(0), BadRecord)


def test_a_record_that_would_leave_its_file_is_bad(store: MessageStore) -> None:
    put(store, body_for(4000))
    damage(store, 0, (LOG_FILE_BYTES + 1).to_bytes(4, "big"))
    found = scanner(store).record_at(0)
    assert isinstance(found, BadRecord)
    assert "4096 bytes are left in the file, 4097 are wanted" in found.reason


def test_a_place_without_a_file_is_bad(store: MessageStore) -> None:
    assert scanner(store).record_at(10_000) == BadRecord(10_000, "the log has no such file")


def test_records_over_the_limit_are_bad(store: MessageStore) -> None:
    put(store, body_for(2000))
    assert isinstance(scanner(store, max_record_bytes=2000).record_at(0), DispatchRequest)
    store.log.log_files[0].file.pwrite((0x7000_0000).to_bytes(4, "big"), 0)
    assert isinstance(scanner(store, max_record_bytes=2000).record_at(0), BadRecord)


@pytest.mark.parametrize("piece_bytes", [16, 64, 150, 4096])
def test_the_size_of_the_pieces_does_not_matter(store: MessageStore, piece_bytes: int) -> None:
    places = [put(store, body_for(size)).phy_offset for size in (150, 300, 1000, 2000, 3000, 200)]
    assert starts(store, piece_bytes=piece_bytes) == places
    for start, place in zip(places, places[1:], strict=False):
        find = scanner(store, piece_bytes=piece_bytes).next_record
        assert find(start + 1, store.log.max_phy_offset) == place


# -- finding the next record ---------------------------------------------------------------------


def test_the_next_record_is_found_behind_damage_and_in_the_next_file(store: MessageStore) -> None:
    for _ in range(25):
        put(store, body_for(200))
    end = store.log.max_phy_offset
    find = scanner(store).next_record
    assert find(0, end) == 0
    assert find(1, end) == 200
    assert find(3801, end) == LOG_FILE_BYTES
    damage(store, LOG_FILE_BYTES, bytes(8))
    assert scanner(store).next_record(3801, end) == LOG_FILE_BYTES + 200
    assert find(end, end) is None
    assert find(end - 100, end + 3000) is None


def test_a_magic_in_a_body_is_no_record(store: MessageStore) -> None:
    put(store, b"\xda\xa3\x20\xa7" * 50)
    second = put(store, b"real").phy_offset
    assert scanner(store).next_record(1, store.log.max_phy_offset) == second


def test_an_older_record_is_not_taken_for_the_next(store: MessageStore) -> None:
    put(store, body_for(200))
    put(store, body_for(200))
    assert scanner(store).next_record(203, store.log.max_phy_offset) is None


# -- a quick look --------------------------------------------------------------------------------


def test_is_record_looks_at_the_first_fields(store: MessageStore) -> None:
    put(store, body_for(200))
    put(store, body_for(300))
    look = scanner(store).is_record
    assert look(0, 200)
    assert look(200, 300)
    assert not look(0, 201)
    assert not look(1, 200)
    assert not look(500, 200)
    assert not look(-20, 200)
    assert not look(1 << 60, 200)
