"""StoreLock: one owner, and the trace of one that was killed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kourou.errors import StorageError, StoreLockedError
from kourou.store.disk.files import Files
from kourou.store.disk.store_lock import StoreLock
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.survival import drop_all


def test_a_clean_life(tmp_path: Path) -> None:
    with StoreLock.acquire(Files(), tmp_path) as lock:
        assert lock.was_clean
        lock.mark_open()
        assert (tmp_path / "abort").read_text() == str(os.getpid())
        lock.mark_clean()
        assert not (tmp_path / "abort").exists()
    with StoreLock.acquire(Files(), tmp_path) as lock:
        assert lock.was_clean


def test_an_owner_that_died_leaves_abort(tmp_path: Path) -> None:
    files = FaultyFiles()
    StoreLock.acquire(files, tmp_path).mark_open()
    files.crash(drop_all)
    with StoreLock.acquire(files, tmp_path) as lock:
        assert not lock.was_clean


def test_a_removed_abort_does_not_come_back(tmp_path: Path) -> None:
    files = FaultyFiles()
    lock = StoreLock.acquire(files, tmp_path)
    lock.mark_open()
    lock.mark_clean()
    files.crash(drop_all)
    assert StoreLock.acquire(files, tmp_path).was_clean
    files.crash(drop_all)


def test_abort_of_another_program_counts_and_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "abort").write_text("1234567890")
    with StoreLock.acquire(Files(), tmp_path) as lock:
        assert not lock.was_clean
        lock.mark_open()
        assert (tmp_path / "abort").read_text() == str(os.getpid())


def test_a_store_in_use_is_refused_and_not_changed(tmp_path: Path) -> None:
    with StoreLock.acquire(Files(), tmp_path) as owner:
        owner.mark_open()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(StoreLockedError) as refused:
            StoreLock.acquire(Files(), tmp_path)
        assert refused.value.holder_pid == os.getpid()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_abort_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with StoreLock.acquire(Files(), tmp_path / "store", tmp_path / "marker") as lock:
        lock.mark_open()
    assert (tmp_path / "marker").exists()
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path, code: int) -> None:
    files = FaultyFiles()
    files.fail("lock", error=code)
    with pytest.raises(StorageError, match="lock: cannot be locked: .*; check owner and permissions"):
        StoreLock.acquire(files, tmp_path)
    assert list(tmp_path.iterdir()) == []
