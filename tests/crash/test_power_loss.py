"""Power loss over a simulated disk: the log that is found again holds every acknowledged message.

Whatever was not synced is kept, dropped, torn or reordered. Under sync flush a message is acknowledged
when its sync is done; under async flush a message is promised when a flush behind it is complete.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.settings import FlushDiskType
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.survival import Survival, drop_all, keep_all
from tests.crash.rounds import NIGHTLY, each_round, replayable, summaries, time_left
from tests.crash.workload import Workload

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
BOTH = pytest.mark.parametrize("flush", [SYNC, ASYNC], ids=["sync", "async"])
NEVER = 1 << 60


def finish(work: Workload, root: Path) -> None:
    """A last start on a disk that does not fail; then every invariant holds."""
    work.use(Files())
    work.open()
    work.settle()
    work.run(5)
    work.store.close()
    work.check()
    shutil.rmtree(root)


# -- at random calls -----------------------------------------------------------------------------


def recover(work: Workload, chance: random.Random) -> int:
    """Open the store again, which may lose power too; how often it did."""
    files = work.files
    assert isinstance(files, FaultyFiles)
    crashes = 0
    for _ in range(chance.choice((0, 0, 1, 2))):
        files.crash_at(chance.randint(1, 60))
        try:
            work.open()
        except SimulatedCrash:
            files.crash(chance.randrange(1 << 32))
            crashes += 1
        else:
            break
    else:
        files.crash_at(NEVER)
        work.open()
    files.crash_at(NEVER)
    return crashes


def life_of_a_store(root: Path, seed: int) -> int:
    """A store that loses power again and again, and goes on; how often it did."""
    chance = random.Random(seed)
    root.mkdir(parents=True)
    files = FaultyFiles()
    work = Workload(root / "store", files, seed, chance.choice((SYNC, SYNC, ASYNC)))
    crashes = 0
    for _ in range(4):
        files.crash_at(chance.randint(1, 400))
        try:
            work.open()
            work.run(steps=60)
        except SimulatedCrash:
            pass
        files.crash(chance.randrange(1 << 32))
        crashes += 2 + recover(work, chance)
        work.settle()
        files.crash(chance.randrange(1 << 32))
    finish(work, root)
    return crashes


def lives(folder: Path, *, seconds: float, full: int) -> None:
    crashes = 0

    def life(seed: int) -> None:
        nonlocal crashes
        crashes += life_of_a_store(folder / str(seed), seed)

    each_round("power loss at random calls", life, seconds=seconds, full=full)
    summaries.append(f"power loss at random calls: {crashes} losses in all")


def test_power_loss_at_random_calls(folder: Path) -> None:
    lives(folder, seconds=1.5, full=50)


@pytest.mark.nightly
def test_power_loss_at_very_many_random_calls(folder: Path) -> None:
    lives(folder, seconds=0, full=1_200)


# -- at every sync -------------------------------------------------------------------------------


def short_life(root: Path, flush: FlushDiskType, crash_at: int = NEVER) -> tuple[Workload, FaultyFiles]:
    """A short workload up to a crash."""
    root.mkdir(parents=True)
    files = FaultyFiles()
    work = Workload(root / "store", files, 11, flush)
    files.crash_at(crash_at)
    try:
        work.open()
        work.run(steps=25)
        work.store.close()
    except SimulatedCrash:
        pass
    files.crash_at(NEVER)
    return work, files


def sync_points(folder: Path, flush: FlushDiskType) -> list[int]:
    """The calls of the short workload that are syncs, and those right after one."""
    _, files = short_life(folder / "all", flush)
    files.crash(keep_all)
    return sorted({at for point in files.sync_points for at in (point, point + 1)} & {*range(files.changes)})


def crash_at_sync(folder: Path, flush: FlushDiskType, point: int, survival: int | Survival) -> None:
    work, files = short_life(folder, flush, point)
    files.crash(survival)
    work.open()
    work.settle()
    files.crash(keep_all)
    finish(work, folder)


@BOTH
def test_power_loss_at_some_syncs(folder: Path, flush: FlushDiskType) -> None:
    points = sync_points(folder, flush)
    each_round(
        f"power loss at syncs, {flush.value}",
        lambda seed: crash_at_sync(folder / "short", flush, random.Random(seed).choice(points), seed),
        seconds=1,
        full=100,
    )


@pytest.mark.slow
@BOTH
def test_power_loss_at_every_sync(folder: Path, flush: FlushDiskType) -> None:
    points = sync_points(folder, flush)
    survivals = [drop_all, *range(40 if NIGHTLY else 1)]
    began = time.monotonic()
    done = 0
    for survival in survivals:
        if done > 1 and not time_left(began, 0):
            break
        for point in points:
            with replayable(11, call=point, survival=survival):
                crash_at_sync(folder / "short", flush, point, survival)
        done += 1
    summaries.append(
        f"power loss at every sync, {flush.value}: {len(points)} calls, {done} losses each "
        f"in {time.monotonic() - began:.1f} s"
    )


# -- of one thing only ---------------------------------------------------------------------------


class AllBut:
    """Everything reaches the disk but one sector, length or name; or, with `only`, just that one."""

    def __init__(self, index: int, *, only: bool) -> None:
        self.asked = 0
        self._index = index
        self._only = only

    def __call__(self, times: Sequence[int]) -> int:
        is_it = self.asked == self._index
        self.asked += 1
        return len(times) if is_it == self._only else 0


@pytest.mark.parametrize(
    ("flush", "only"),
    [
        pytest.param(SYNC, False, id="lost-sync"),
        pytest.param(SYNC, True, id="kept-sync", marks=pytest.mark.slow),
        pytest.param(ASYNC, False, id="lost-async", marks=pytest.mark.slow),
        pytest.param(ASYNC, True, id="kept-async", marks=pytest.mark.slow),
    ],
)
def test_power_loss_that_takes_or_leaves_one_thing(folder: Path, flush: FlushDiskType, only: bool) -> None:
    """Units go through many files of a queue between two syncs: a hole may lie far before the end."""
    for index in itertools.count():
        root = folder / str(index)
        root.mkdir()
        files = FaultyFiles()
        work = Workload(root / "store", files, 3, flush)
        work.open()
        for step in range(40):
            work.send_to("orders", 0)
            if step % 4 == 0:
                work.flush_some_derived()
        survival = AllBut(index, only=only)
        files.crash(survival)
        work.open()
        work.settle()
        files.crash(keep_all)
        finish(work, root)
        if survival.asked <= index:
            return


# -- what a power loss must not undo -------------------------------------------------------------


def test_a_failed_sync_is_not_believed_after_a_restart(folder: Path) -> None:
    """The next process finds records in the page cache that the disk never got: it writes them again."""
    files = FaultyFiles()
    work = Workload(folder / "store", files, 1, SYNC)
    work.open()
    work.send()
    files.fail("sync", part_of_path="commitlog")
    work.send()
    assert work.store.appender.is_fenced
    work.store.close()
    work.open()
    assert not work.store.report.clean_exit
    work.settle()
    work.send()
    files.crash(drop_all)
    work.open()
    work.settle()
    assert not work.store.report.damages and work.store.report.quarantine is None


def test_a_new_store_in_a_new_folder_survives(folder: Path) -> None:
    files = FaultyFiles()
    work = Workload(folder / "new" / "store", files, 1, SYNC)
    work.open()
    work.send()
    files.crash(drop_all)
    work.open()
    work.settle()
    assert work.ledger.messages


def test_the_checkpoint_survives_a_thorough_flush(folder: Path) -> None:
    """Without it damage would look like a torn tail."""
    files = FaultyFiles()
    work = Workload(folder / "store", files, 1, SYNC)
    work.open()
    work.send()
    work.flush_derived()
    files.crash(drop_all)
    work.open()
    assert work.store.report.start_phy_offset == work.store.log.max_phy_offset > 0
