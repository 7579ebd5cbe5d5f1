"""Group commit: one sync at a time, everybody it covers is answered, a failed one fences."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.store.flush_job import FlushJob
from kourou.store.flusher import AckLine, Flusher
from kourou.store.log.put_batch import PutBatch
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.settings import FlushDiskType
from kourou.store.steps import run_steps
from tests.unit.store.message_stores import (
    BORN_HOST,
    LOG_FILE_BYTES,
    NOW_MS,
    StoreKit,
    bodies,
    body_for,
    faulty,
)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store", flush_disk_type=FlushDiskType.SYNC_FLUSH) as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


Answers = list[tuple[int, str]]


def written(
    store: MessageStore, answers: Answers, *names: int, wait: bool = True, size: int = 200
) -> PutBatch:
    """A pass with some messages, written and not published; answers come as (name, status)."""
    store.begin_cycle()
    for name in names:

        def done(status: PutStatus, _: int, __: int, name: int = name) -> None:
            answers.append((name, status.name))

        store.appender.put(
            store.queue("orders", 0),
            b"%03d" % name + body_for(size - 3),
            b"",
            tags_code=0,
            keys=(),
            born_timestamp=NOW_MS,
            born_host=BORN_HOST,
            done=done,
            wait=wait,
        )
    batch = store.write_cycle()
    assert batch is not None
    return batch


# -- AckLine -------------------------------------------------------------------------------------


def batches(count: int) -> list[PutBatch]:
    made = []
    for number in range(count):
        batch = PutBatch(number * 100, 1000, NOW_MS)
        batch.end_phy_offset = (number + 1) * 100
        made.append(batch)
    return made


def test_batches_come_out_in_log_order_when_the_mark_has_passed_their_end() -> None:
    line, (first, second, third) = AckLine(), batches(3)
    for batch in (first, second, third):
        line.hold(batch, 5000)
    assert line.advance(99) == []
    assert line.advance(200) == [first, second]
    assert line.advance(200) == []
    assert len(line) == 1
    assert line.advance(1000) == [third]


def test_a_batch_that_times_out_is_reported_once_and_still_completes_in_order() -> None:
    """It was once taken out of line and never published: the next ones landed in its place."""
    line, (first, second, third) = AckLine(), batches(3)
    for batch, deadline_ms in ((first, 10), (second, 20), (third, 30)):
        line.hold(batch, deadline_ms)
    assert line.expire(9) == []
    assert line.expire(20) == [first, second]
    assert line.expire(25) == []
    assert line.advance(100) == [first]
    assert line.expire(30) == [third]
    assert line.advance(300) == [second, third]
    line.hold(first, 40)
    assert line.expire(40) == [first]


def test_all_that_wait_fail_together() -> None:
    line, (first, second) = AckLine(), batches(2)
    line.hold(first, 10)
    line.hold(second, 10)
    assert line.expire(10) == [first, second]
    assert line.fail() == [first, second]
    assert len(line) == 0
    line.hold(first, 20)
    assert line.expire(20) == [first]


def test_each_send_is_answered_once(store: MessageStore) -> None:
    answers: Answers = []
    batch = written(store, answers, 1, 2)
    batch.answer(PutStatus.FLUSH_DISK_TIMEOUT)
    batch.answer(PutStatus.PUT_OK)
    batch.answer_unwaited(PutStatus.PUT_OK)
    assert answers == [(1, "FLUSH_DISK_TIMEOUT"), (2, "FLUSH_DISK_TIMEOUT")]


def test_a_send_whose_response_fails_costs_the_others_nothing(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    answers: Answers = []
    batch = written(store, answers, 1, 2)

    def broken(*_: object) -> None:
        raise RuntimeError("its connection is gone")

    batch.puts.insert(1, (broken, *batch.puts[0][1:]))
    batch.answer(PutStatus.PUT_OK)
    assert answers == [(1, "PUT_OK"), (2, "PUT_OK")]
    assert "its connection is gone" in caplog.text


def test_sends_that_do_not_wait_are_acknowledged_before_the_others(store: MessageStore) -> None:
    answers: Answers = []
    written(store, answers, 1)
    store.begin_cycle()
    batch = written(store, answers, 2, wait=False)
    batch.answer_unwaited(PutStatus.PUT_OK)
    batch.answer_unwaited(PutStatus.PUT_OK)
    assert answers == [(2, "PUT_OK")]
    batch.answer(PutStatus.FLUSH_DISK_TIMEOUT)
    assert answers == [(2, "PUT_OK")]


# -- Flusher -------------------------------------------------------------------------------------


class Owner:
    """The owner's thread as a broker has it: passes, a flusher, and what it posts."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.line = AckLine()
        self.answers: Answers = []
        self.flushed: list[int] = []
        self.posted: deque[Callable[[], None]] = deque()
        self._arrived = threading.Semaphore(0)
        self.flusher = Flusher(store, self._post, self._on_flushed)

    def _post(self, call: Callable[[], None]) -> None:
        self.posted.append(call)
        self._arrived.release()

    def _on_flushed(self, phy_offset: int) -> None:
        self.flushed.append(phy_offset)
        if self.store.appender.is_fenced:
            for batch in self.line.fail():
                batch.answer(PutStatus.SERVICE_NOT_AVAILABLE)
        for batch in self.line.advance(phy_offset):
            self.store.publish(batch)
            batch.answer(PutStatus.PUT_OK)

    def send(self, *names: int, size: int = 200) -> None:
        self.line.hold(written(self.store, self.answers, *names, size=size), NOW_MS + 5000)
        self.flusher.request_nowait()

    def turn(self) -> None:
        """One thing that was posted; waits for it."""
        assert self._arrived.acquire(timeout=10)
        self.posted.popleft()()


