"""A second crash, while recovery is still at work, does not start the walk over the log again."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.recovery import recovery
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.recovery.log_walk import LogWalk, WalkStep
from kourou.store.settings import FlushDiskType
from kourou.testing.crash_writer import crash_config, now_ms
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.store_check import assert_store_ok
from kourou.testing.survival import Survival, drop_all, keep_all
from tests.crash.ledger import read_queue
from tests.crash.rounds import each_round, summaries
from tests.crash.workload import Workload

PROGRESS_BYTES = 8 * 1024
STEP_BYTES = 16 * 1024
"""A step of the walk goes to the end of a file at most."""


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[WalkStep]:
    """Every step that is walked over the log; progress is kept often."""
    steps: list[WalkStep] = []
    step = LogWalk.step

    def noting(self: LogWalk, phy_offset: int) -> WalkStep:
        steps.append(step(self, phy_offset))
        return steps[-1]

    monkeypatch.setattr(LogWalk, "step", noting)
    monkeypatch.setattr(recovery, "_WRITE_BYTES", PROGRESS_BYTES // 2)
    monkeypatch.setattr(recovery, "_PROGRESS_BYTES", PROGRESS_BYTES)
    return steps


def store_to_walk(root: Path, files: FaultyFiles) -> Workload:
    """A killed store all of whose log has to be walked: what is derived is gone."""
    root.mkdir()
    work = Workload(root / "store", files, 2, FlushDiskType.SYNC_FLUSH)
    work.open()
    for _ in range(60):
        work.send()
    files.crash(keep_all)
    shutil.rmtree(root / "store" / "consumequeue", ignore_errors=True)
    shutil.rmtree(root / "store" / "index", ignore_errors=True)
    (root / "store" / "checkpoint").unlink()
    return work


@pytest.mark.parametrize("survival", [keep_all, drop_all], ids=["kill", "power loss"])
def test_a_second_crash_goes_on_where_the_first_recovery_was(
    folder: Path, walked: list[WalkStep], survival: Survival
) -> None:
    files = FaultyFiles()

    def one_round(seed: int) -> None:
        work = store_to_walk(folder / str(seed), files)
        crash_at = random.Random(seed).randint(1, 400)
        walked.clear()
        files.crash_at(crash_at)
        try:
            work.open()
        except SimulatedCrash:
            files.crash(survival)
            reached = walked[-1].end_phy_offset if walked else 0
            work.open()
            # Only what lies behind the last progress that was kept is walked twice.
            assert reached - work.store.report.start_phy_offset <= PROGRESS_BYTES + 2 * STEP_BYTES
        assert walked
        work.settle()
        files.crash(keep_all)
        shutil.rmtree(folder / str(seed))

    each_round("second crash in recovery", one_round, seconds=0.75, full=300)


# -- for real ------------------------------------------------------------------------------------

LOG_FILE_BYTES = 64 * 1024 * 1024
LOG_BYTES = 4 * LOG_FILE_BYTES


WITH_PROGRESS = """
import sys
from kourou.store.recovery import recovery
from kourou.testing.crash_writer import main

recovery._WRITE_BYTES, recovery._PROGRESS_BYTES = map(int, sys.argv.pop().split(","))
main()
"""


def start_writer(
    root: Path,
    flush: FlushDiskType,
    *,
    write_bytes: int = LOG_FILE_BYTES // 4,
    progress_bytes: int = LOG_FILE_BYTES,
) -> subprocess.Popen[bytes]:
    """Its recovery writes what it derives, and keeps progress, whenever it has walked so much of the log."""
    return subprocess.Popen(
        [sys.executable, "-c", WITH_PROGRESS, str(root), "1", "--log-file-bytes", str(LOG_FILE_BYTES)]
        + ["--flush", flush.value, f"{write_bytes},{progress_bytes}"],
        stdout=subprocess.DEVNULL,
    )


def killed_store(root: Path) -> None:
    """A store with several log files, all of which have to be walked: what is derived is gone."""
    last = root / "commitlog" / f"{LOG_BYTES:020d}"
    writer = start_writer(root, FlushDiskType.ASYNC_FLUSH)
    wait_until(writer, last.exists)
    kill(writer)
    for derived in ("consumequeue", "index"):
        shutil.rmtree(root / derived)
    (root / "checkpoint").unlink()


def wait_until(writer: subprocess.Popen[bytes], is_so: object, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    assert callable(is_so)
    while not is_so():
        assert writer.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)


def kill(writer: subprocess.Popen[bytes]) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.wait()


def derived_phy_offset(root: Path) -> int:
    """How far a recovery has come, as it noted."""
    checkpoint = StoreCheckpoint(Files(), root / "checkpoint")
    checkpoint.load()
    return checkpoint.logics_physical_offset


@pytest.mark.slow
def test_a_second_kill_of_a_real_recovery_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    killed_store(root)
    writer = start_writer(root, FlushDiskType.SYNC_FLUSH)
    wait_until(writer, lambda: derived_phy_offset(root) > 0)
    kill(writer)
    reached = derived_phy_offset(root)

    began = time.monotonic()
    config = crash_config(root, LOG_FILE_BYTES)
    store = MessageStore.open(config, Files(), now_ms)
    took_s = time.monotonic() - began
    assert store.report.start_phy_offset >= reached > 0
    walked = store.log.max_phy_offset - store.report.start_phy_offset
    assert_readable(store)
    store.close()
    summaries.append(
        f"second kill in recovery: {reached >> 20} MiB were done, {walked >> 20} MiB walked in {took_s:.1f} s"
    )


@pytest.mark.slow
def test_a_second_kill_before_anything_was_synced_finds_the_store_whole(tmp_path: Path) -> None:
    """The first recovery has written queues and index, and has noted no progress."""
    root = tmp_path / "store"
    killed_store(root)
    writer = start_writer(root, FlushDiskType.SYNC_FLUSH, progress_bytes=1 << 40)
    wait_until(writer, lambda: any((root / "consumequeue").glob("*/*/*")))
    kill(writer)
    assert derived_phy_offset(root) == 0, "the recovery was over"

    store = MessageStore.open(crash_config(root, LOG_FILE_BYTES), Files(), now_ms)
    assert store.report.start_phy_offset == 0 and store.report.records > 0
    assert sum(queue.max_queue_offset for queue in store.queues.items()) == store.report.records
    assert_readable(store)
    store.close()
    assert_store_ok(root)


def assert_readable(store: MessageStore) -> None:
    assert all(
        read_queue(store, queue.topic, queue.queue_id, queue.max_queue_offset - 10)
        for queue in store.queues.items()
    )
