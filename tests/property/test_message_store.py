"""The store against a plain list: whatever is done to it, it holds what the list holds."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kourou.protocol.batch import BatchEntry
from kourou.protocol.record import decode_records
from kourou.store.disk.files import DiskUsage
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.queue.queue_time_search import BoundaryType
from kourou.store.read.get_message_result import GetMessageStatus
from kourou.store.retention import Retention, RetentionConfig
from kourou.store.settings import FlushDiskType, MessageStoreConfig
from kourou.store.steps import no_steps
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.store_check import assert_store_ok

BORN_HOST = bytes((10, 0, 0, 7, 0, 0, 0x30, 0x39))
TOPICS = ("a", "b")
QUEUE_IDS = (0, 1)
KEYS = ("k0", "k1", "k2")
START_MS = 1_700_000_000_000
FOR_EVER = (0, START_MS * 2)
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
DERIVED = ("consumequeue", "consumequeue/a/0", "consumequeue.snapshot", "index", "checkpoint")

queues = st.tuples(st.sampled_from(TOPICS), st.sampled_from(QUEUE_IDS))
sizes = st.one_of(st.integers(0, 60), st.integers(300, 900), st.just(1900))
keys = st.one_of(st.none(), st.sampled_from(KEYS))


@dataclass(frozen=True)
class Stored:
    """A message as the model knows it. `queue_offset` is -1 when it is in no queue."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    body: bytes
    key: str | None
    store_timestamp: int


def properties_of(key: str | None) -> str:
    return f"KEYS\x01{key}\x02" if key else ""