@pytest.fixture
def owner(store: MessageStore) -> Iterator[Owner]:
    made = Owner(store)
    yield made
    made.flusher.stop()


def test_a_sync_answers_and_shows_what_it_covers(owner: Owner) -> None:
    owner.send(1, 2)
    assert (owner.answers, bodies(owner.store)) == ([], [])
    owner.turn()
    assert owner.answers == [(1, "PUT_OK"), (2, "PUT_OK")]
    assert [body[:3] for body in bodies(owner.store)] == [b"001", b"002"]
    assert owner.store.checkpoint.durable_phy_offset == owner.store.log.max_phy_offset == 400


class Gate:
    """Lets the flusher's syncs through one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.syncs = 0
        run = FlushJob.run

        def gated_run(job: FlushJob) -> None:
            self.started.release()
            assert self.open.acquire(timeout=10)
            self.syncs += 1
            run(job)

        monkeypatch.setattr(FlushJob, "run", gated_run)


def test_requests_during_a_sync_share_the_next_one(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    owner.send(1)
    assert gate.started.acquire(timeout=10)
    for name in range(2, 8):
        owner.send(name)
    assert gate.syncs == 0
    gate.open.release()
    owner.turn()
    assert owner.answers == [(1, "PUT_OK")]
    gate.open.release()
    owner.turn()
    assert owner.answers == [(name, "PUT_OK") for name in range(1, 8)]
    assert (gate.syncs, owner.flushed) == (2, [200, 1400])


def test_nothing_is_synced_without_a_request(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ASYNC_FLUSH a timer asks: messages that come during a sync are left to the timer's next turn."""
    gate = Gate(monkeypatch)
    owner.send(1)
    assert gate.started.acquire(timeout=10)
    written(owner.store, owner.answers, 2)
    gate.open.release()
    owner.turn()
    assert not gate.started.acquire(timeout=0.05)
    assert (gate.syncs, owner.flushed) == (1, [200])


def test_a_sync_over_a_file_border_covers_both_files(owner: Owner) -> None:
    owner.send(1, size=3000)
    owner.turn()
    owner.send(2, 3, size=2000)
    owner.turn()
    assert owner.store.log.flushed_phy_offset == owner.store.log.max_phy_offset == LOG_FILE_BYTES + 4000
    assert len(owner.answers) == 3


def test_a_failed_sync_fences_and_answers_all_that_wait(kit: StoreKit, owner: Owner) -> None:
    owner.send(1)
    owner.turn()
    faulty(kit).fail("sync", part_of_path="commitlog")
    owner.send(2)
    owner.send(3)
    owner.turn()
    assert owner.answers == [(1, "PUT_OK"), (2, "SERVICE_NOT_AVAILABLE"), (3, "SERVICE_NOT_AVAILABLE")]
    assert owner.store.appender.is_fenced
    assert owner.store.checkpoint.durable_phy_offset == 200


def test_a_fenced_store_is_not_synced_again(kit: StoreKit, owner: Owner) -> None:
    owner.store.appender.fence("the disk is gone")
    owner.flusher.request_nowait()
    assert owner.posted == deque()
    assert owner.flushed == []


def test_a_message_that_came_too_late_is_shown_all_the_same(
    store: MessageStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    owner.send(1)
    owner.send(2)
    for batch in owner.line.expire(NOW_MS + 5000):
        batch.answer(PutStatus.FLUSH_DISK_TIMEOUT)
    owner.send(3)
    for _ in range(2):
        gate.open.release()
        owner.turn()
    assert owner.answers == [(1, "FLUSH_DISK_TIMEOUT"), (2, "FLUSH_DISK_TIMEOUT"), (3, "PUT_OK")]
    assert [body[:3] for body in bodies(store)] == [b"001", b"002", b"003"]


def test_a_file_may_be_deleted_while_it_is_synced(
    store: MessageStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    owner.send(1, size=3000)
    owner.send(2, size=3000)
    assert gate.started.acquire(timeout=10)
    oldest = store.log.log_files[0]
    store.log.delete_first()
    for _ in range(2):
        gate.open.release()
        owner.turn()
    assert not store.appender.is_fenced
    run_steps(store.log.close_removed_steps())
    with pytest.raises((OSError, ValueError)):
        oldest.file.length()


def test_stop_waits_for_the_sync_under_way(store: MessageStore) -> None:
    owner = Owner(store)
    owner.send(1)
    owner.flusher.stop()
    assert len(owner.posted) == 1
    owner.turn()
    assert owner.answers == [(1, "PUT_OK")]
    owner.flusher.request_nowait()
    assert owner.posted == deque()


def test_the_checkpoint_says_when_the_last_durable_message_was_stored(kit: StoreKit) -> None:
    store = kit.open(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    kit.clock.advance(ms=70)
    store.put_message("orders", 0, b"x")
    assert store.checkpoint.physic_msg_timestamp == 0
    store.flush()
    assert store.checkpoint.physic_msg_timestamp == NOW_MS + 70
