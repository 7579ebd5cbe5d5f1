"""CommitLog: its files, rolling, reading hot and cold, shortening; and what it refuses to load."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.store.log.commit_log import CommitLog, CreateLogFileError
from kourou.store.log.log_file import log_file_name
from kourou.store.steps import run_steps
from kourou.testing.faulty_files import FaultyFiles

FILE = 4096


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


class Logs:
    """Opens the log of one folder, closes all at the end."""

    def __init__(self, files: FaultyFiles, folders: list[Path]) -> None:
        self.files = files
        self.folders = folders
        self._logs: list[CommitLog] = []

    def open(
        self, window: int = 1 << 20, read_only: tuple[Path, ...] = (), file_bytes: int = FILE
    ) -> CommitLog:
        log = CommitLog(
            self.files, self.folders, file_bytes, read_window_bytes=window, read_only_folders=read_only
        )
        self._logs.append(log)
        log.load()
        return log

    def close(self) -> None:
        for log in self._logs:
            log.close()


@pytest.fixture
def logs(files: FaultyFiles, tmp_path: Path) -> Iterator[Logs]:
    made = Logs(files, [tmp_path / "commitlog"])
    yield made
    made.close()


def fill(log: CommitLog, data: bytes) -> None:
    """Append `data`, over as many files as it takes."""
    while data:
        piece = data[: FILE - log.max_phy_offset % FILE]
        log.write(log.max_phy_offset, piece)
        log.max_phy_offset += len(piece)
        data = data[len(piece) :]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_empty_log_makes_its_first_file_with_its_first_byte(logs: Logs) -> None:
    log = logs.open()
    assert (log.min_phy_offset, log.max_phy_offset, log.log_files) == (0, 0, [])
    log.write(0, b"first")
    log.max_phy_offset = 5
    (path,) = logs.folders[0].iterdir()
    assert path.name == "0" * 20
    assert path.stat().st_size == FILE
    assert path.read_bytes() == b"first".ljust(FILE, b"\0")


def test_files_follow_each_other_and_are_named_by_their_first_byte(logs: Logs) -> None:
    log = logs.open()
    fill(log, bytes(range(256)) * 40)
    assert names(logs.folders[0]) == [f"{start:020d}" for start in (0, FILE, 2 * FILE)]
    assert log.max_phy_offset == 10240
    assert [file.start_phy_offset for file in log.log_files] == [0, FILE, 2 * FILE]


def test_after_loading_the_log_seems_full_until_recovery_says_where_it_ends(logs: Logs) -> None:
    fill(logs.open(), b"x" * 5000)
    log = logs.open()
    assert (log.min_phy_offset, log.max_phy_offset, log.flushed_phy_offset) == (0, 2 * FILE, 2 * FILE)


def test_the_first_file_and_its_folder_survive_a_power_loss(files: FaultyFiles, logs: Logs) -> None:
    """The folder's own name has to be synced: without it every file in it is lost."""
    log = logs.open()
    log.write(0, b"synced")
    log.log_files[0].file.sync()
    files.crash(lambda times: 0)
    assert (logs.folders[0] / log_file_name(0)).read_bytes()[:6] == b"synced"


# -- what is not loaded --------------------------------------------------------------------------


def refusal(logs: Logs) -> str:
    with pytest.raises(StoreFormatError) as caught:
        logs.open()
    return str(caught.value)


def test_a_file_that_was_cut_short_is_refused_with_what_is_missing_and_what_to_do(logs: Logs) -> None:
    fill(logs.open(), b"x" * (2 * FILE))
    path = logs.folders[0] / log_file_name(FILE)
    path.write_bytes(b"x" * 1000)
    assert refusal(logs) == (
        f"{path}: it has 1000 of 4096 bytes; the log from 5096 to 8192 is missing. Restore the file from a "
        f"backup, or run `truncate -s 4096 {path}` to go on without the missing part"
    )
    assert path.read_bytes() == b"x" * 1000


def test_a_single_short_file_may_be_cut_or_of_another_size(logs: Logs) -> None:
    logs.folders[0].mkdir()
    path = logs.folders[0] / log_file_name(0)
    path.write_bytes(b"x" * 1000)
    assert refusal(logs) == (
        f"{path}: it has 1000 of 4096 bytes; the log from 1000 to 4096 is missing. Restore the file from a "
        f"backup, or run `truncate -s 4096 {path}` to go on without the missing part. "
        "If it was written with smaller files, set mappedFileSizeCommitLog to their size"
    )
    assert path.read_bytes() == b"x" * 1000


def test_files_of_one_other_size_are_refused_with_the_key_to_set(logs: Logs) -> None:
    logs.folders[0].mkdir()
    for start in (0, 2 * FILE):
        (logs.folders[0] / log_file_name(start)).write_bytes(b"x" * (2 * FILE))
    assert refusal(logs) == (
        f"{logs.folders[0]}/{log_file_name(0)}: it has 8192 bytes, 4096 are configured; "
        "open the store with the mappedFileSizeCommitLog it was written with"
    )


