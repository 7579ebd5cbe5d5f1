"""Recovery: kills, second kills, lost derived files, torn tails, files that are gone."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.protocol.record import decode_records
from kourou.store.disk.files import Files
from kourou.store.log.log_file import LogFile
from kourou.store.message_store import MessageStore
from kourou.store.queue.cq_unit import UNIT_BYTES
from kourou.store.settings import FlushDiskType, MessageStoreConfig
from kourou.testing.faulty_files import SimulatedCrash
from kourou.testing.store_check import assert_store_ok
from kourou.testing.survival import drop_all, keep_all
from tests.unit.store.message_stores import (
    LOG_FILE_BYTES,
    StoreKit,
    faulty,
    listing,
    put,
)
from tests.unit.store.numbered_messages import (
    DERIVED,
    assert_all,
    fill,
    found_keys,
    lose,
    numbers,
    tear,
)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


# -- kills ---------------------------------------------------------------------------------------


def test_nothing_that_was_written_is_lost_by_a_kill(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 70)
    store = kit.kill(store)
    assert not store.report.clean_exit
    assert_all(store, 70)
    fill(store, 5, 70)
    assert_all(store, 75)
    store.close()
    assert_store_ok(kit.root)


def test_a_killed_store_is_read_from_where_all_was_durable_and_derived(
    kit: StoreKit, store: MessageStore
) -> None:
    fill(store, 40)
    store.flush()
    store.flush_derived(thorough=True)
    fill(store, 10, 40)
    store = kit.kill(store)
    assert (store.report.start_phy_offset, store.report.records) == (LOG_FILE_BYTES + 4000, 10)
    assert_all(store, 50)


def test_a_kill_after_a_recovery_does_not_read_the_same_again(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 70)
    end = store.log.max_phy_offset
    assert kit.kill(store).report.records == 70
    again = kit.kill(kit.stores[-1])
    assert (again.report.start_phy_offset, again.report.records) == (end, 0)
    assert_all(again, 70)


def test_kills_during_recovery_do_not_start_it_over(
    kit: StoreKit, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 200)
    store.abandon()
    monkeypatch.setattr("kourou.store.recovery.recovery._PROGRESS_BYTES", LOG_FILE_BYTES)
    starts = []
    for step in (60, 90, 90, 90):
        faulty(kit).crash_at(step)
        try:
            store = kit.open()
        except SimulatedCrash:
            faulty(kit).crash(keep_all)
            continue
        starts.append(store.report.start_phy_offset)
        break
    else:
        store = kit.open()
        starts.append(store.report.start_phy_offset)
    assert starts[-1] > 0
    assert_all(store, 200)


@pytest.mark.parametrize("survival", [drop_all, keep_all], ids=["drop", "keep"])
def test_a_power_loss_at_every_change_that_recovery_makes(
    kit: StoreKit, monkeypatch: pytest.MonkeyPatch, survival: Callable[..., int]
) -> None:
    monkeypatch.setattr("kourou.store.recovery.recovery._PROGRESS_BYTES", LOG_FILE_BYTES)
    store = kit.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    fill(store, 50)
    store.abandon()
    faulty(kit).crash(keep_all)
    for step in itertools.count(1):
        faulty(kit).crash_at(step)
        try:
            store = kit.open()
        except SimulatedCrash:
            faulty(kit).crash(survival)
            continue
        break
    assert step > 2
    faulty(kit).crash(keep_all)
    assert_all(kit.open(), 50)


def test_what_is_derived_is_written_before_it_is_synced(
    kit: StoreKit, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it grows in memory with the log, and a second kill finds files that no checkpoint covers."""
    monkeypatch.setattr("kourou.store.recovery.recovery._WRITE_BYTES", LOG_FILE_BYTES)
    monkeypatch.setattr("kourou.store.store_flush.LEAST_FLUSH_BYTES", 1)
    fill(store, 200)
    store.abandon()
    waiting: list[int] = []
    flush_derived = MessageStore.flush_derived

    def dying(self: MessageStore, *, thorough: bool) -> bool:
        if thorough:
            raise SimulatedCrash
        waiting.append(sum(queue.unflushed_bytes for queue in self.queues.items()))
        return flush_derived(self, thorough=False)

    with monkeypatch.context() as patch, pytest.raises(SimulatedCrash):
        patch.setattr(MessageStore, "flush_derived", dying)
        kit.open()
    assert len(waiting) > 2 and max(waiting) < 100 * UNIT_BYTES
    faulty(kit).crash(keep_all)
    store = kit.open()
    assert (store.report.start_phy_offset, store.report.records) == (0, 200)
    assert_all(store, 200)


