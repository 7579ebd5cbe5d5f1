"""ReplicaLog: the log of a slave has its master's bytes, and derives the same from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.message_store import MessageStore
from kourou.store.replica.replica_log import ReplicaError, ReplicaLog
from tests.unit.store.message_stores import StoreKit, body_for, put
from tests.unit.store.recovery.test_log_walk import FILE_BYTES, derived, fill


@pytest.fixture
def kits(tmp_path: Path) -> Iterator[tuple[StoreKit, StoreKit]]:
    def kit(name: str) -> StoreKit:
        return StoreKit(tmp_path / name, commit_log_file_bytes=FILE_BYTES, index_slots=64, index_entries=256)

    with kit("master") as master, kit("slave") as slave:
        yield master, slave


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    raw = b""
    while start + len(raw) < end:
        at = start + len(raw)
        raw += store.log.read(at, min(end - at, FILE_BYTES - at % FILE_BYTES)) or b""
    return raw


def copy(
    master: MessageStore, replica: ReplicaLog, start: int, end: int, max_bytes: int, seed: int = 1
) -> None:
    """Send part of a master's log in pieces of random sizes, none of which lies in two files."""
    sizes = random.Random(seed)
    while start < end:
        size = min(sizes.randint(1, max_bytes), end - start, FILE_BYTES - start % FILE_BYTES)
        replica.append(start, log_bytes(master, start, start + size))
        replica.dispatch()
        start += size


@pytest.mark.parametrize("max_bytes", [100, 3_000, 40_000])
def test_a_slave_derives_what_its_master_has(kits: tuple[StoreKit, StoreKit], max_bytes: int) -> None:
    master, slave = (kit.open() for kit in kits)
    fill(master)
    end = master.log.max_phy_offset
    arrived: list[str] = []
    slave.dispatcher.on_arrival.append(lambda queues: arrived.extend(queue.topic for queue in queues))
    copy(master, slave.replica_log(), 0, end, max_bytes)
    assert log_bytes(slave, 0, end) == log_bytes(master, 0, end)
    assert derived(slave) == derived(master)
    assert {"t0", "t1", "t2"} <= set(arrived)
    assert slave.log.incomplete_bytes == 0


def test_a_record_may_be_larger_than_what_is_read_at_once(
    kits: tuple[StoreKit, StoreKit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.store.replica.replica_log._PIECE_BYTES", 100)
    master, slave = (kit.open() for kit in kits)
    for size in (10, 5_000, 20):
        put(master, body_for(size), "t0", 0)
    copy(master, slave.replica_log(), 0, master.log.max_phy_offset, 700)
    assert slave.max_offset_in_queue("t0", 0) == 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restarted_slave_goes_on_behind_its_last_whole_record(
    kits: tuple[StoreKit, StoreKit], is_clean: bool
) -> None:
    master, slave = (kit.open() for kit in kits)
    fill(master)
    whole = master.log.max_phy_offset
    put(master, body_for(1_000))
    end = master.log.max_phy_offset
    copy(master, slave.replica_log(), 0, whole + 300, 5_000)
    assert slave.log.incomplete_bytes == 300
    slave.flush()
    assert slave.checkpoint.durable_phy_offset == whole
    if is_clean:
        slave.close()
    else:
        slave.abandon()
    slave = kits[1].open()
    assert slave.log.max_phy_offset == whole
    assert slave.report.damages == []
    copy(master, slave.replica_log(), whole, end, 5_000)
    assert derived(slave) == derived(master)


def test_a_new_slave_may_begin_with_a_later_file(kits: tuple[StoreKit, StoreKit]) -> None:
    master, slave = (kit.open() for kit in kits)
    fill(master)
    put(master, b"in the last file", "t0", 0)
    end = master.log.max_phy_offset
    start = end - end % FILE_BYTES
    copy(master, slave.replica_log(), start, end, 5_000)
    assert (slave.log.min_phy_offset, slave.log.max_phy_offset) == (start, end)
    slave.close()
    slave = kits[1].open()
    assert log_bytes(slave, start, end) == log_bytes(master, start, end)
    assert slave.max_offset_in_queue("t0", 0) == master.max_offset_in_queue("t0", 0)


def test_bytes_that_do_not_continue_the_log_are_refused(kits: tuple[StoreKit, StoreKit]) -> None:
    master, slave = (kit.open() for kit in kits)
    fill(master)
    replica = slave.replica_log()
    with pytest.raises(ReplicaError, match="the first bytes of a log begin a file; the master sends 8"):
        replica.append(8, b"x" * 10)
    assert replica.is_empty
    copy(master, replica, 0, 1_000, 100)
    for wrong in (999, 1_001):
        with pytest.raises(ReplicaError, match=f"this log ends at 1000, the master sends {wrong}"):
            replica.append(wrong, b"x")
    assert slave.log.max_phy_offset == 1_000


@pytest.mark.parametrize("raw", [b"no record at all, but long enough to be one" * 10, bytes(100)])
def test_what_is_not_a_record_is_reported_and_never_dispatched(
    kits: tuple[StoreKit, StoreKit], raw: bytes
) -> None:
    master, slave = (kit.open() for kit in kits)
    put(master, b"one")
    end = master.log.max_phy_offset
    replica = slave.replica_log()
    copy(master, replica, 0, end, 1_000)
    replica.append(end, raw)
    with pytest.raises(ReplicaError, match=f"what the master sent at {end} is not a record"):
        replica.dispatch()
    assert slave.max_offset_in_queue("t0", 0) == master.max_offset_in_queue("t0", 0)
    assert slave.log.incomplete_bytes == len(raw)
