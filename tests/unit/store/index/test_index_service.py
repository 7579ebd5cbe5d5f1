"""IndexService: files in a row, keys collected once, and what becomes of them when things fail."""

from __future__ import annotations

import contextlib
import errno
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.index import index_service
from kourou.store.index.index_entry import IndexLayout
from kourou.store.index.index_hash import key_hash
from kourou.store.index.index_service import IndexService
from kourou.store.steps import run_steps
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from tests.unit.store.naive_index import NaiveIndex

SLOTS, ENTRIES = 8, 10  # nine entries a file
NOW_MS = 1_794_711_764_287
FOR_EVER_MS = 2**60
LAYOUT = IndexLayout(SLOTS, ENTRIES)

Record = tuple[str, Sequence[str], int, int]


def records(first: int, last: int) -> list[Record]:
    """Records of two keys, 100 bytes and half a second apart. The second key is shared by ten."""
    return [
        (f"t{number % 2}", (f"id-{number}", f"group-{number // 10}"), number * 100, NOW_MS + number * 500)
        for number in range(first, last)
    ]


class Clock:
    def __init__(self) -> None:
        self.now = NOW_MS

    def now_ms(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "index"


@pytest.fixture
def index(files: FaultyFiles, folder: Path, clock: Clock) -> Iterator[IndexService]:
    index = opened(files, folder, clock)
    yield index
    index.close()


def opened(
    files: Files,
    folder: Path,
    clock: Clock | None = None,
    *,
    clean_exit: bool = True,
    index_msg_timestamp: int = 0,
) -> IndexService:
    index = IndexService(files, folder, SLOTS, ENTRIES, (clock or Clock()).now_ms)
    index.load(clean_exit, index_msg_timestamp)
    return index


def collect(index: IndexService, taken: Sequence[Record]) -> None:
    for record in taken:
        index.collect(*record)


def naive(taken: Sequence[Record]) -> NaiveIndex:
    expected = NaiveIndex(SLOTS, ENTRIES)
    for record in taken:
        expected.put_record(*record)
    return expected


def contents(index: IndexService) -> list[bytes]:
    return [path.read_bytes() for path in index.paths]


def missing(index: IndexService, taken: Sequence[Record]) -> list[int]:
    """Records that are not found by one of their keys."""
    return [
        phy_offset
        for topic, keys, phy_offset, _ in taken
        if any(phy_offset not in index.query(topic, key, 64, 0, FOR_EVER_MS) for key in keys)
    ]


# -- filling and finding -------------------------------------------------------------------------


def test_nothing_is_there_at_first(index: IndexService, folder: Path) -> None:
    assert (index.end_phy_offset, index.end_timestamp, index.paths) == (0, 0, [])
    assert index.query("t", "k", 32, 0, FOR_EVER_MS) == []
    index.flush()
    assert not folder.exists()


def test_what_was_collected_is_found_at_once(index: IndexService) -> None:
    collect(index, records(0, 3))
    assert index.query("t1", "id-1", 32, 0, FOR_EVER_MS) == [100]
    assert index.query("t0", "id-1", 32, 0, FOR_EVER_MS) == []
    assert (index.end_phy_offset, index.end_timestamp) == (200, NOW_MS + 1000)


def test_files_follow_one_another_and_share_a_record(index: IndexService) -> None:
    taken = records(0, 20)
    collect(index, taken)
    index.flush()
    assert len(index.paths) == 5
    assert contents(index) == naive(taken).contents()
    assert missing(index, taken) == []


def test_a_batch_is_built_when_there_is_enough(
    index: IndexService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = records(0, index_service._BATCH_RECORDS)
    collect(index, taken[:-1])
    assert not folder.exists()
    collect(index, taken[-1:])
    assert index.end_phy_offset == taken[-1][2]


def test_records_are_found_newest_first_over_all_files(index: IndexService) -> None:
    collect(index, [("t", ("same",), number, NOW_MS) for number in range(100)])
    assert index.query("t", "same", 5, 0, FOR_EVER_MS) == [99, 98, 97, 96, 95]
    assert index.query("t", "same", 20, 0, FOR_EVER_MS) == list(range(99, 79, -1))
    assert index.query("t", "same", 1000, 0, FOR_EVER_MS) == list(range(99, 35, -1))
    assert index.query("t", "same", 0, 0, FOR_EVER_MS) == []


def test_older_files_are_left_out_when_they_end_too_early(index: IndexService) -> None:
    taken = records(0, 60)
    collect(index, taken)
    index.build()
    expected = naive(taken)
    for begin_ms in range(NOW_MS - 1000, NOW_MS + 32_000, 1700):
        for end_ms in range(begin_ms, NOW_MS + 32_000, 2300):
            for topic, key in (("t0", "group-2"), ("t1", "group-5"), ("t1", "id-33")):
                asked = (topic, key, 64, begin_ms, end_ms)
                assert index.query(*asked) == expected.query(*asked)


def test_a_record_without_keys_leaves_no_trace(index: IndexService) -> None:
    collect(index, [("t", (), 0, NOW_MS)])
    index.flush()
    assert index.paths == []
    collect(index, [("t", ("k",), 100, NOW_MS), ("t", (), 200, NOW_MS)])
    index.flush()
    assert index.end_phy_offset == 100


# -- names ---------------------------------------------------------------------------------------


@pytest.fixture
def in_utc_plus_8(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "XXX-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_files_are_named_by_the_local_time(index: IndexService, in_utc_plus_8: None) -> None:
    collect(index, records(0, 1))
    index.build()
    assert [path.name for path in index.paths] == ["20261115110244287"]


def test_names_ascend_whatever_the_clock_does(index: IndexService, clock: Clock) -> None:
    names: list[str] = []
    for number, now in enumerate([NOW_MS, NOW_MS, NOW_MS - 3_600_000, NOW_MS + 712, NOW_MS + 713]):
        clock.now = now
        collect(index, [("t", [str(key) for key in range(9)], number, NOW_MS)])
        index.build()
        names = [path.name for path in index.paths]
    assert names == sorted(set(names))
    assert [int(name[-5:]) - int(names[0][-5:]) for name in names] == [0, 1, 2, 712, 713]


# -- the same records again ----------------------------------------------------------------------


@pytest.mark.parametrize("again_from", [0, 5, 9])
@pytest.mark.parametrize("reopened", [False, True])
def test_records_that_come_again_are_passed_over(
    files: FaultyFiles, folder: Path, again_from: int, reopened: bool
) -> None:
    taken = records(0, 15)
    index = opened(files, folder)
    collect(index, taken[:10])
    index.flush()
    if reopened:
        index.close()
        index = opened(files, folder)
    collect(index, taken[again_from:])
    index.flush()
    assert contents(index) == naive(taken).contents()


def test_the_very_first_record_comes_again(index: IndexService) -> None:
    """It lies at 0, which is also the end of an empty index."""
    for _ in range(3):
        collect(index, records(0, 1))
        index.flush()
    assert contents(index) == naive(records(0, 1)).contents()


def test_keys_of_a_record_that_did_not_fit_any_more_are_added_later(
    index: IndexService, files: FaultyFiles
) -> None:
    """The fifth record has one key in each file, and the second file cannot be made at first."""
    taken = records(0, 7)
    collect(index, taken)
    files.fail("create", 2, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.build()
    assert len(index.paths) == 1
    index.flush()
    assert contents(index) == naive(taken).contents()


def test_half_a_record_is_completed_after_a_restart(files: FaultyFiles, folder: Path) -> None:
    """As Apache leaves it when it is killed between two keys."""
    (topic, keys, phy_offset, store_timestamp) = records(4, 5)[0]
    index = opened(files, folder)
    collect(index, [*records(0, 4), (topic, keys[:1], phy_offset, store_timestamp)])
    index.flush()
    index.close()
    index = opened(files, folder, clean_exit=False)
    collect(index, records(2, 8))
    index.flush()
    assert contents(index) == naive(records(0, 8)).contents()


# -- cutting and dropping ------------------------------------------------------------------------


@pytest.mark.parametrize("end", [0, 1, 4, 5, 9, 10, 19, 20])
def test_a_shorter_log_takes_its_keys_along(files: FaultyFiles, folder: Path, end: int) -> None:
    index = opened(files, folder)
    taken = records(0, 20)
    collect(index, taken)
    index.flush()
    index.truncate(end * 100)
    assert index.end_phy_offset == max(end - 1, 0) * 100
    others = [(topic, (f"new-{keys[0]}",), phy, now) for topic, keys, phy, now in records(end, 25)]
    assert missing(index, taken[:end]) == []
    assert [
        record for record in taken[end:] if index.query(record[0], record[1][0], 64, 0, FOR_EVER_MS)
    ] == []
    collect(index, others)
    index.flush()
    assert missing(index, [*taken[:end], *others]) == []
    index.close()
    index = opened(files, folder, clean_exit=False)
    assert index.is_complete
    assert missing(index, [*taken[:end], *others]) == []


def test_a_cut_is_on_disk_before_anything_follows(files: FaultyFiles, folder: Path) -> None:
    """Else a crash would bring back old entries among the new ones."""
    index = opened(files, folder)
    collect(index, records(0, 20))
    index.flush()
    index.truncate(700)
    files.crash(lambda times: 0)
    index = opened(files, folder, clean_exit=False)
    assert index.end_phy_offset == 600
    assert len(index.paths) == 2


def test_what_waits_to_be_built_is_cut_too(index: IndexService) -> None:
    collect(index, records(0, 10))
    index.truncate(500)
    index.flush()
    assert contents(index) == naive(records(0, 5)).contents()


def test_truncating_behind_the_end_changes_nothing(index: IndexService, files: FaultyFiles) -> None:
    collect(index, records(0, 10))
    index.flush()
    changes = files.changes
    index.truncate(901)
    assert files.changes == changes


def test_a_reset_index_starts_over(index: IndexService, folder: Path) -> None:
    collect(index, records(0, 10))
    index.flush()
    collect(index, records(10, 12))
    index.reset()
    assert (index.end_phy_offset, list(folder.iterdir())) == (0, [])
    collect(index, records(5, 12))
    index.flush()
    assert contents(index) == naive(records(5, 12)).contents()


def test_a_reset_without_files_is_harmless(index: IndexService) -> None:
    index.reset()
    assert index.paths == []


def test_files_go_when_the_log_has_none_of_their_records(index: IndexService) -> None:
    collect(index, records(0, 20))
    index.flush()
    paths = index.paths
    assert index.delete_expired(800) == 1  # the first ends at 400, the second at 800
    assert index.delete_expired(801) == 1
    assert index.paths == paths[2:]
    assert not paths[0].exists()
    assert missing(index, records(9, 20)) == []


def test_the_newest_file_stays_however_old(index: IndexService) -> None:
    collect(index, records(0, 20))
    index.flush()
    assert index.delete_expired(1_000_000) == 4
    assert len(index.paths) == 1


# -- starting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean_exit", [True, False])
def test_what_was_flushed_is_there_after_a_start(files: FaultyFiles, folder: Path, clean_exit: bool) -> None:
    taken = records(0, 20)
    index = opened(files, folder)
    collect(index, taken)
    index.flush()
    index.close()
    files.crash(lambda times: 0)
    index = opened(files, folder, clean_exit=clean_exit)
    assert index.is_complete
    assert (index.end_phy_offset, index.end_timestamp) == (1900, NOW_MS + 9500)
    assert contents(index) == naive(taken).contents()
    assert missing(index, taken) == []


def test_a_file_made_just_before_a_crash_is_made_again(files: FaultyFiles, folder: Path) -> None:
    index = opened(files, folder)
    collect(index, records(0, 4))
    index.flush()
    collect(index, records(4, 8))
    index.build()
    index.close()  # a killed process: all is in the page cache, the headers are not
    index = opened(files, folder, clean_exit=False)
    assert index.end_phy_offset == 300
    assert len(list(folder.iterdir())) == 1
    collect(index, records(4, 8))
    index.flush()
    assert contents(index) == naive(records(0, 8)).contents()


def test_other_files_are_none_of_its_business(files: FaultyFiles, folder: Path) -> None:
    folder.mkdir()
    for name in ("notes.txt", "2026111503024430", "２０２６１１１５０３０２４４３０７"):
        (folder / name).write_bytes(b"mine")
    index = opened(files, folder)
    collect(index, records(0, 3))
    index.flush()
    assert len(index.paths) == 1
    assert len(list(folder.iterdir())) == 4


def test_other_sizes_are_refused(files: FaultyFiles, folder: Path) -> None:
    index = opened(files, folder)
    collect(index, records(0, 3))
    index.flush()
    index.close()
    other = IndexService(files, folder, SLOTS, 2 * ENTRIES, lambda: NOW_MS)
    with pytest.raises(StoreFormatError, match="set both to what the store was written with"):
        other.load(True, 0)


def damaged(files: FaultyFiles, folder: Path, taken: Sequence[Record]) -> None:
    """Flush, then break the fourth entry of the first file."""
    index = opened(files, folder)
    collect(index, taken)
    index.flush()
    path = index.paths[0]
    index.close()
    with Files().open(path) as file:
        file.pwrite(bytes(20), LAYOUT.entry_position(4))


def test_after_a_crash_a_damaged_file_ends_the_index_and_what_follows_is_built_again(
    files: FaultyFiles, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = records(0, 20)
    damaged(files, folder, taken)
    index = opened(files, folder, clean_exit=False)
    assert not index.is_complete
    assert index.end_phy_offset == 0  # the record at 100 may lack a key
    assert "4 newer files go" in caplog.text
    collect(index, taken)
    index.flush()
    assert contents(index) == naive(taken).contents()


def test_full_files_below_the_checkpoint_are_not_checked(files: FaultyFiles, folder: Path) -> None:
    taken = records(0, 20)
    damaged(files, folder, taken)
    index = opened(files, folder, clean_exit=False, index_msg_timestamp=NOW_MS + 2000)
    assert index.is_complete
    assert index.end_phy_offset == 1900


def test_a_damaged_header_is_noticed_after_a_clean_stop_too(files: FaultyFiles, folder: Path) -> None:
    index = opened(files, folder)
    collect(index, records(0, 3))
    index.flush()
    path = index.paths[0]
    index.close()
    files.flip_bit(path, 39, 1)  # 7 entries become 5
    index = opened(files, folder)
    assert not index.is_complete
    assert index.end_phy_offset == 0
    collect(index, records(0, 3))
    index.flush()
    assert missing(index, records(0, 3)) == []


def test_an_interrupted_repair_is_done_again(tmp_path: Path) -> None:
    taken = records(0, 20)
    for nth in range(1, 12):
        files, folder = FaultyFiles(), tmp_path / str(nth)
        damaged(files, folder, taken)
        files.crash_at(nth)
        with contextlib.suppress(SimulatedCrash):
            opened(files, folder, clean_exit=False).close()
        files.crash(lambda times: len(times))
        index = opened(files, folder, clean_exit=False)
        assert index.end_phy_offset == 0
        collect(index, taken)
        index.flush()
        assert contents(index) == naive(taken).contents()
        index.close()


def test_the_checkpoint_covers_full_files_only(index: IndexService) -> None:
    collect(index, records(0, 4))
    index.flush()
    assert index.full_end_timestamp == 0
    collect(index, records(4, 8))
    index.build()
    assert index.full_end_timestamp == 0
    index.flush()
    assert index.full_end_timestamp == NOW_MS + 2000


# -- memory --------------------------------------------------------------------------------------


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_an_index_at_rest_keeps_no_slots_in_memory(files: FaultyFiles, folder: Path) -> None:
    """A table of the usual size has 20 MB; a page of it is there when something is put in it."""
    index = IndexService(Files(), folder, 5_000_000, 20_000_000, lambda: NOW_MS)
    before = resident_bytes()
    index.load(True, 0)
    collect(index, records(0, 2))
    index.flush()
    index.close()
    index = IndexService(Files(), folder, 5_000_000, 20_000_000, lambda: NOW_MS)
    index.load(True, 0)
    assert missing(index, records(0, 2)) == []
    assert resident_bytes() - before < 8_000_000
    index.close()


def test_only_the_newest_file_has_its_slots_in_memory_after_a_flush(index: IndexService) -> None:
    collect(index, records(0, 20))
    index.flush()
    assert [file._slots is not None for file in index._index_files] == [False] * 4 + [True]


# -- failures ------------------------------------------------------------------------------------


def test_a_full_disk_stops_neither_collecting_nor_queries(
    index: IndexService, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    early, late = records(0, 10), records(10, index_service._BATCH_RECORDS + 10)
    collect(index, early)
    index.flush()
    files.fail(["pwrite", "create"], error=errno.ENOSPC, for_ever=True)
    collect(index, late)
    assert "records not indexed yet: No space left" in caplog.text
    with pytest.raises(OSError, match="No space"):
        index.flush()
    assert missing(index, early) == []
    files.heal()
    index.flush()
    assert contents(index) == naive(early + late).contents()


def test_an_index_that_cannot_keep_up_stays_where_it_is(
    files: FaultyFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_service, "_BATCH_RECORDS", 5)
    monkeypatch.setattr(index_service, "_MAX_PENDING_RECORDS", 20)
    taken = records(0, 60)
    index = opened(files, folder)
    collect(index, taken[:5])
    index.flush()
    files.fail("pwrite", error=errno.ENOSPC, for_ever=True)
    collect(index, taken[5:40])
    files.heal()
    collect(index, taken[40:])
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be written: No space"):
            index.flush()
    assert index.end_phy_offset == 400
    assert missing(index, taken[:5]) == []
    index.close()
    index = opened(files, folder, clean_exit=False)
    collect(index, taken)
    index.flush()
    assert contents(index) == naive(taken).contents()


def test_after_a_failed_sync_nothing_counts_as_durable(files: FaultyFiles, folder: Path) -> None:
    taken = records(0, 20)
    index = opened(files, folder)
    collect(index, taken[:5])
    index.flush()
    collect(index, taken[5:])
    files.fail("sync", part_of_path="index")
    for _ in range(3):
        with pytest.raises(StorageError, match="cannot be synced"):
            index.flush()
    assert missing(index, taken[:5]) == []
    files.crash(lambda times: 0)
    index = opened(files, folder, clean_exit=False)
    assert index.is_complete
    assert index.end_phy_offset == 400
    collect(index, taken[5:])
    index.flush()
    assert contents(index) == naive(taken).contents()


def test_a_file_that_cannot_be_read_is_an_error_for_the_query(
    index: IndexService, files: FaultyFiles
) -> None:
    collect(index, records(0, 3))
    index.flush()
    files.fail("pread")
    with pytest.raises(OSError, match="Input/output"):
        index.query("t0", "id-0", 32, 0, FOR_EVER_MS)


def test_a_key_that_no_record_can_have_is_not_even_hashed(
    index: IndexService, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(index_service, "key_hash", lambda _, key: hashed.append(key) or 0)
    assert index.query("t", "k" * 32_768, 32, 0, FOR_EVER_MS) == []
    assert index.query("t" * 32_768, "k", 32, 0, FOR_EVER_MS) == []
    assert hashed == []
    index.query("t", "k" * 32_767, 32, 0, FOR_EVER_MS)
    assert hashed == ["k" * 32_767]


def test_a_file_that_is_removed_during_a_query_ends_it(index: IndexService) -> None:
    index.collect_many([("t", ["k"], 100 * n, NOW_MS) for n in range(1, 20)])
    steps = index.query_steps("t", "k", 64, 0, FOR_EVER_MS)
    next(steps)()
    assert index.delete_expired(100_000) > 1
    newest = run_steps(steps)
    assert newest and newest == index.query("t", "k", 64, 0, FOR_EVER_MS)


def hashed_rows(taken: Sequence[Record]) -> bytes:
    """What the compiled kernel makes of records."""
    return b"".join(
        struct.pack(">iqq", key_hash(topic, key), phy_offset, store_timestamp)
        for topic, keys, phy_offset, store_timestamp in taken
        for key in keys
    )


def test_hashed_keys_and_texts_come_out_in_the_order_of_the_log(
    index: IndexService, files: FaultyFiles, tmp_path: Path
) -> None:
    taken = records(1, 60)
    collect(index, taken)
    index.flush()
    (tmp_path / "mixed").mkdir()
    mixed = opened(files, tmp_path / "mixed" / "index")
    mixed.collect_many(taken[1:30:3], [hashed_rows(taken[0:30:3]), hashed_rows(taken[2:30:3])])
    mixed.collect_many(taken[30:40])
    mixed.collect_many([], [hashed_rows(taken[40:])])
    mixed.flush()
    assert contents(mixed) == contents(index)
    mixed.close()


def test_hashed_keys_behind_the_end_of_the_log_are_forgotten(index: IndexService) -> None:
    taken = records(1, 7)
    index.collect_many(taken[4:], [hashed_rows(taken[:4])])
    index.truncate(300)
    assert missing(index, taken) == [300, 400, 500, 600]


def test_many_hashed_keys_are_built_before_they_are_asked_for(index: IndexService) -> None:
    rows = hashed_rows(records(1, 1025))
    index.collect_many([], [rows[:-20]])
    assert not index.paths
    index.collect_many([], [rows[-20:]])
    assert index.paths


def test_hashed_keys_wait_while_the_disk_takes_nothing(index: IndexService, files: FaultyFiles) -> None:
    taken = records(1, 1025)
    files.fail("pwrite", error=errno.ENOSPC, for_ever=True)
    index.collect_many([], [hashed_rows(taken)])
    files.heal()
    assert missing(index, taken[-9:]) == []


def test_records_without_keys_leave_nothing_behind(index: IndexService) -> None:
    for _ in range(100):
        index.collect_many([], [b"", b""])
    assert index._hashed_keys == []
