"""FaultyFiles: calls that fail, and damage. Power loss: test_power_loss.py."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.store.disk.files import DiskUsage, Files, OpenFile
from kourou.testing.faults import CHANGES, LOOKS
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.survival import drop_all, keep_all


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def open_new(files: Files, path: Path, content: bytes = b"") -> OpenFile:
    file = files.open(path, create=True)
    file.pwrite(content, 0)
    return file


def test_without_faults_it_is_like_the_real_one(files: FaultyFiles, tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a" / "b")
    file = open_new(files, tmp_path / "a" / "b" / "one", b"0123456789")
    file.pwritev([b"ab", b"cd"], 8)
    file.preallocate(8192)
    file.sync()
    files.sync_folder(tmp_path / "a" / "b")
    assert file.pread(14, 0) == b"01234567abcd\0\0"
    assert file.pread_nowait(14, 0) in (None, b"01234567abcd\0\0")
    assert (file.length(), file.data_end()) == (8192, 4096)
    assert file.map_readonly(8192)[:4] == b"0123"
    file.close()
    files.replace(tmp_path / "a" / "two", b"2", backup=tmp_path / "a" / "two.bak")
    assert files.list_names(tmp_path / "a") == ["b", "two"]
    assert files.length(tmp_path / "a" / "b" / "one") == 8192
    assert files.modified_ms(tmp_path / "a" / "two") > 0
    files.remove_tree(tmp_path / "a")
    assert not files.exists(tmp_path / "a")
    # Others use the disk meanwhile.
    assert files.disk_usage(tmp_path).total_bytes == Files().disk_usage(tmp_path).total_bytes


def test_the_nth_call_fails_once(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "a") as file:
        files.fail("pwrite", nth=2)
        file.pwrite(b"one", 0)
        with pytest.raises(OSError, match="Input/output error") as failed:
            file.pwrite(b"two", 3)
        assert (failed.value.errno, failed.value.filename) == (errno.EIO, str(tmp_path / "a"))
        file.pwrite(b"three", 6)
        assert file.pread(20, 0) == b"one\0\0\0three"


def test_a_call_fails_for_ever_until_healed(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "a") as file:
        files.fail("pwrite", nth=2, error=errno.ENOSPC, for_ever=True)
        file.pwrite(b"one", 0)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                file.pwrite(b"two", 3)
        files.heal()
        file.pwrite(b"two", 3)


def test_a_write_may_fail_after_a_part_of_it(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "a") as file:
        files.fail("pwrite", error=errno.ENOSPC, written_bytes=4)
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"abc", b"def"], 0)
        assert file.pread(10, 0) == b"abcd"


def test_a_short_write_is_continued_by_the_real_code(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "a") as file:
        before = files.changes
        files.short_write()
        file.pwrite(b"0123456789", 0)
        assert files.changes - before == 2
        files.short_write(for_ever=True)
        file.pwritev([b"abcdef"] * 10, 10)
        assert files.changes - before > 4
        assert file.pread(100, 0) == b"0123456789" + b"abcdef" * 10


def test_writes_that_store_nothing_are_a_full_disk(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "a") as file:
        files.short_write(written_bytes=3)
        files.short_write(nth=2, written_bytes=0, for_ever=True)
        with pytest.raises(OSError, match="No space left"):
            file.pwrite(b"0123456789", 0)
        assert file.pread(10, 0) == b"012"


def calls_of(files: FaultyFiles, folder: Path, file: OpenFile) -> dict[str, Callable[[], object]]:
    """One call of every kind; the folder holds `one` and an empty folder `empty`."""
    return {
        "create": lambda: files.open(folder / "new", create=True),
        "pwrite": lambda: file.pwrite(b"x", 0),
        "sync": lambda: file.sync(),
        "preallocate": lambda: file.preallocate(100),
        "set_length": lambda: file.set_length(10),
        "make_folder": lambda: files.make_folder(folder / "deep" / "er"),
        "rename": lambda: files.rename(folder / "one", folder / "two"),
        "remove": lambda: files.remove(folder / "one"),
        "sync_folder": lambda: files.sync_folder(folder),
        "open": lambda: files.open(folder / "one"),
        "pread": lambda: file.pread(1, 0),
        "map": lambda: file.map_readonly(1),
        "look": lambda: files.list_names(folder),
        "lock": lambda: files.lock(folder / "lock"),
    }


@pytest.mark.parametrize("kind", sorted(CHANGES | LOOKS))
def test_every_kind_of_call_can_fail(files: FaultyFiles, tmp_path: Path, kind: str) -> None:
    file = open_new(files, tmp_path / "one", b"content")
    before = sorted(path.name for path in tmp_path.iterdir())
    call = calls_of(files, tmp_path, file)[kind]
    files.fail(kind, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        call()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "one").read_bytes() == b"content"
    call()
    files.crash(keep_all)


def test_faults_can_be_kept_to_some_paths(files: FaultyFiles, tmp_path: Path) -> None:
    one, two = open_new(files, tmp_path / "one"), open_new(files, tmp_path / "two")
    files.fail({"pwrite", "sync"}, nth=2, part_of_path="two")
    one.pwrite(b"x", 0)
    one.sync()
    two.pwrite(b"x", 0)
    with pytest.raises(OSError):
        two.sync()
    files.crash(keep_all)


def test_an_unknown_kind_is_refused(files: FaultyFiles) -> None:
    with pytest.raises(ValueError, match="no such calls: .'fsync'."):
        files.fail({"fsync", "pwrite"})


@pytest.mark.parametrize("kind", sorted(CHANGES | LOOKS))
def test_from_the_crash_on_every_call_raises(files: FaultyFiles, tmp_path: Path, kind: str) -> None:
    file = open_new(files, tmp_path / "one", b"content")
    call = calls_of(files, tmp_path, file)[kind]
    files.crash_at(1)
    with pytest.raises(SimulatedCrash):
        file.pwrite(b"x", 0)
    assert files.crashed
    for _ in range(2):
        with pytest.raises(SimulatedCrash):
            call()


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_the_crash_comes_in_the_call_that_is_named(files: FaultyFiles, tmp_path: Path, kind: str) -> None:
    file = open_new(files, tmp_path / "one", b"content")
    files.crash_at(2)
    file.pwrite(b"x", 100)
    with pytest.raises(SimulatedCrash):
        calls_of(files, tmp_path, file)[kind]()


def test_code_that_handles_errors_does_not_handle_a_crash(files: FaultyFiles, tmp_path: Path) -> None:
    file = open_new(files, tmp_path / "one")
    files.crash_at(1)
    with pytest.raises(SimulatedCrash):
        try:
            file.pwrite(b"x", 0)
        except Exception:  # as careless as code can be
            pass


def test_after_a_crash_old_handles_are_dead_and_new_ones_work(files: FaultyFiles, tmp_path: Path) -> None:
    old = open_new(files, tmp_path / "one", b"content")
    lock = files.lock(tmp_path / "lock")
    files.fail("pwrite", for_ever=True)
    files.crash(keep_all)
    for call in (lambda: old.pread(1, 0), lambda: old.pwrite(b"x", 0), old.sync, old.length):
        with pytest.raises(SimulatedCrash):
            call()
    old.close()
    lock.release()
    files.lock(tmp_path / "lock").release()
    with files.open(tmp_path / "one") as new:
        new.pwrite(b"C", 0)
        assert new.pread(10, 0) == b"Content"


def test_sync_points_number_the_syncs_among_the_changes(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "one", b"content") as file:
        assert files.changes == 2
        file.sync()
        file.pread(1, 0)
        file.set_length(3)
        files.sync_folder(tmp_path)
    assert files.sync_points == [3, 5]
    assert files.changes == 5


def test_a_bit_flips(files: FaultyFiles, tmp_path: Path) -> None:
    open_new(files, tmp_path / "one", b"\x00\x00\x00").close()
    files.flip_bit(tmp_path / "one", 1, bit=3)
    assert files.read(tmp_path / "one") == b"\x00\x08\x00"
    files.flip_bit(tmp_path / "one", 1, bit=3)
    assert files.read(tmp_path / "one") == b"\x00\x00\x00"


def test_a_file_is_cut(files: FaultyFiles, tmp_path: Path) -> None:
    open_new(files, tmp_path / "one", b"content").close()
    files.sync_folder(tmp_path)
    files.truncate(tmp_path / "one", 3)
    files.crash(drop_all)
    assert files.read(tmp_path / "one") == b"con"


def test_a_cold_disk_and_a_full_one(files: FaultyFiles, tmp_path: Path) -> None:
    with open_new(files, tmp_path / "one", b"content") as file:
        files.chill()
        assert file.pread_nowait(3, 0) is None
        assert file.pread(3, 0) == b"con"
    files.usage = DiskUsage(total_bytes=100, free_bytes=5, usable_bytes=5)
    assert files.disk_usage(tmp_path).used_ratio == 0.95
