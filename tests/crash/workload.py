"""Workload: a store at work, every step of it chosen by a seed, with a ledger beside it.

Small files, so that logs and queues roll all the time; records longer than a sector or two, so that a
tear hits bodies, topics and properties; topics that go and come back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kourou.protocol.batch import BatchEntry
from kourou.protocol.tags import tags_code
from kourou.store.config_file import JsonConfigFile
from kourou.store.disk.files import DiskUsage, Files
from kourou.store.log.dispatch_request import index_keys
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.retention import Retention, RetentionConfig
from kourou.store.settings import FlushDiskType, MessageStoreConfig
from kourou.store.steps import no_steps
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.store_check import assert_store_ok
from tests.crash.ledger import Ledger, Sent

BORN_HOST = b"\x0a\x00\x00\x01\x00\x00\x1f\x90"
TOPICS = ("orders", "a-topic-whose-name-is-so-long-that-it-may-well-lie-across-two-sectors", "logs")
QUEUES = 2
_ROOMY = DiskUsage(total_bytes=100, free_bytes=90, usable_bytes=90)


def small_config(root: Path, flush: FlushDiskType = FlushDiskType.SYNC_FLUSH) -> MessageStoreConfig:
    """Sizes with which a few dozen messages fill several files of each kind."""
    return MessageStoreConfig(
        root=root,
        commit_log_file_bytes=16 * 1024,
        consume_queue_file_bytes=5 * 20,
        index_slots=8,
        index_entries=32,
        flush_disk_type=flush,
        max_message_bytes=8 * 1024,
    )


class Workload:
    """One store over its whole life: opened, worked on, crashed, opened again."""

    def __init__(self, root: Path, files: Files, seed: int, flush: FlushDiskType) -> None:
        self.root = root
        self.ledger = Ledger()
        self.chance = random.Random(seed)
        self.config = small_config(root, flush)
        self.is_sync = flush is FlushDiskType.SYNC_FLUSH
        self.written_offsets = 0
        self.promised_offsets = 0
        self._number = 0
        self._now_ms = 1_700_000_000_000
        self.use(files)

    def use(self, files: Files) -> None:
        """Go on with these files."""
        self.files = files
        if isinstance(files, FaultyFiles):
            files.usage = _ROOMY

    def now_ms(self) -> int:
        self._now_ms += self.chance.choice((0, 1, 1, 700))
        return self._now_ms

    def open(self) -> MessageStore:
        """Open and recover the store."""
        self.store = MessageStore.open(self.config, self.files, self.now_ms)
        return self.store

    def settle(self) -> None:
        """After a crash and `open`: nothing promised is lost, nothing is where it should not be."""
        self.ledger.settle(self.store, self.root)
        self._settle_offsets()

    def check(self) -> None:
        """After a clean stop: every invariant holds, and nothing is left to recover."""
        report = assert_store_ok(self.root, deleted_topics=self.ledger.deleted_at)
        assert not report.recovery, [found.text(self.root) for found in report.recovery]

    # -- steps -----------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """So many steps."""
        choices: list[tuple[Callable[[], None], int]] = [
            (self.send, 50),
            (self.send_batch, 12),
            (self.flush, 0 if self.is_sync else 20),
            (self.flush_some_derived, 6),
            (self.flush_derived, 5),
            (self.prepare_next, 4),
            (self.expire, 3),
            (self.delete_topic, 2),
            (self.save_offsets, 4),
            (self.restart, 2),
            (self.kill, 2),
        ]
        actions, weights = zip(*choices, strict=True)
        for action in self.chance.choices(actions, weights, k=steps):
            action()

    def send(self) -> None:
        """A pass with some messages."""
        now_ms = self.store.begin_cycle()
        for _ in range(self.chance.choice((1, 1, 2, 3, 6))):
            self._put(self._message(), now_ms)
        self.store.write_and_publish()

    def send_to(self, topic: str, queue_id: int) -> None:
        """A pass with one message."""
        self._put(self._message(topic, queue_id), self.store.begin_cycle())
        self.store.write_and_publish()

    def _put(self, sent: Sent, now_ms: int) -> None:
        store = self.store
        self.ledger.put(sent)
        store.appender.put(
            store.queue(sent.topic, sent.queue_id),
            sent.body,
            sent.properties,
            tags_code=tags_code(None),
            keys=index_keys(sent.uniq_key, "common" if sent.uniq_key else None),
            born_timestamp=now_ms,
            born_host=BORN_HOST,
            sys_flag=sent.sys_flag,
            done=partial(self._answered, sent),
        )

    def send_batch(self) -> None:
        """A client's batch."""
        store = self.store
        now_ms = store.begin_cycle()
        topic, queue_id = self.chance.choice(TOPICS), self.chance.randrange(QUEUES)
        batch = [self._message(topic, queue_id) for _ in range(self.chance.randint(2, 4))]
        for sent in batch:
            sent.sys_flag = 0
            self.ledger.put(sent)

        def done(status: PutStatus, phy_offsets: object, first_queue_offset: int) -> None:
            assert isinstance(phy_offsets, list)
            for index, (sent, phy_offset) in enumerate(zip(batch, phy_offsets, strict=True)):
                self._answered(sent, status, phy_offset, first_queue_offset + index)

        store.appender.put_many(
            store.queue(topic, queue_id),
            [BatchEntry(0, sent.body, sent.properties) for sent in batch],
            born_timestamp=now_ms,
            born_host=BORN_HOST,
            done=done,
        )
        store.write_and_publish()

    def flush(self) -> None:
        """Make the log durable, as a timer does in async mode."""
        self.store.flush()
        if not self.store.appender.is_fenced:
            self.ledger.flushed(self.store.log.flushed_phy_offset)

    def flush_some_derived(self) -> None:
        self.store.flush_derived(thorough=False)
        self.store.queues.flush_round(least_bytes=0, sync=False)

    def flush_derived(self) -> None:
        self.store.flush_derived(thorough=True)

    def prepare_next(self) -> None:
        if self.store.log.wants_next_file:
            self.store.log.prepare_next()

    def expire(self) -> None:
        """Delete the oldest file of the log, and what goes with it."""
        config = RetentionConfig(file_reserved_ms=0, max_files_per_round=1)
        Retention(self.store, self.files, config, lambda: no_steps(None)).run(
            self.now_ms() + (1 << 50), manual=True
        )

    def delete_topic(self) -> None:
        topic = self.chance.choice(TOPICS)
        self.ledger.deleted(topic, self.store.log.max_phy_offset)
        self.store.delete_topic(topic)

    def restart(self) -> None:
        """A clean stop, and a start."""
        self.store.close()
        if not self.is_sync:
            self.ledger.flushed(self.store.log.max_phy_offset)
        self.open()

    def kill(self) -> None:
        """The process ends in between, the machine goes on; what is found then has to stay."""
        self.store.abandon()
        self.open()
        self.settle()

    def save_offsets(self) -> None:
        """Consumer offsets, here one growing number, in their JSON file."""
        self.written_offsets += 1
        self._offsets_file().store(b'{"offset": %d}' % self.written_offsets)
        self.promised_offsets = self.written_offsets

    # -- the parts -------------------------------------------------------------------------------

    def _offsets_file(self) -> JsonConfigFile:
        return JsonConfigFile(self.files, self.root / "config" / "consumerOffset.json")

    def _settle_offsets(self) -> None:
        raw = self._offsets_file().load()
        found = int(raw.split()[1].rstrip(b"}")) if raw else 0
        assert self.promised_offsets <= found <= self.written_offsets

    def _answered(self, sent: Sent, status: PutStatus, phy_offset: int, queue_offset: int) -> None:
        self.ledger.answered(self.store, sent, status, phy_offset, queue_offset)
        if self.is_sync and status is PutStatus.PUT_OK:
            self.ledger.promised(sent)

    def _message(self, topic: str | None = None, queue_id: int | None = None) -> Sent:
        chance = self.chance
        self._number += 1
        body = chance.randbytes(chance.choice((0, 40, 300, 700, 2000)))
        uniq_key, properties = None, b""
        if not body or chance.random() < 0.8:
            uniq_key = f"ID{self._number:08d}"
            padding = "p" * chance.choice((0, 0, 30, 1300))
            text = f"UNIQ_KEY\x01{uniq_key}\x02KEYS\x01common\x02"
            properties = (text + (f"padding\x01{padding}\x02" if padding else "")).encode()
        return Sent(
            topic=topic or chance.choice(TOPICS),
            queue_id=chance.randrange(QUEUES) if queue_id is None else queue_id,
            body=body,
            properties=properties,
            sys_flag=chance.choice((0,) * 12 + (4, 8, 12)),
            uniq_key=uniq_key,
        )