def test_what_recovery_writes_again_is_not_taken_for_another_programs(
    kit: StoreKit, store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What may have missed its sync is written once more: that changes the times of the files."""
    store.flush()
    fill(store, 200)
    store.abandon()
    monkeypatch.setattr("kourou.store.recovery.recovery._WRITE_BYTES", LOG_FILE_BYTES // 4)
    monkeypatch.setattr("kourou.store.recovery.recovery._PROGRESS_BYTES", LOG_FILE_BYTES)
    write_again = LogFile.write_again
    written: list[int] = []

    def noting(self: LogFile, position: int, end: int) -> None:
        write_again(self, position, end)
        written.append(end - position)
        moved_ns = self.file.status().modified_ns + 1_000_000_000
        os.utime(self.path, ns=(moved_ns, moved_ns))

    monkeypatch.setattr(LogFile, "write_again", noting)
    store = kit.open()
    assert len(written) > 2
    assert_all(store, 200)
    assert "something else has written" not in caplog.text


def test_with_sync_flush_a_power_loss_loses_nothing_that_was_answered(kit: StoreKit) -> None:
    store = kit.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    fill(store, 50)
    faulty(kit).crash(drop_all)
    store = kit.open()
    assert_all(store, 50)
    assert store.report.damages == []


def test_what_is_shown_after_a_kill_survives_a_power_loss(kit: StoreKit, store: MessageStore) -> None:
    """Consumers see it from then on: recovery has to make it durable first."""
    fill(store, 30)
    store = kit.kill(store)
    assert_all(store, 30)
    faulty(kit).crash(drop_all)
    assert_all(kit.open(), 30)


def test_queues_ahead_of_a_log_that_lost_its_tail_are_cut(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 30)
    store.flush()
    fill(store, 20, 30)
    store.flush_derived(thorough=True)
    faulty(kit).crash(lambda times: 0)
    store = kit.open()
    assert_all(store, 30)
    assert found_keys(store, 50) == list(range(30))
    fill(store, 10, 30)
    assert_all(kit.kill(store), 40)


# -- derived files -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    "names",
    [
        *itertools.combinations(DERIVED, 1),
        *(pytest.param(two, marks=pytest.mark.nightly) for two in itertools.combinations(DERIVED, 2)),
    ],
)
def test_derived_files_that_got_lost_are_rebuilt(
    kit: StoreKit, names: tuple[str, ...], is_clean: bool
) -> None:
    store = kit.open()
    fill(store, 70)
    store.flush()
    store.flush_derived(thorough=True)
    if is_clean:
        store.close()
    else:
        fill(store, 5, 70)
        store.abandon()
    lose(kit.root, names)
    store = kit.open()
    assert_all(store, 70 if is_clean else 75)
    assert store.report.damages == []
    store.close()
    assert_store_ok(kit.root)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_everything_derived_may_get_lost_at_once(kit: StoreKit, is_clean: bool) -> None:
    store = kit.open()
    fill(store, 70)
    if is_clean:
        store.close()
    else:
        store.abandon()
    for path in kit.root.iterdir():
        if path.name not in ("commitlog", "abort"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    store = kit.open()
    assert_all(store, 70)
    store.close()
    assert_store_ok(kit.root)


def test_the_first_file_of_the_log_may_be_gone_when_queues_are_rebuilt(
    kit: StoreKit, store: MessageStore
) -> None:
    fill(store, 70)
    store.flush()
    store.log.delete_first()
    store.close()
    lose(kit.root, ("all queues", "index"))
    store = kit.open()
    assert numbers(store) == list(range(20, 70))
    assert store.min_offset_in_queue("orders", 0) == 7
    assert put(store, b"next").queue_offset == 24


@pytest.mark.parametrize("lost", [(), ("snapshot",), ("checkpoint",), ("checkpoint", "snapshot")])
def test_a_queue_whose_messages_are_all_gone_goes_on_counting(
    kit: StoreKit, store: MessageStore, lost: tuple[str, ...]
) -> None:
    """Its units point at a file that was deleted: they once counted as wrong after a kill."""
    put(store, b"old", "idle")
    put(store, b"old", "idle")
    fill(store, 45)
    store.flush()
    store.flush_derived(thorough=True)
    store.log.delete_first()
    store.queues.delete_expired(store.log.min_phy_offset)
    store.abandon()
    lose(kit.root, lost)
    store = kit.open()
    assert (store.min_offset_in_queue("idle", 0), store.max_offset_in_queue("idle", 0)) == (2, 2)
    assert put(store, b"new", "idle").queue_offset == 2


@pytest.mark.parametrize("name", ["checkpoint", "consumequeue.snapshot"])
@pytest.mark.parametrize("content", [b"", b"garbage", bytes(4096), b"\xff" * 4096])
def test_garbage_in_a_derived_file_is_not_believed(kit: StoreKit, name: str, content: bytes) -> None:
    for is_clean in (True, False):
        store = kit.open()
        fill(store, 10, 10 * (not is_clean))
        store.flush_derived(thorough=True)
        if is_clean:
            store.close()
        else:
            store.abandon()
        (kit.root / name).write_bytes(content)
    assert_all(kit.open(), 20)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("position", [3, 10, 19])
def test_a_flipped_bit_in_the_last_unit_of_a_queue(kit: StoreKit, is_clean: bool, position: int) -> None:
    """The unit points nowhere, or far behind the log: then everything would count as dispatched."""
    store = kit.open()
    fill(store, 40)
    store.flush()
    store.flush_derived(thorough=True)
    unit_at = (store.max_offset_in_queue("orders", 0) - 1) % 10 * 20
    store.close()
    path = max((kit.root / "consumequeue" / "orders" / "0").iterdir())
    faulty(kit).flip_bit(path, unit_at + position, 1)
    (kit.root / "consumequeue.snapshot").unlink()
    if not is_clean:
        (kit.root / "abort").touch()
    store = kit.open()
    assert_all(store, 40)


# -- torn tails ----------------------------------------------------------------------------------


def test_a_torn_record_at_the_end_is_cut_off(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 30)
    end = store.log.max_phy_offset
    store.abandon()
    tear(kit, end - 100)
    store = kit.open()
    assert_all(store, 29)
    assert store.report.truncated_at == store.log.max_phy_offset == end - 200
    assert (store.report.quarantine, store.report.damages) == (None, [])
    assert store.log.written_end(end - 200) == end - 200
    fill(store, 3, 29)
    assert_all(kit.kill(store), 32)


def test_a_torn_record_with_whole_ones_behind_it_is_saved_before_it_is_cut_off(
    kit: StoreKit, store: MessageStore
) -> None:
    fill(store, 20)
    store.flush()
    fill(store, 30, 20)
    end = store.log.max_phy_offset
    store.abandon()
    torn_at = LOG_FILE_BYTES + 2 * 200
    tear(kit, torn_at + 100)
    store = kit.open()
    assert_all(store, 22)
    saved = store.report.quarantine
    assert saved == kit.root / "quarantine" / f"{torn_at:020d}-{end:020d}"
    raw = saved.read_bytes()
    assert len(raw) == end - torn_at
    assert [int(m.body[:3]) for m in decode_records(raw[200 : 200 * 18])] == list(range(23, 40))
    assert len(store.log.log_files) == 2
    store.close()
    assert_store_ok(kit.root)


def test_if_the_tail_cannot_be_saved_nothing_is_cut_off(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 30)
    store.abandon()
    tear(kit, 10 * 200 + 100)
    before = listing(kit.root / "commitlog")
    faulty(kit).fail("pwrite", for_ever=True, part_of_path="quarantine")
    with pytest.raises(Exception, match="the store cannot be opened"):
        kit.open()
    assert listing(kit.root / "commitlog") == before
    faulty(kit).heal()
    assert kit.open().report.quarantine is not None


def test_an_empty_file_behind_the_end_is_kept_if_it_is_the_next_one(
    kit: StoreKit, store: MessageStore
) -> None:
    fill(store, 25)
    store.log.prepare_next()
    store = kit.kill(store)
    assert_all(store, 25)
    assert [file.start_phy_offset for file in store.log.log_files] == [0, LOG_FILE_BYTES]
    store.close()
    assert_store_ok(kit.root)


def test_a_blank_at_the_end_of_the_last_file_is_not_overwritten(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 21)
    store.abandon()
    kit.files.remove(kit.root / "commitlog" / f"{LOG_FILE_BYTES:020d}")
    kit.files.remove(kit.root / "checkpoint")
    store = kit.open()
    assert_all(store, 20)
    assert store.log.max_phy_offset == LOG_FILE_BYTES
    fill(store, 1, 20)
    assert_all(store, 21)


# -- files that are gone -------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_a_log_that_lost_its_last_files_is_not_opened(
    kit: StoreKit, store: MessageStore, is_clean: bool
) -> None:
    fill(store, 50)
    store.flush()
    end = store.log.max_phy_offset
    if is_clean:
        store.close()
    else:
        store.abandon()
    last = max((kit.root / "commitlog").iterdir())
    last.rename(kit.root.parent / last.name)
    before = listing(kit.root, without=("lock",))
    with pytest.raises(StoreFormatError, match=f"end at {2 * LOG_FILE_BYTES}, but it went to {end}; put the"):
        kit.open()
    assert listing(kit.root, without=("lock",)) == before
    (kit.root.parent / last.name).rename(last)
    assert_all(kit.open(), 50)


def test_queues_without_a_log_are_not_thrown_away(kit: StoreKit, store: MessageStore) -> None:
    """A wrong `storePathCommitLog` is enough to lose sight of the log."""
    kit.is_checked = False  # the check looks for the log where it was
    fill(store, 50)
    store.close()
    (kit.root / "commitlog").rename(kit.root / "elsewhere")
    (kit.root / "checkpoint").unlink()
    before = listing(kit.root, without=("lock",))
    with pytest.raises(StoreFormatError, match="the files of the CommitLog end at 0, but it went to"):
        kit.open()
    assert listing(kit.root, without=("lock",)) == before
    assert_all(kit.open(commit_log_folders=(kit.root / "elsewhere",)), 50)


def test_an_index_that_is_lost_with_the_first_record_as_its_only_one_is_made_anew(tmp_path: Path) -> None:
    config = MessageStoreConfig(
        root=tmp_path / "store",
        commit_log_file_bytes=64 * 1024,
        consume_queue_file_bytes=6000,
        index_slots=100,
        index_entries=400,
    )
    store = MessageStore.open(config, Files(), lambda: 1_700_000_000_000)
    store.put_message("a", 0, b"first", "KEYS\x01k1\x02")
    store.close()
    Files().remove_tree(config.root / "index")
    store = MessageStore.open(config, Files(), lambda: 1_700_000_000_000)
    assert [found.body for found in store.query_message("a", "k1", 10, 0, 1 << 62)] == [b"first"]
    store.close()
