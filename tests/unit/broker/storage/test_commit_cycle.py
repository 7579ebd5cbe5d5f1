"""The end of a pass on a disk that works, waits, and fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.testing.faulty_files import FaultyFiles
from tests.unit.store.message_stores import BORN_HOST, NOW_MS, StoreKit


class HandFlusher:
    """Syncs when the test says so."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.asked = 0

    def request_nowait(self) -> None:
        self.asked += 1

    def sync(self, commit_cycle: CommitCycle) -> None:
        self._store.flush()
        commit_cycle.flushed(self._store.log.flushed_phy_offset)


class Senders:
    """Puts messages, keeps the results of their sends."""

    def __init__(self, store: MessageStore, commit_cycle: CommitCycle) -> None:
        self._store = store
        self._commit_cycle = commit_cycle
        self.reported: list[PutStatus] = []

    def put(self, *, wait: bool = True) -> None:
        self._store.appender.put(
            self._store.queue("T", 0), b"body", b"", 0, (), NOW_MS, BORN_HOST, done=self._done, wait=wait
        )

    def send(self, *, wait: bool = True) -> None:
        self._commit_cycle.begin()
        self.put(wait=wait)
        self._commit_cycle.end()

    def _done(self, status: PutStatus, phy_offset: int, queue_offset: int) -> None:
        self.reported.append(status)

    @property
    def visible(self) -> int:
        return self._store.queue("T", 0).max_queue_offset


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store", FaultyFiles()) as kit:
        yield kit


def commit_cycle(store: MessageStore, *, sync: bool) -> CommitCycle:
    return CommitCycle(store, sync_flush_timeout_ms=5_000, waits_for_flush=sync, monotonic_ms=lambda: 700)


def test_without_waiting_for_the_disk_sends_are_acknowledged_after_the_write(kit: StoreKit) -> None:
    store = kit.open()
    end = commit_cycle(store, sync=False)
    senders = Senders(store, end)
    end.begin()
    senders.put()
    assert senders.reported == [] and senders.visible == 0
    end.end()
    assert senders.reported == [PutStatus.PUT_OK] and senders.visible == 1


def test_with_sync_flush_nothing_is_acknowledged_or_visible_before_the_sync(kit: StoreKit) -> None:
    store = kit.open()
    end, flusher = commit_cycle(store, sync=True), HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    senders = Senders(store, end)
    senders.send()
    assert (senders.reported, senders.visible, flusher.asked) == ([], 0, 1)
    assert end.is_waiting and end.waiting_bytes > 0
    flusher.sync(end)
    assert (senders.reported, senders.visible) == ([PutStatus.PUT_OK], 1)
    assert not end.is_waiting and end.waiting_bytes == 0


def test_when_sync_flush_is_switched_off_newer_messages_still_wait_for_older_ones(kit: StoreKit) -> None:
    store = kit.open()
    end, flusher = commit_cycle(store, sync=True), HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    senders = Senders(store, end)
    senders.send()
    end.waits_for_flush = False
    senders.send()
    assert (senders.reported, senders.visible) == ([], 0)
    flusher.sync(end)
    assert (senders.reported, senders.visible) == ([PutStatus.PUT_OK] * 2, 2)
    senders.send()
    assert (senders.reported, senders.visible) == ([PutStatus.PUT_OK] * 3, 3)


def test_a_send_that_does_not_wait_is_acknowledged_at_once(kit: StoreKit) -> None:
    store = kit.open()
    end, flusher = commit_cycle(store, sync=True), HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    senders = Senders(store, end)
    senders.send(wait=False)
    assert (senders.reported, senders.visible) == ([PutStatus.PUT_OK], 0)
    flusher.sync(end)
    assert (senders.reported, senders.visible) == ([PutStatus.PUT_OK], 1)


def test_a_sync_that_takes_too_long_is_reported_and_still_counts(kit: StoreKit) -> None:
    store = kit.open()
    end, flusher = commit_cycle(store, sync=True), HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    senders = Senders(store, end)
    senders.send()
    end.expire(700 + 4_999)
    assert senders.reported == []
    end.expire(700 + 5_000)
    assert senders.reported == [PutStatus.FLUSH_DISK_TIMEOUT]
    flusher.sync(end)
    assert senders.reported == [PutStatus.FLUSH_DISK_TIMEOUT] and senders.visible == 1


def test_a_write_that_fails_fails_its_whole_commit_cycle_and_leaves_nothing(kit: StoreKit) -> None:
    store = kit.open()
    end = commit_cycle(store, sync=False)
    senders = Senders(store, end)
    senders.send()
    assert isinstance(kit.files, FaultyFiles)
    kit.files.fail("pwrite", 1)
    end.begin()
    senders.put()
    senders.put()
    end.end()
    assert senders.reported[1:] == [PutStatus.SERVICE_NOT_AVAILABLE] * 2 and senders.visible == 1


def test_a_sync_that_fails_is_reported_and_its_messages_are_never_visible(kit: StoreKit) -> None:
    store = kit.open()
    end, flusher = commit_cycle(store, sync=True), HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    senders = Senders(store, end)
    senders.send()
    assert isinstance(kit.files, FaultyFiles)
    kit.files.fail("sync", 1)
    flusher.sync(end)
    assert store.appender.is_fenced
    assert (senders.reported, senders.visible) == ([PutStatus.SERVICE_NOT_AVAILABLE], 0)
    assert not end.is_waiting


# -- slaves ------------------------------------------------------------------------------------------


class Slaves:
    """Slaves that have nothing yet."""

    def is_enough(self, end_phy_offset: int) -> bool:
        return True

    def is_worth_waiting(self, end_phy_offset: int) -> bool:
        return True

    def mark(self, end_phy_offset: int) -> int:
        return -1


@pytest.mark.parametrize("sync", [True, False])
def test_when_slaves_are_no_longer_waited_for_older_messages_come_first(kit: StoreKit, sync: bool) -> None:
    store = kit.open()
    end = commit_cycle(store, sync=sync)
    flusher = HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    end.replicas = Slaves()
    senders = Senders(store, end)
    senders.send()
    flusher.sync(end)
    assert senders.reported == [] and senders.visible == 0
    end.replicas = None
    senders.send()
    flusher.sync(end)
    assert senders.reported == [PutStatus.PUT_OK] * 2 and senders.visible == 2


def test_what_was_collected_for_a_cycle_is_put_once_before_it_is_written(kit: StoreKit) -> None:
    store = kit.open()
    end = commit_cycle(store, sync=False)
    senders = Senders(store, end)

    def put_and_collect_more() -> None:
        senders.put()
        end.before_write.append(senders.put)

    end.begin()
    end.before_write.append(put_and_collect_more)
    end.end()
    assert senders.reported == [PutStatus.PUT_OK] * 2
    end.begin()
    end.end()
    assert senders.visible == 2


def test_what_fails_before_a_cycle_is_written_does_not_fail_the_next_one(kit: StoreKit) -> None:
    store = kit.open()
    end = commit_cycle(store, sync=False)
    senders = Senders(store, end)

    def broken() -> None:
        raise KeyError

    end.before_write += [broken, senders.put]
    with pytest.raises(KeyError):
        end.end()
    end.end()
    assert senders.reported == [PutStatus.PUT_OK]