def test_a_name_that_is_no_multiple_of_the_size_is_refused(logs: Logs) -> None:
    logs.folders[0].mkdir()
    (logs.folders[0] / log_file_name(1000)).write_bytes(bytes(FILE))
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        logs.open()


def test_a_gap_between_files_is_refused(logs: Logs) -> None:
    fill(logs.open(), b"x" * (3 * FILE))
    (logs.folders[0] / log_file_name(FILE)).unlink()
    with pytest.raises(StoreFormatError, match=r"files are missing between 0{20} and it; put them back"):
        logs.open()


@pytest.mark.parametrize("length", [0, 100])
def test_a_last_file_that_was_never_finished_is_left_out_and_made_anew(logs: Logs, length: int) -> None:
    fill(logs.open(), b"x" * FILE)
    (logs.folders[0] / log_file_name(FILE)).write_bytes(bytes(length))
    log = logs.open()
    assert log.max_phy_offset == FILE
    fill(log, b"yy")
    assert (logs.folders[0] / log_file_name(FILE)).read_bytes() == b"yy".ljust(FILE, b"\0")


def test_what_was_left_out_is_removed_when_recovery_is_done(logs: Logs) -> None:
    fill(logs.open(), b"x" * FILE)
    (logs.folders[0] / log_file_name(FILE)).write_bytes(b"")
    logs.open().remove_leftovers()
    assert names(logs.folders[0]) == [log_file_name(0)]


def test_foreign_files_are_left_alone(logs: Logs, caplog: pytest.LogCaptureFixture) -> None:
    folder = logs.folders[0]
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / log_file_name(0)).mkdir()
    (folder / "٠١٢٣٤٥٦٧٨٩٠١٢٣٤٥٦٧٨٩").write_text("digits, but not ours")
    log = logs.open()
    assert log.log_files == []
    assert len(caplog.records) == 3
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_file_where_the_folder_should_be_is_refused(logs: Logs) -> None:
    logs.folders[0].write_text("no folder")
    with pytest.raises(StoreFormatError, match="it should be the CommitLog's folder"):
        logs.open()


# -- rolling -------------------------------------------------------------------------------------


def test_a_prepared_file_is_used_when_its_turn_comes(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * 10)
    assert log.wants_next_file
    log.prepare_next()
    assert not log.wants_next_file
    prepared = (logs.folders[0] / log_file_name(FILE)).stat()
    fill(log, b"x" * FILE)
    assert (logs.folders[0] / log_file_name(FILE)).stat().st_ino == prepared.st_ino
    assert log.wants_next_file


