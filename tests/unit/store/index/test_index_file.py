"""One IndexFile: its bytes, its answers, and what is left of it after a crash."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.index import index_walk
from kourou.store.index.index_entry import ENTRY, IndexBatch, IndexHeader, IndexLayout
from kourou.store.index.index_file import IndexFile
from kourou.store.index.index_walk import KeySearch
from kourou.store.steps import run_steps
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from tests.unit.store.naive_index import NaiveFile

LAYOUT = IndexLayout(slot_count=8, entry_count=20)
BEGIN_MS = 1_794_711_764_287
Row = tuple[int, int, int]  # key hash, phy_offset, store timestamp

# Two records with two keys and four with one; slots 3, 5 and 0 have chains.
ROWS: list[Row] = [
    (3, 0, BEGIN_MS),
    (5, 0, BEGIN_MS),
    (11, 100, BEGIN_MS + 999),
    (3, 200, BEGIN_MS + 1000),
    (8, 300, BEGIN_MS + 5500),
    (13, 300, BEGIN_MS + 5500),
    (3, 400, BEGIN_MS + 9000),
    (0, 500, BEGIN_MS + 60_000),
]


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "20261115030244307"


def batch(rows: Sequence[Row]) -> IndexBatch:
    return IndexBatch(
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
    )


def created(files: Files, path: Path, rows: Sequence[Row] = ROWS) -> IndexFile:
    index_file = IndexFile.create(files, path, LAYOUT, IndexHeader())
    index_file.append(batch(rows))
    return index_file


def flushed(files: Files, path: Path, rows: Sequence[Row] = ROWS) -> None:
    index_file = created(files, path, rows)
    index_file.flush()
    index_file.close()
    files.sync_folder(path.parent)


def naive(rows: Sequence[Row]) -> bytes:
    expected = NaiveFile([0] * LAYOUT.slot_count)
    for row in rows:
        expected.put(*row)
    return expected.content(LAYOUT.entry_count)


def select(index_file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = 2**60) -> list[int]:
    search = KeySearch(key_hash, begin_ms, end_ms, 64)
    run_steps(index_file.select_steps(search))
    return search.found


# -- bytes ---------------------------------------------------------------------------------------


def test_a_file_has_its_full_length_and_takes_no_room(files: FaultyFiles, path: Path) -> None:
    layout = IndexLayout(5_000_000, 20_000_000)
    IndexFile.create(files, path, layout, IndexHeader()).close()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_batches_of_any_size_make_the_bytes_of_single_entries(
    files: FaultyFiles, path: Path, at_once: int
) -> None:
    index_file = IndexFile.create(files, path, LAYOUT, IndexHeader())
    for first in range(0, len(ROWS), at_once):
        assert index_file.append(batch(ROWS[first : first + at_once])) == len(ROWS[first : first + at_once])
        index_file.flush()
    assert path.read_bytes() == naive(ROWS)


def test_a_file_takes_one_entry_less_than_it_has_room_for(files: FaultyFiles, path: Path) -> None:
    rows = [(number, number * 100, BEGIN_MS) for number in range(25)]
    index_file = created(files, path, [])
    assert index_file.append(batch(rows)) == 19
    assert index_file.is_full
    assert index_file.append(batch(rows[19:])) == 0
    index_file.flush()
    assert path.read_bytes() == naive(rows[:19])


def test_a_new_file_begins_with_the_end_of_the_one_before(files: FaultyFiles, path: Path) -> None:
    first = created(files, path)
    following = first.header.following()
    assert following == IndexHeader(BEGIN_MS + 60_000, BEGIN_MS + 60_000, 500, 500, 0, 1)
    second = IndexFile.create(files, path.with_name("20261115030244308"), LAYOUT, following)
    second.append(batch([(7, 600, BEGIN_MS + 90_000)]))
    assert second.header == IndexHeader(BEGIN_MS + 90_000, BEGIN_MS + 90_000, 600, 600, 1, 2)
    # Apache would say 30 s, counted from the other file's end, and so find the record 30 s too late.
    assert select(second, 7, BEGIN_MS + 90_000, BEGIN_MS + 90_000) == [600]


def test_times_before_the_first_and_far_behind_it_are_kept_within_bounds(
    files: FaultyFiles, path: Path
) -> None:
    rows = [(1, 0, BEGIN_MS), (2, 100, BEGIN_MS - 5000), (3, 200, BEGIN_MS + 2**31 * 1000 + 5)]
    index_file = created(files, path, rows)
    index_file.flush()
    assert path.read_bytes() == naive(rows)


def test_a_file_that_begins_at_no_time_has_no_time_differences(files: FaultyFiles, path: Path) -> None:
    rows = [(1, 0, 0), (2, 100, 5_000_000)]
    created(files, path, rows).flush()
    assert path.read_bytes() == naive(rows)


# -- answers -------------------------------------------------------------------------------------


@pytest.fixture(params=["in memory", "in the file"])
def index_file(request: pytest.FixtureRequest, files: FaultyFiles, path: Path) -> IndexFile:
    """The same file with its slots in memory, and opened again without them."""
    if request.param == "in memory":
        return created(files, path)
    flushed(files, path)
    return IndexFile.open(files, path, LAYOUT)


def test_records_are_found_by_hash_newest_first(index_file: IndexFile) -> None:
    assert select(index_file, 3) == [400, 200, 0]
    assert select(index_file, 11) == [100]
    assert select(index_file, 0) == [500]
    assert select(index_file, 19) == []  # shares the slot of 3 and 11
    assert select(index_file, 7) == []


def test_no_more_are_found_than_asked_for(index_file: IndexFile) -> None:
    search = KeySearch(3, 0, 2**60, 4)
    search.found = [7, 7]
    run_steps(index_file.select_steps(search))
    assert search.found == [7, 7, 400, 200]
    run_steps(index_file.select_steps(search))
    assert len(search.found) == 4


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "expected"),
    [
        (BEGIN_MS, BEGIN_MS + 9000, [400, 200, 0]),
        (BEGIN_MS, BEGIN_MS + 8999, [200, 0]),
        (BEGIN_MS + 1, BEGIN_MS + 9000, [400, 200]),
        (BEGIN_MS + 1000, BEGIN_MS + 1000, [200]),
        (BEGIN_MS + 1001, BEGIN_MS + 1999, []),
        (BEGIN_MS + 9001, 2**60, []),
    ],
)
def test_times_are_compared_by_the_second(
    index_file: IndexFile, begin_ms: int, end_ms: int, expected: list[int]
) -> None:
    assert select(index_file, 3, begin_ms, end_ms) == expected


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "expected"),
    [
        (BEGIN_MS - 1, BEGIN_MS + 60_001, True),
        (BEGIN_MS, BEGIN_MS, True),
        (BEGIN_MS + 60_000, 2**60, True),
        (0, BEGIN_MS, True),
        (0, BEGIN_MS - 1, False),
        (BEGIN_MS + 60_001, 2**60, False),
    ],
)
def test_a_file_is_searched_when_its_time_and_the_asked_one_meet(
    index_file: IndexFile, begin_ms: int, end_ms: int, expected: bool
) -> None:
    assert index_file.overlaps(begin_ms, end_ms) is expected


def test_a_long_chain_is_followed_over_several_reads(files: FaultyFiles, path: Path) -> None:
    layout = IndexLayout(4, 1000)
    index_file = IndexFile.create(files, path, layout, IndexHeader())
    index_file.append(batch([(5 if n % 7 else 1, n, BEGIN_MS) for n in range(999)]))
    search = KeySearch(1, 0, 2**60, 1000)
    run_steps(index_file.select_steps(search))
    assert search.found == [n for n in reversed(range(999)) if n % 7 == 0]


def test_a_long_chain_is_walked_in_turns_and_not_for_ever(
    files: FaultyFiles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_walk, "_TURN_ENTRIES", 100)
    index_file = IndexFile.create(files, path, IndexLayout(4, 1000), IndexHeader())
    index_file.append(batch([(1, n, BEGIN_MS) for n in range(999)]))
    search = KeySearch(1, 0, 2**60, 1000, max_entries=250)
    turns = []
    for turn in index_file.select_steps(search):
        turn()
        turns.append(len(search.found))
    assert turns == [100, 200, 250]
    assert search.is_over


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_file_may_be_closed_and_appended_to_during_a_search(
    files: FaultyFiles, path: Path, monkeypatch: pytest.MonkeyPatch, is_in_memory: bool
) -> None:
    monkeypatch.setattr(index_walk, "_TURN_ENTRIES", 2)
    index_file = IndexFile.create(files, path, LAYOUT, IndexHeader())
    index_file.append(batch([(3, n, BEGIN_MS) for n in range(3)]))
    index_file.flush()
    if not is_in_memory:
        index_file.release_slots()
    search = KeySearch(3, 0, 2**60, 64)
    steps = index_file.select_steps(search)
    first = next(steps)
    index_file.append(batch([(3, 3, BEGIN_MS)]))
    index_file.flush()
    first()
    second = next(steps)
    index_file.close()
    second()
    run_steps(steps)
    assert search.found == ([2, 1, 0] if is_in_memory else [3, 2, 1, 0])
    with pytest.raises((OSError, ValueError)):
        index_file.read_entries(1, 2)


@pytest.mark.parametrize("prev_index", [7, 8, 100, -1, 0x7FFFFFFF])
def test_a_chain_that_does_not_go_back_ends_there(files: FaultyFiles, path: Path, prev_index: int) -> None:
    flushed(files, path)
    with Files().open(path) as file:  # entry 7 is the newest of hash 3
        file.pwrite(ENTRY.pack(3, 400, 9, prev_index), LAYOUT.entry_position(7))
    assert select(IndexFile.open(files, path, LAYOUT), 3) == [400]


def test_a_negative_time_ends_a_chain(files: FaultyFiles, path: Path) -> None:
    flushed(files, path)
    with Files().open(path) as file:
        file.pwrite(ENTRY.pack(3, 200, -1, 3), LAYOUT.entry_position(4))
    assert select(IndexFile.open(files, path, LAYOUT), 3) == [400]


@pytest.mark.parametrize("value", [-1, 9, 1000])
def test_a_slot_without_an_entry_finds_nothing(files: FaultyFiles, path: Path, value: int) -> None:
    flushed(files, path)
    with Files().open(path) as file:
        file.pwrite(value.to_bytes(4, "big", signed=True), LAYOUT.slot_position(3))
    assert select(IndexFile.open(files, path, LAYOUT), 3) == []


def test_keys_of_the_last_record_are_counted(files: FaultyFiles, path: Path) -> None:
    assert created(files, path, ROWS[:6]).keys_at_end(300) == 2
    other = created(files, path.with_name("20261115030244308"), [(n, 0, BEGIN_MS) for n in range(4)])
    assert other.keys_at_end(0) == 4
    assert other.keys_at_end(100) == 0


# -- failures ------------------------------------------------------------------------------------


def test_entries_that_cannot_be_written_are_not_there(files: FaultyFiles, path: Path) -> None:
    index_file = created(files, path, ROWS[:4])
    files.fail("pwrite", error=errno.ENOSPC, written_bytes=30)
    with pytest.raises(OSError, match="No space"):
        index_file.append(batch(ROWS[4:]))
    assert select(index_file, 3) == [200, 0]
    index_file.append(batch(ROWS[4:]))
    index_file.flush()
    assert path.read_bytes() == naive(ROWS)


def test_a_file_that_cannot_get_its_length_is_not_left_behind(files: FaultyFiles, path: Path) -> None:
    files.fail("set_length", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        created(files, path)
    assert not path.exists()


@pytest.mark.parametrize("nth", [1, 2])
def test_a_sync_that_fails_is_reported(files: FaultyFiles, path: Path, nth: int) -> None:
    index_file = created(files, path)
    files.fail("sync", nth)
    with pytest.raises(StorageError, match="cannot be synced"):
        index_file.flush()


@pytest.mark.parametrize("nth", [1, 2])
def test_a_flush_that_found_no_room_is_done_again(files: FaultyFiles, path: Path, nth: int) -> None:
    index_file = created(files, path)
    files.fail("pwrite", nth, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index_file.flush()
    assert not index_file.is_flushed
    index_file.flush()
    assert path.read_bytes() == naive(ROWS)


def test_a_flush_without_changes_does_nothing(files: FaultyFiles, path: Path) -> None:
    index_file = created(files, path)
    index_file.flush()
    changes = files.changes
    index_file.flush()
    assert files.changes == changes


# -- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 39, 200])
def test_a_file_without_entries_may_have_any_length(files: FaultyFiles, path: Path, length: int) -> None:
    path.write_bytes(bytes(length))
    assert IndexFile.open(files, path, LAYOUT).is_empty


@pytest.mark.parametrize("change", [-20, 20])
def test_a_file_of_another_layout_is_refused(files: FaultyFiles, path: Path, change: int) -> None:
    flushed(files, path)
    os.truncate(path, LAYOUT.file_bytes + change)
    with pytest.raises(StoreFormatError, match="maxHashSlotNum=8 and maxIndexNum=20 ask for 472"):
        IndexFile.open(files, path, LAYOUT)


@pytest.mark.parametrize("seed", range(12))
def test_after_a_crash_in_a_flush_a_file_has_all_or_what_it_had(tmp_path: Path, seed: int) -> None:
    """The second flush is interrupted at every one of its calls."""
    path = tmp_path / "20261115030244307"
    for nth in range(1, 7):
        files = FaultyFiles()
        path.unlink(missing_ok=True)
        flushed(files, path, ROWS[:4])
        index_file = IndexFile.open(files, path, LAYOUT)
        files.crash_at(nth)
        with contextlib.suppress(SimulatedCrash):
            index_file.append(batch(ROWS[4:]))
            index_file.flush()
        files.crash(seed)
        recovered = IndexFile.open(files, path, LAYOUT)
        assert recovered.recover()
        recovered.flush()
        count = recovered.header.index_count - 1
        assert count in (4, 8)
        assert (
            path.read_bytes()[: LAYOUT.entry_position(count + 1)]
            == naive(ROWS[:count])[: LAYOUT.entry_position(count + 1)]
        )
        recovered.close()


def recovered_after(files: FaultyFiles, path: Path, position: int, data: bytes) -> tuple[bool, list[int]]:
    """Damage a file; whether it counts as whole, and the phy_offsets that are left."""
    flushed(files, path)
    with Files().open(path) as file:
        file.pwrite(data, position)
    index_file = IndexFile.open(files, path, LAYOUT)
    is_whole = index_file.recover()
    index_file.flush()
    count = index_file.header.index_count
    index_file.close()
    content = path.read_bytes()
    assert (
        content[32 : LAYOUT.entry_position(count)]
        == naive(ROWS[: count - 1])[32 : LAYOUT.entry_position(count)]
    )
    return is_whole, [row[1] for row in ROWS[: count - 1]]


ALL = [row[1] for row in ROWS]


def test_slots_are_made_again_from_the_entries(files: FaultyFiles, path: Path) -> None:
    garbage = bytes(range(200, 200 + 4 * LAYOUT.slot_count))
    assert recovered_after(files, path, 40, garbage) == (True, ALL)


def test_a_header_that_counts_entries_which_were_never_written_is_recognised(
    files: FaultyFiles, path: Path
) -> None:
    """The record that ends where the gap begins may lack keys too: it goes as well."""
    holes = bytes(20 * 3)
    assert recovered_after(files, path, LAYOUT.entry_position(6), holes) == (False, [0, 0, 100, 200])


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        pytest.param((3, 200, 1, 2), [0, 0], id="chained to another slot"),
        pytest.param((3, 200, 1, 0), [0, 0], id="chained to nothing"),
        pytest.param((3, 50, 1, 3), [0, 0], id="before the record in front of it"),
        pytest.param((3, -200, 1, 3), [0, 0], id="nowhere"),
        pytest.param((-3, 200, 1, 3), [0, 0], id="hash with a sign"),
        pytest.param((3, 200, -1, 3), [0, 0], id="before time"),
        pytest.param((3, 301, 1, 3), [0, 0, 100], id="behind the next record"),
    ],
)
def test_an_entry_that_cannot_be_right_ends_the_file(
    files: FaultyFiles, path: Path, entry: tuple[int, int, int, int], left: list[int]
) -> None:
    damage = ENTRY.pack(*entry)
    assert recovered_after(files, path, LAYOUT.entry_position(4), damage) == (False, left)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(24, (400).to_bytes(8, "big"), id="end below the last entry"),
        pytest.param(24, (900).to_bytes(8, "big"), id="end above the last entry"),
        pytest.param(36, (10).to_bytes(4, "big"), id="one entry more"),
        pytest.param(36, (10_000).to_bytes(4, "big"), id="more than fit"),
    ],
)
def test_a_header_that_does_not_fit_the_entries_is_recognised(
    files: FaultyFiles, path: Path, position: int, value: bytes
) -> None:
    flushed(files, path)
    with Files().open(path) as file:
        file.pwrite(value, position)
    assert not IndexFile.open(files, path, LAYOUT).is_plausible()
    path.unlink()
    is_whole, left = recovered_after(files, path, position, value)
    assert not is_whole
    assert left == ALL[:-1]


def test_a_wrong_number_of_used_slots_is_put_right(files: FaultyFiles, path: Path) -> None:
    assert recovered_after(files, path, 32, (77).to_bytes(4, "big")) == (True, ALL)


# -- cutting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("phy_offset", [0, 1, 100, 150, 200, 300, 301, 500, 501])
@pytest.mark.parametrize("opened", [False, True], ids=["filled", "opened"])
def test_a_cut_file_is_as_if_the_rest_was_never_there(
    files: FaultyFiles, path: Path, phy_offset: int, opened: bool
) -> None:
    index_file = created(files, path)
    if opened:
        index_file.flush()
        index_file.close()
        index_file = IndexFile.open(files, path, LAYOUT)
    left = [row for row in ROWS if row[1] < phy_offset]
    assert index_file.truncate(phy_offset) == (left != ROWS)
    assert index_file.is_empty == (not left)
    more = [(3, phy_offset, BEGIN_MS + 70_000), (5, phy_offset, BEGIN_MS + 70_000)]
    index_file.flush()
    index_file.append(batch(more))
    index_file.flush()
    end = LAYOUT.entry_position(len(left) + len(more) + 1)
    assert path.read_bytes()[:end] == naive(left + more)[:end]


def test_the_end_of_a_cut_file_is_that_of_its_last_entry(files: FaultyFiles, path: Path) -> None:
    index_file = created(files, path)
    index_file.truncate(400)
    assert index_file.header.end_phy_offset == 300
    assert index_file.header.end_timestamp == BEGIN_MS + 5000  # by the second: more is not known


def test_a_large_file_is_cut_chunk_by_chunk(
    files: FaultyFiles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.store.index.index_file._CHUNK_ENTRIES", 3)
    index_file = created(files, path)
    assert index_file.truncate(100)
    index_file.flush()
    assert IndexFile.open(files, path, LAYOUT).recover()
    end = LAYOUT.entry_position(3)
    assert path.read_bytes()[40:end] == naive(ROWS[:2])[40:end]