class StoreMachine(RuleBasedStateMachine):
    """Drives a store with small files and keeps a list of what has to be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name) / "store"
        self.files = FaultyFiles()
        self.files.usage = DiskUsage(100, 90, 90)
        self.now_ms = START_MS
        self.number = 0
        self.log: list[Stored] = []
        self.queues: dict[tuple[str, int], list[Stored]] = {}
        self.deleted_topics: set[str] = set()

    @initialize(flush=st.sampled_from(FlushDiskType), window=st.sampled_from((0, 1000, 1 << 20)))
    def start(self, flush: FlushDiskType, window: int) -> None:
        self.config = MessageStoreConfig(
            root=self.root,
            commit_log_file_bytes=4096,
            consume_queue_file_bytes=5 * 20,
            index_slots=4,
            index_entries=16,
            flush_disk_type=flush,
            read_window_bytes=window,
        )
        self.store = self.open()

    def open(self) -> MessageStore:
        return MessageStore.open(self.config, self.files, lambda: self.now_ms)

    # -- writing ---------------------------------------------------------------------------------

    @rule(ms=st.integers(0, 5000))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule(queue=queues, size=sizes, key=keys, kind=st.sampled_from((0, 0, 0, COMMIT, PREPARED, ROLLBACK)))
    def put(self, queue: tuple[str, int], size: int, key: str | None, kind: int) -> None:
        body = self.body(size)
        result = self.store.put_message(*queue, body, properties_of(key), sys_flag=kind)
        assert result.status is PutStatus.PUT_OK
        if kind in (PREPARED, ROLLBACK):
            assert result.queue_offset == 0
            self.expect(queue, -1, result.phy_offset, body, None if kind == ROLLBACK else key)
        else:
            assert result.queue_offset == len(self.queue(queue))
            self.expect(queue, result.queue_offset, result.phy_offset, body, key)

    @rule(queue=queues, batch=st.lists(st.tuples(st.integers(0, 300), keys), min_size=1, max_size=6))
    def put_many(self, queue: tuple[str, int], batch: list[tuple[int, str | None]]) -> None:
        entries = [BatchEntry(0, self.body(size), properties_of(key).encode()) for size, key in batch]
        answers: list[Any] = []
        self.store.begin_cycle()
        self.store.appender.put_many(
            self.store.queue(*queue),
            entries,
            born_timestamp=self.now_ms,
            born_host=BORN_HOST,
            done=lambda *answer: answers.append(answer),
        )
        self.store.write_and_publish()
        ((status, phy_offsets, first_queue_offset),) = answers
        assert status is PutStatus.PUT_OK
        assert first_queue_offset == len(self.queue(queue))
        assert len({phy_offset // 4096 for phy_offset in phy_offsets}) == 1
        for number, (entry, (_, key)) in enumerate(zip(entries, batch, strict=True)):
            self.expect(queue, first_queue_offset + number, phy_offsets[number], entry.body, key)

    @rule(queue=queues)
    def put_and_forget(self, queue: tuple[str, int]) -> None:
        """A pass that is never written: its offsets are given to others."""
        self.store.begin_cycle()
        self.store.appender.put(
            self.store.queue(*queue),
            b"never written",
            b"",
            tags_code=0,
            keys=("k0",),
            born_timestamp=self.now_ms,
            born_host=BORN_HOST,
        )
        self.store.appender.drop_pending()

    def body(self, size: int) -> bytes:
        self.number += 1
        return b"%d:" % self.number + b"x" * size

    def expect(
        self, queue: tuple[str, int], queue_offset: int, phy: int, body: bytes, key: str | None
    ) -> None:
        assert not self.log or phy > self.log[-1].phy_offset
        stored = Stored(*queue, queue_offset, phy, body, key, self.now_ms)
        self.log.append(stored)
        if queue_offset >= 0:
            self.queue(queue).append(stored)

    def queue(self, queue: tuple[str, int]) -> list[Stored]:
        return self.queues.setdefault(queue, [])

    # -- the other things a store does -----------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.log.flushed_phy_offset == self.store.log.max_phy_offset

    @rule(thorough=st.booleans())
    def flush_derived(self, thorough: bool) -> None:
        self.store.flush_derived(thorough=thorough)

    @rule()
    def flush_queues(self) -> None:
        self.store.queues.flush_round(least_bytes=0)

    @rule()
    def prepare_next(self) -> None:
        self.store.log.prepare_next()

    @rule(count=st.integers(1, 3))
    def expire(self, count: int) -> None:
        """Retention deletes the oldest files; the last, and what is not flushed, stays."""
        config = RetentionConfig(file_reserved_ms=0, max_files_per_round=count)
        before, files = self.store.log.min_phy_offset, len(self.store.log.log_files)
        done = Retention(self.store, self.files, config, lambda: no_steps(None)).run(1 << 45, manual=True)
        assert len(done.deleted) <= min(count, max(0, files - 1))
        assert self.store.log.min_phy_offset == before + 4096 * len(done.deleted)
        self.log = [stored for stored in self.log if stored.phy_offset >= self.store.log.min_phy_offset]

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.deleted_topics.add(topic)
        for queue_id in QUEUE_IDS:
            self.queues.pop((topic, queue_id), None)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.open()
        assert self.store.report.clean_exit
        assert self.store.report.records == 0

    @rule()
    def kill(self) -> None:
        """The process dies; what it wrote is in the page cache."""
        self.store.abandon()
        self.store = self.open()
        assert not self.store.report.clean_exit
        assert self.store.report.damages == []

    @precondition(lambda self: self.is_rebuildable())
    @rule(clean=st.booleans(), lost=st.sets(st.sampled_from(DERIVED), min_size=1))
    def lose_derived(self, clean: bool, lost: set[str]) -> None:
        """Files that can be rebuilt are gone at the next start."""
        if clean:
            self.store.close()
        else:
            self.store.abandon()
        for name in lost:
            path = self.root / name
            if path.is_dir():
                self.files.remove_tree(path)
            elif path.exists():
                self.files.remove(path)
        self.store = self.open()
        assert self.store.report.damages == []

    def is_rebuildable(self) -> bool:
        """Whether the log alone tells where each queue goes on: it does not know of deleted topics,
        nor of queues whose messages have all expired."""
        return not self.deleted_topics and all(
            not stored or self.low(queue) < len(stored) for queue, stored in self.queues.items()
        )

    # -- reading ---------------------------------------------------------------------------------

    @precondition(lambda self: self.log)
    @rule(
        queue=queues, at=st.integers(-2, 40), count=st.integers(1, 40), wait=st.booleans(), cold=st.booleans()
    )
    def read(self, queue: tuple[str, int], at: int, count: int, wait: bool, cold: bool) -> None:
        self.files._machine.cold = cold
        stored = self.queue(queue)
        low, high = self.low(queue), len(stored)
        result = self.store.get_message(*queue, at, count, wait=wait)
        if not wait:
            result.load()
            result.release()
        if low <= at < high:
            found = [message for raw in result.buffers for message in decode_records(bytes(raw))]
            assert result.status is GetMessageStatus.FOUND
            assert 1 <= len(found) == result.message_count <= count
            assert [m.body for m in found] == [s.body for s in stored[at : at + len(found)]]
            assert [m.queue_offset for m in found] == list(range(at, at + len(found)))
            assert result.next_begin_offset == at + len(found)
        else:
            assert result.message_count == 0
            assert result.status in outside(at, low, high)
            assert result.next_begin_offset == (low if at < low else high)

    def low(self, queue: tuple[str, int]) -> int:
        """The first message of a queue that the log still has."""
        log_low = self.store.log.min_phy_offset
        stored = self.queue(queue)
        return next((s.queue_offset for s in stored if s.phy_offset >= log_low), len(stored))

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS))
    def query(self, topic: str, key: str) -> None:
        expected = [s.body for s in self.log if s.topic == topic and s.key == key]
        found = self.store.query_message(topic, key, 64, *FOR_EVER)
        bodies = [message.body for message in found if key in message.keys]
        assert bodies == expected[-64:][-len(bodies) :] if len(expected) >= 64 else bodies == expected

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        stored = data.draw(st.sampled_from(self.log))
        message = self.store.look_message(stored.phy_offset)
        assert message is not None
        assert (message.body, message.store_timestamp) == (stored.body, stored.store_timestamp)
        inside = data.draw(st.integers(1, message.store_size - 1))
        assert self.store.look_message(stored.phy_offset + inside) is None

    @rule(queue=queues, ms=st.integers(-10, 60_000))
    def search_time(self, queue: tuple[str, int], ms: int) -> None:
        low, stored = self.low(queue), self.queue(queue)
        times = [(s.queue_offset, s.store_timestamp) for s in stored[low:]]
        at = START_MS + ms
        lower = next((offset for offset, time in times if time >= at), len(stored))
        upper = max((offset for offset, time in times if time <= at), default=low)
        assert self.store.lookup.offset_in_queue_by_time(*queue, at) == lower
        assert self.store.lookup.offset_in_queue_by_time(*queue, at, BoundaryType.UPPER) == upper

    @invariant()
    def ends_agree(self) -> None:
        for queue, stored in self.queues.items():
            assert self.store.max_offset_in_queue(*queue) == len(stored)
            assert self.store.min_offset_in_queue(*queue) == self.low(queue)

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.store.close()
                assert_store_ok(self.root, deleted_topics=self.deleted_topics)
                self.store = self.open()
                self.everything_is_there()
        finally:
            if hasattr(self, "store"):
                self.store.abandon()
            self.folder.cleanup()

    def everything_is_there(self) -> None:
        for queue, stored in self.queues.items():
            low = self.low(queue)
            bodies: list[bytes] = []
            while low + len(bodies) < len(stored):
                result = self.store.get_message(*queue, low + len(bodies), 32)
                bodies += [m.body for raw in result.buffers for m in decode_records(bytes(raw))]
            assert bodies == [s.body for s in stored[low:]]
            units = [self.store.queue(*queue).unit(s.queue_offset) for s in stored[low:]]
            assert [unit.phy_offset for unit in units if unit] == [s.phy_offset for s in stored[low:]]
        for topic in TOPICS:
            for key in KEYS:
                self.query(topic, key)


def outside(at: int, low: int, high: int) -> tuple[GetMessageStatus, ...]:
    """What a read outside of a queue answers. A queue without messages may be there or not."""
    if not high:
        return GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE
    if at < low:
        return (GetMessageStatus.OFFSET_TOO_SMALL,)
    return (GetMessageStatus.OFFSET_OVERFLOW_ONE if at == high else GetMessageStatus.OFFSET_OVERFLOW_BADLY,)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=60)
