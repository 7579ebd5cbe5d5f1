"""A process that cuts a log is killed, loses power or meets a disk that fails, at any step: the store can be
cut again, ends as one that never had the tail, and every byte of the tail is kept, once."""

from __future__ import annotations

import errno
import random
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from kourou.errors import StorageError
from kourou.protocol.layout import ORPHANED_TAIL
from kourou.store.disk.files import Files
from kourou.store.replica.orphaned_tail import ORPHANED_FOLDER, OrphanedTail
from kourou.testing.faults import CHANGES
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.store_check import assert_store_ok
from kourou.testing.survival import drop_all, keep_all
from tests.crash.rounds import each_round
from tests.unit.store.message_stores import StoreKit
from tests.unit.store.replica.cut_kit import (
    FILE_BYTES,
    SET_NAME,
    Script,
    cut,
    derived,
    epoch_starts,
    new_kit,
    set_epochs,
)

STEPS = 100


@dataclass(frozen=True)
class Template:
    """A closed store with a tail, where it is to be cut, and what is left then."""

    root: Path
    phy_offset: int
    tail: bytes
    expected: dict[str, object]

    def again(self, root: Path) -> tuple[StoreKit, FaultyFiles]:
        """The store anew."""
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.root, root)
        files = FaultyFiles()
        return new_kit(root, files), files

    def check(self, kit: StoreKit) -> None:
        """The store is cut, and the tail is kept in one file."""
        store = kit.open()
        assert derived(store) == self.expected
        store.close()
        assert_store_ok(kit.root)
        assert epoch_starts(kit.root) == ([0] if self.phy_offset else [])
        (path,) = (kit.root / ORPHANED_FOLDER).iterdir()
        with OrphanedTail.open(Files(), path) as tail:
            assert tail.problem() is None
        assert path.read_bytes()[ORPHANED_TAIL.size + len(SET_NAME) :] == self.tail


@pytest.fixture(params=[(40, True), (40, False), (0, True)], ids=["stopped", "killed", "nothing in common"])
def template(request: pytest.FixtureRequest, folder: Path) -> Template:
    script, (kept, is_stopped) = Script(7), request.param
    with new_kit(folder / "plain") as plain:
        store = plain.open()
        script.run(plain, store, range(kept))
        end = store.log.max_phy_offset
        store = plain.reopen(store)
        expected = derived(store)
    with new_kit(folder / "template") as kit:
        store = kit.open()
        script.run(kit, store, range(STEPS))
        log = store.log
        tail = b"".join(
            log.read(
                max(file.start_phy_offset, end),
                min(file.end_phy_offset, log.max_phy_offset) - max(file.start_phy_offset, end),
            )
            or b""
            for file in log.log_files
            if file.end_phy_offset > end
        )
        if is_stopped:
            store.close()
    assert len(tail) > 2 * FILE_BYTES
    set_epochs(kit.root, 0, end, end + 1_000)
    return Template(kit.root, end, tail, expected)


def interrupted(kit: StoreKit, phy_offset: int) -> bool:
    try:
        cut(kit, phy_offset)
    except SimulatedCrash:
        return True
    return False


def test_a_cut_that_is_killed_or_loses_power_is_made_again(folder: Path, template: Template) -> None:
    kit, files = template.again(folder / "store")
    cut(kit, template.phy_offset)
    steps = files.changes

    def one_round(seed: int) -> None:
        chance = random.Random(seed)
        kit, files = template.again(folder / "store")
        files.crash_at(chance.randint(1, steps))
        if interrupted(kit, template.phy_offset):
            files.crash(keep_all if chance.random() < 0.5 else seed)
            if chance.random() < 0.5:
                # As a slave that finds out only then that its log has parted.
                kit.open().close()
            cut(kit, template.phy_offset)
        template.check(kit)

    each_round("killed while a log is cut", one_round, seconds=1.0, full=1_000)


def test_what_a_cut_has_done_survives_a_power_loss(folder: Path, template: Template) -> None:
    kit, files = template.again(folder / "store")
    cut(kit, template.phy_offset)
    files.crash(drop_all)
    template.check(kit)


def test_a_cut_whose_disk_fails_is_made_again(folder: Path, template: Template) -> None:
    def one_round(seed: int) -> None:
        kit, files = template.again(folder / "store")
        chance = random.Random(seed)
        is_full = chance.random() < 0.5
        kinds = {"pwrite", "create", "preallocate"} if is_full else CHANGES
        error = errno.ENOSPC if is_full else errno.EIO
        files.fail(kinds, chance.randint(1, 100), error=error, for_ever=chance.random() < 0.5)
        with suppress(StorageError):
            cut(kit, template.phy_offset)
        files.heal()
        cut(kit, template.phy_offset)
        template.check(kit)

    each_round("a disk that fails while a log is cut", one_round, seconds=1.0, full=400)
