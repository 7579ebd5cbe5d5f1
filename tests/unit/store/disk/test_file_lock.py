"""FileLock: one holder, in this process and in others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kourou.errors import StoreLockedError
from kourou.store.disk import file_lock
from kourou.store.disk.file_lock import FileLock, is_locked
from kourou.store.disk.files import Files


def test_a_second_lock_in_this_process_is_refused(tmp_path: Path) -> None:
    lock = Files().lock(tmp_path / "lock")
    with pytest.raises(StoreLockedError, match=f"in use by process {os.getpid()};"):
        Files().lock(tmp_path / "lock")
    # The attempt that failed must not have cost the first its lock.
    with pytest.raises(StoreLockedError):
        Files().lock(tmp_path / "lock")
    lock.release()
    lock.release()
    with Files().lock(tmp_path / "lock"):
        pass


def test_the_file_begins_as_apaches(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("lock, and whatever somebody else wrote")
    with Files().lock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == f"lock\n{os.getpid()}\n"


def test_an_unknown_holder_is_just_another_process(tmp_path: Path) -> None:
    with Files().lock(tmp_path / "lock"):
        (tmp_path / "lock").write_text("lock")
        with pytest.raises(StoreLockedError, match="in use by another process") as refused:
            Files().lock(tmp_path / "lock")
    assert refused.value.holder_pid is None
    assert refused.value.path == tmp_path / "lock"


def test_what_is_no_lock_problem_stays_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Files().lock(tmp_path / "none" / "lock")


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert is_locked(path) is False and not path.exists()
    lock = FileLock.acquire(path)
    assert is_locked(path) is True
    assert is_locked(path) is True, "asking does not take it away"
    lock.release()
    assert is_locked(path) is False


def test_where_asking_would_lose_a_lock_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "_GET_LOCK", None)
    assert is_locked(tmp_path / "lock") is None
