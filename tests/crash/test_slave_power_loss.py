"""Power loss of a slave over a simulated disk: what it finds again is the beginning of its master's log.

It goes on from there, and ends with the master's log and queues.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kourou.store.message_store import MessageStore
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from tests.crash.rounds import each_round, summaries
from tests.unit.store.message_stores import StoreKit
from tests.unit.store.recovery.test_log_walk import FILE_BYTES, derived, fill

NEVER = 1 << 60
_SIZES = {"commit_log_file_bytes": FILE_BYTES, "index_slots": 64, "index_entries": 256}


class Slave:
    """A store that follows another and loses power again and again."""

    def __init__(self, root: Path, master: MessageStore, raw: bytes, seed: int) -> None:
        self._chance = random.Random(seed)
        self._files = FaultyFiles()
        self._kit = StoreKit(root, self._files, **_SIZES)
        self._master = master
        self._raw = raw
        self.losses = 0

    def live(self) -> None:
        for _ in range(4):
            self._files.crash_at(self._chance.randint(1, 300))
            durable = 0
            try:
                store = self._open()
                durable = self._follow(store, len(self._raw))
            except SimulatedCrash:
                pass
            self._files.crash(self._chance.randrange(1 << 32))
            self._files.crash_at(NEVER)
            self.losses += 1
            store = self._open()
            assert store.log.max_phy_offset >= durable, "what was flushed is lost"
            store.abandon()
        store = self._open()
        self._follow(store, len(self._raw))
        assert store.log.max_phy_offset == len(self._raw)
        assert derived(store) == derived(self._master)
        store.close()
        self._kit.close()

    def _open(self) -> MessageStore:
        store = self._kit.open()
        end = store.log.max_phy_offset
        assert self._read(store, end) == self._raw[:end], "not the master's log"
        assert not store.report.damages
        return store

    def _follow(self, store: MessageStore, end: int) -> int:
        """Append and dispatch what is missing, with flushes in between; what is durable then."""
        replica = store.replica_log()
        while (at := store.log.max_phy_offset) < end:
            size = min(self._chance.randint(1, 9_000), end - at, FILE_BYTES - at % FILE_BYTES)
            replica.append(at, self._raw[at : at + size])
            replica.dispatch()
            if self._chance.random() < 0.1:
                store.flush()
            if self._chance.random() < 0.05:
                store.flush_derived(thorough=True)
        return store.checkpoint.durable_phy_offset

    def _read(self, store: MessageStore, end: int) -> bytes:
        raw = b""
        while len(raw) < end:
            at = len(raw)
            raw += store.log.read(at, min(end - at, FILE_BYTES - at % FILE_BYTES)) or b""
        return raw


def lives(folder: Path, *, seconds: float, full: int) -> None:
    losses = 0
    with StoreKit(folder / "master", **_SIZES) as kit:
        master = kit.open()
        fill(master)
        end = master.log.max_phy_offset
        raw = b"".join(
            master.log.read(at, min(FILE_BYTES, end - at)) or b"" for at in range(0, end, FILE_BYTES)
        )

        def life(seed: int) -> None:
            nonlocal losses
            slave = Slave(folder / str(seed), master, raw, seed)
            slave.live()
            losses += slave.losses
            shutil.rmtree(folder / str(seed))

        each_round("power loss of a slave", life, seconds=seconds, full=full)
    summaries.append(f"power loss of a slave: {losses} losses in all")


def test_power_loss_of_a_slave_at_random_calls(folder: Path) -> None:
    lives(folder, seconds=1.5, full=20)


@pytest.mark.nightly
def test_power_loss_of_a_slave_at_very_many_random_calls(folder: Path) -> None:
    lives(folder, seconds=0, full=250)