def test_a_prepared_file_that_was_not_used_goes_with_a_clean_stop_and_stays_after_a_kill(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x")
    log.prepare_next()
    log.close()
    assert names(logs.folders[0]) == [log_file_name(0), log_file_name(FILE)]
    log = logs.open()
    log.truncate(1)
    log.prepare_next()
    log.drop_prepared()
    assert names(logs.folders[0]) == [log_file_name(0)]


def test_preparing_while_the_log_rolls_does_not_delete_what_was_written(
    files: FaultyFiles, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file behind the last is made in a thread. The owner needs it meanwhile, and waits."""
    log = logs.open()
    fill(log, b"x" * 10)
    started, go_on = threading.Event(), threading.Event()
    create = log._create

    def slow_create(start_phy_offset: int):  # type: ignore[no-untyped-def]
        started.set()
        assert go_on.wait(10)
        return create(start_phy_offset)

    monkeypatch.setattr(log, "_create", slow_create)
    thread = threading.Thread(target=log.prepare_next)
    thread.start()
    assert started.wait(10)
    owner = threading.Thread(target=fill, args=(log, b"y" * FILE))
    owner.start()
    go_on.set()
    thread.join(10)
    owner.join(10)
    assert (logs.folders[0] / log_file_name(FILE)).read_bytes()[:10] == b"y" * 10
    log.drop_prepared()
    assert (logs.folders[0] / log_file_name(FILE)).exists()


def test_no_file_with_bytes_in_it_is_ever_made_anew(logs: Logs) -> None:
    """A log that was closed has no files; writing to it once removed the one it had."""
    log = logs.open()
    fill(log, b"x" * 10)
    log.close()
    with pytest.raises(CreateLogFileError, match="in the way"):
        log.write(10, b"more")
    assert (logs.folders[0] / log_file_name(0)).read_bytes()[:10] == b"x" * 10


def test_a_file_that_cannot_be_made_leaves_nothing_behind(files: FaultyFiles, logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * FILE)
    files.fail("preallocate", error=errno.ENOSPC)
    with pytest.raises(CreateLogFileError) as caught:
        log.write(FILE, b"y")
    assert caught.value.errno == errno.ENOSPC
    assert names(logs.folders[0]) == [log_file_name(0)]
    fill(log, b"y")
    assert (log.max_phy_offset, log.read(FILE, 1)) == (FILE + 1, b"y")


# -- undoing and shortening ----------------------------------------------------------------------


def test_undo_zeroes_over_a_file_border(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * 4000)
    log.write(4000, b"y" * 96)
    log.write(FILE, b"z" * 50)
    log.undo(4000, FILE + 50)
    assert log.max_phy_offset == 4000
    assert log.read(3990, 106) == b"x" * 10 + bytes(96)
    assert log.read(FILE, 50) == bytes(50)


def test_truncate_removes_files_and_zeroes_bytes_behind_the_end(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * (2 * FILE + 100))
    log.truncate(FILE + 10)
    assert names(logs.folders[0]) == [log_file_name(0), log_file_name(FILE)]
    assert log.read(FILE, 20) == b"x" * 10 + bytes(10)
    assert (logs.folders[0] / log_file_name(FILE)).stat().st_size == FILE
    assert (log.max_phy_offset, log.flushed_phy_offset) == (FILE + 10, 0)


def test_a_power_loss_while_truncating_leaves_files_of_full_length(files: FaultyFiles, logs: Logs) -> None:
    """A file that was cut and grown again in two steps could not be loaded any more."""
    fill(logs.open(), b"x" * (FILE + 2000))
    for step in range(1, 8):
        log = logs.open()
        files.crash_at(step)
        try:
            log.truncate(FILE + 10)
        except BaseException as crash:
            assert type(crash).__name__ == "SimulatedCrash"
        files.crash(step)
        assert logs.open().max_phy_offset == 2 * FILE


def test_truncating_to_the_border_of_a_file_keeps_the_file_behind_it(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * (FILE + 100))
    log.truncate(FILE)
    assert names(logs.folders[0]) == [log_file_name(0), log_file_name(FILE)]
    assert log.written_end(0) == FILE


def test_truncating_everything_keeps_the_first_file(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * (FILE + 100))
    log.truncate(0)
    assert names(logs.folders[0]) == [log_file_name(0)]
    assert log.written_end(0) == 0


def test_written_end_is_behind_the_last_byte_that_is_not_zero(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * (FILE + 100))
    log.prepare_next()
    assert log.written_end(0) == FILE + 100
    assert log.written_end(FILE + 50) == FILE + 100
    assert log.written_end(FILE + 100) == FILE + 100
    log.write(FILE + 100, bytes(10))
    assert log.written_end(0) == FILE + 100


def test_the_oldest_file_is_deleted_and_the_log_begins_later(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * (2 * FILE))
    assert log.delete_first() == logs.folders[0] / log_file_name(0)
    assert (log.min_phy_offset, log.read(0, 1), log.read(FILE, 1)) == (FILE, None, b"x")


def test_a_file_that_cannot_be_deleted_is_still_part_of_the_log(files: FaultyFiles, logs: Logs) -> None:
    log = logs.open()
    fill(log, b"x" * (2 * FILE))
    files.fail("remove")
    with pytest.raises(OSError):
        log.delete_first()
    assert (log.min_phy_offset, log.read(0, 1)) == (0, b"x")


# -- reading -------------------------------------------------------------------------------------


def test_reads_stay_in_one_file_and_inside_the_log(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"a" * FILE + b"b" * 10)
    assert log.read(FILE - 2, 2) == b"aa"
    assert log.read(FILE - 2, 4) is None
    assert log.read(-1, 2) is None
    assert log.read(2 * FILE, 1) is None
    assert log.read_nowait(FILE - 2, 4) is None
    assert log.read_nowait(2 * FILE, 1) is None


def test_the_newest_part_is_read_through_a_map_and_older_parts_from_the_page_cache(
    files: FaultyFiles, logs: Logs
) -> None:
    log = logs.open(window=FILE)
    fill(log, b"a" * (2 * FILE) + b"b" * 100)
    assert isinstance(log.read_nowait(2 * FILE, 5), memoryview)
    assert log.read_nowait(0, 5) in (b"aaaaa", None)  # None where the file system cannot tell
    files.chill()
    assert log.read_nowait(0, 5) is None
    assert log.read(0, 5) == b"aaaaa"
    assert log.read_nowait(2 * FILE, 2) == b"bb"


def test_a_view_stays_valid_when_its_file_is_deleted(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"a" * FILE + b"b")
    view = log.read_nowait(0, 3)
    log.delete_first()
    assert view is not None
    assert bytes(view) == b"aaa"


def test_a_pinned_file_is_closed_when_all_have_let_go(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"a" * FILE + b"b")
    oldest = log.log_files[0]
    oldest.pin()
    oldest.pin()
    log.delete_first()
    oldest.unpin()
    run_steps(log.close_removed_steps())
    assert oldest.file.pread(3, 0) == b"aaa"
    oldest.unpin()
    run_steps(log.close_removed_steps())
    with pytest.raises((OSError, ValueError)):
        oldest.file.length()


def test_a_file_whose_removal_was_not_awaited_is_gone_all_the_same(logs: Logs) -> None:
    log = logs.open()
    fill(log, b"a" * FILE + b"b" * FILE + b"c")
    steps = log.delete_first_steps()
    next(steps)()
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert log.min_phy_offset == FILE
    log.delete_first()
    assert log.min_phy_offset == 2 * FILE


# -- durability ----------------------------------------------------------------------------------


def test_files_with_bytes_that_are_not_durable(logs: Logs) -> None:
    log = logs.open()
    assert log.unsynced_files() == []
    fill(log, b"x" * (FILE + 10))
    log.prepare_next()
    assert [file.start_phy_offset for file in log.unsynced_files()] == [0, FILE]
    log.mark_flushed(FILE)
    assert [file.start_phy_offset for file in log.unsynced_files()] == [FILE]
    log.mark_flushed(FILE + 10)
    assert log.unsynced_files() == []
    log.mark_flushed(5)
    assert log.flushed_phy_offset == FILE + 10


# -- several folders -----------------------------------------------------------------------------


def test_files_go_to_several_folders_in_turn_by_name(files: FaultyFiles, tmp_path: Path) -> None:
    logs = Logs(files, [tmp_path / "b", tmp_path / "a"])
    fill(logs.open(), b"x" * (3 * FILE + 1))
    assert names(tmp_path / "a") == [log_file_name(0), log_file_name(2 * FILE)]
    assert names(tmp_path / "b") == [log_file_name(FILE), log_file_name(3 * FILE)]
    log = logs.open()
    assert log.max_phy_offset == 4 * FILE
    assert log.read(FILE, 1) == b"x"
    logs.close()


def test_full_folders_get_no_new_file_while_another_has_room(files: FaultyFiles, tmp_path: Path) -> None:
    logs = Logs(files, [tmp_path / "a", tmp_path / "b"])
    log = logs.open()
    log.full_folders = frozenset({tmp_path / "a"})
    fill(log, b"x" * (2 * FILE))
    assert len(names(tmp_path / "b")) == 2
    log.full_folders = frozenset(logs.folders)
    fill(log, b"x")
    assert names(tmp_path / "a") == [log_file_name(2 * FILE)]
    logs.close()


def test_read_only_folders_keep_what_they_have(files: FaultyFiles, tmp_path: Path) -> None:
    logs = Logs(files, [tmp_path / "a"])
    fill(logs.open(), b"x" * FILE)
    logs.folders = [tmp_path / "a", tmp_path / "b"]
    log = logs.open(read_only=(tmp_path / "a",))
    fill(log, b"y" * (2 * FILE))
    assert len(names(tmp_path / "a")) == 1
    assert len(names(tmp_path / "b")) == 2
    assert log.read(0, 1) == b"x"
    logs.close()


def test_the_same_file_in_two_folders_is_refused(files: FaultyFiles, tmp_path: Path) -> None:
    logs = Logs(files, [tmp_path / "a"])
    fill(logs.open(), b"x" * FILE)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / log_file_name(0)).write_bytes(bytes(FILE))
    logs.folders = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(StoreFormatError, match="is the same part of the log; move one away"):
        logs.open()
    logs.close()


@pytest.mark.parametrize("sizes", [[5], [3, 0, 2], [100, 60_000, 7], [70_000, 70_000], [3_000] * 1_500])
def test_parts_lie_one_behind_the_other(logs: Logs, sizes: list[int]) -> None:
    log = logs.open(file_bytes=8 * 1024 * 1024)
    parts = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    log.write_parts(0, [b"first"])
    log.write_parts(5, parts)
    size = 5 + sum(sizes)
    log.max_phy_offset = size
    assert log.log_files[-1].file.pread(size + 9, 0) == b"first" + b"".join(parts) + bytes(9)


def test_parts_of_a_new_file(logs: Logs) -> None:
    log = logs.open(file_bytes=64 * 1024)
    log.write_parts(0, [b"a" * 10_000, b"b"])
    log.write_parts(64 * 1024, [b"c" * 10_000, b"d"])
    log.write_parts(20_000, [b"e" * 10_000, b"f"])
    first, second = log.log_files
    assert first.file.pread(10_002, 20_000) == b"e" * 10_000 + b"f\0"
    assert second.file.pread(10_002, 0) == b"c" * 10_000 + b"d\0"
