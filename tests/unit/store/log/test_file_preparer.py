from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.store.log.commit_log import CommitLog
from kourou.store.log.file_preparer import FilePreparer
from kourou.testing.faulty_files import FaultyFiles

FILE_BYTES = 4096


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def log(tmp_path: Path, files: FaultyFiles) -> CommitLog:
    log = CommitLog(files, [tmp_path / "commitlog"], FILE_BYTES, read_window_bytes=1 << 20)
    log.load()
    return log


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "nothing happened for 10 s"
        time.sleep(0.001)


def test_the_file_behind_the_last_one_is_made_ahead_and_then_used(log: CommitLog, tmp_path: Path) -> None:
    preparer = FilePreparer(log)
    log.write(0, b"x" * 100)
    log.max_phy_offset = 100
    preparer.request_nowait()
    following = tmp_path / "commitlog" / f"{FILE_BYTES:020d}"
    wait_until(lambda: not log.wants_next_file)
    assert following.stat().st_size == FILE_BYTES
    log.write(FILE_BYTES, b"y")
    assert [log_file.start_phy_offset for log_file in log.log_files] == [0, FILE_BYTES]
    preparer.stop()
    log.close()


def test_a_file_that_was_not_used_is_removed_by_a_clean_stop(log: CommitLog, tmp_path: Path) -> None:
    preparer = FilePreparer(log)
    log.write(0, b"x")
    log.max_phy_offset = 1
    preparer.request_nowait()
    wait_until(lambda: not log.wants_next_file)
    preparer.stop()
    log.drop_prepared()
    log.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]


def test_nothing_is_made_for_a_log_without_files(log: CommitLog) -> None:
    preparer = FilePreparer(log)
    preparer.request_nowait()
    preparer.stop()
    assert not log.log_files
    assert not log.wants_next_file


def test_a_failure_is_logged_and_the_next_request_tries_again(
    log: CommitLog, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    preparer = FilePreparer(log, retry_s=0.01)
    log.write(0, b"x")
    log.max_phy_offset = 1
    files.fail("preallocate", 1, error=errno.ENOSPC)
    preparer.request_nowait()
    wait_until(lambda: "cannot be created yet" in caplog.text)
    wait_until(lambda: (preparer.request_nowait(), not log.wants_next_file)[1])
    preparer.stop()
    log.close()


def test_a_folder_that_is_gone_is_not_reported_here(
    log: CommitLog, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """log_watch.py does it, with the cure; a program that ends without a stop removes its folder silently."""
    preparer = FilePreparer(log, retry_s=0.01)
    log.write(0, b"x")
    log.max_phy_offset = 1
    files.fail("preallocate", 1, error=errno.ENOENT)
    wait_until(lambda: (preparer.request_nowait(), not log.wants_next_file)[1])
    preparer.stop()
    log.close()
    assert not caplog.records


def test_a_stop_while_a_file_is_being_made_ends_the_thread(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    working, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        working.set()
        go_on.wait(10)

    monkeypatch.setattr(log, "prepare_next", slow)
    preparer = FilePreparer(log)
    log.write(0, b"x")
    log.max_phy_offset = 1
    preparer.request_nowait()
    assert working.wait(10)
    stopping = threading.Thread(target=preparer.stop, daemon=True)
    stopping.start()
    wait_until(lambda: preparer._ended.is_set())
    go_on.set()
    stopping.join(10)
    assert not stopping.is_alive()
    log.close()
