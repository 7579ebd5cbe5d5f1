"""A commit cycle that is one run of sends: written, published and answered without a batch, or with one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.protocol.record import RecordEncoder
from kourou.store.kernel import EncodedSends
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.queue.cq_unit import UNIT
from kourou.testing.faulty_files import FaultyFiles
from tests.unit.broker.storage.test_commit_cycle import HandFlusher, Slaves, commit_cycle
from tests.unit.store.message_stores import BORN_HOST, NOW_MS, STORE_HOST, StoreKit


class Sends:
    """Sends of one message, which it encodes or puts as the commit cycle asks for it."""

    def __init__(self, store: MessageStore, end: CommitCycle) -> None:
        self._store = store
        self._end = end
        self.runs = 0
        self.reported: list[PutStatus] = []

    def send(self) -> None:
        self._end.begin()
        self._end.fast_sends = self
        self._end.end()

    def put(self, *, is_alone: bool = False) -> EncodedSends | None:
        room = self._store.appender.lone_run_room() if is_alone else None
        if room is None:
            self._store.appender.put(
                self._store.queue("T", 0), b"body", b"", 0, (), NOW_MS, BORN_HOST, done=self._done
            )
            return None
        self.runs += 1
        queue = self._store.queue("T", 0)
        encoder = RecordEncoder("T", 0, STORE_HOST)
        parts = encoder.parts(b"body", b"", queue.next_queue_offset, room[0], room[2], NOW_MS, BORN_HOST)
        record = b"".join(parts)
        unit = UNIT.pack(room[0], len(record), 0)
        return (1, 0, 0), 1, [record], b"", [], [(queue, queue.next_queue_offset, unit)], b""

    def answer(self, answered: object, messages: int, cycle_ms: int, status: PutStatus) -> None:
        assert (messages, cycle_ms) == (1, NOW_MS)
        self.reported.append(status)

    def _done(self, status: PutStatus, _: int, __: int) -> None:
        self.reported.append(status)

    @property
    def visible(self) -> int:
        return self._store.queue("T", 0).max_queue_offset


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store", FaultyFiles()) as kit:
        yield kit


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    """A store with a file for the log, which the first message of all makes."""
    store = kit.open()
    end = commit_cycle(store, sync=False)
    sends = Sends(store, end)
    end.before_write.append(sends.put)
    end.end()
    return store


def test_a_run_that_nothing_waits_for_is_visible_and_acknowledged_after_its_write(
    store: MessageStore,
) -> None:
    end = commit_cycle(store, sync=False)
    sends, grown = Sends(store, end), []
    end.after_write.append(lambda: grown.append(store.max_phy_offset))
    before = store.max_phy_offset
    sends.send()
    assert (sends.runs, sends.visible, sends.reported) == (1, 2, [PutStatus.PUT_OK])
    assert store.dispatcher.dispatched_phy_offset == store.max_phy_offset > before
    assert end.written_messages == 1 and grown == [store.max_phy_offset]
    sends.send()
    assert (sends.runs, sends.visible, sends.reported) == (2, 3, [PutStatus.PUT_OK] * 2)


def _waits_for_flush(end: CommitCycle, _: MessageStore) -> None:
    end.waits_for_flush = True


def _waits_for_slaves(end: CommitCycle, _: MessageStore) -> None:
    end.replicas = Slaves()


def _asks_its_reign(end: CommitCycle, _: MessageStore) -> None:
    end.may_acknowledge = lambda: False


def _asks_before_it_writes(_: CommitCycle, store: MessageStore) -> None:
    store.appender.may_write = lambda: False


def _follows_messages_that_wait(end: CommitCycle, store: MessageStore) -> None:
    end.waits_for_flush = True
    Sends(store, end).send()
    end.waits_for_flush = False


@pytest.mark.parametrize(
    "condition",
    [
        _waits_for_flush,
        _waits_for_slaves,
        _asks_its_reign,
        _asks_before_it_writes,
        _follows_messages_that_wait,
    ],
)
def test_whatever_else_a_cycle_has_to_look_at_needs_a_batch(
    store: MessageStore, condition: Callable[[CommitCycle, MessageStore], None]
) -> None:
    end = commit_cycle(store, sync=False)
    flusher = HandFlusher(store)
    end.attach(flusher)  # type: ignore[arg-type]
    condition(end, store)
    sends = Sends(store, end)
    sends.send()
    assert sends.runs == 0 and sends.visible == 1
    assert PutStatus.PUT_OK not in sends.reported


def test_sends_beside_other_messages_of_their_cycle_need_a_batch(store: MessageStore) -> None:
    end = commit_cycle(store, sync=False)
    sends, others = Sends(store, end), Sends(store, end)
    end.before_write.append(others.put)
    sends.send()
    end.begin()
    others.put()
    sends.send()
    assert sends.runs == 0 and sends.visible == 5
    assert sends.reported == others.reported == [PutStatus.PUT_OK] * 2


@pytest.mark.parametrize("is_full", [False, True], ids=["broken", "full"])
def test_a_run_that_cannot_be_written_fails_and_leaves_nothing(
    kit: StoreKit, store: MessageStore, is_full: bool
) -> None:
    failed: list[int] = []
    end = CommitCycle(store, sync_flush_timeout_ms=1, waits_for_flush=False, count_failed=failed.append)
    sends, log_end = Sends(store, end), store.max_phy_offset
    assert isinstance(kit.files, FaultyFiles)
    kit.files.fail("pwrite", 1, error=errno.ENOSPC if is_full else errno.EIO)
    sends.send()
    assert (sends.reported, sends.visible, failed) == ([PutStatus.SERVICE_NOT_AVAILABLE], 1, [1])
    assert store.queue("T", 0).next_queue_offset == 1
    assert store.max_phy_offset == log_end and store.appender.pending_bytes == 0
    assert end.write_problem is not None and end.written_messages == 0
    assert store.is_fenced is not is_full
    if is_full:
        sends.send()
        assert sends.reported[1:] == [PutStatus.PUT_OK] and sends.visible == 2
        assert end.write_problem is None


def test_what_a_failed_write_may_have_left_is_undone_before_the_next_run(
    kit: StoreKit, store: MessageStore
) -> None:
    end = commit_cycle(store, sync=False)
    sends = Sends(store, end)
    assert isinstance(kit.files, FaultyFiles)
    # The write, and the zeros that are to undo it.
    kit.files.fail("pwrite", 1, error=errno.ENOSPC)
    kit.files.fail("pwrite", 2, error=errno.ENOSPC)
    sends.send()
    assert not store.appender.is_undone
    sends.send()
    assert sends.runs == 1 and store.appender.is_undone
    sends.send()
    assert sends.runs == 2 and sends.visible == 3


def test_a_hook_that_fails_costs_no_answer(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    store.dispatcher.on_publish.append(broken)
    store.dispatcher.on_arrival.append(broken)
    end = commit_cycle(store, sync=False)
    sends = Sends(store, end)
    sends.send()
    assert sends.runs == 1 and sends.reported == [PutStatus.PUT_OK]
    assert caplog.text.count("RuntimeError: a bug") == 2
