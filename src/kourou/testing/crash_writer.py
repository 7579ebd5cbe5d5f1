"""crash_writer: a program that writes to a store under sync flush until it is killed.

    python -m kourou.testing.crash_writer ROOT SEED [--log-file-bytes N] [--flush ASYNC_FLUSH]

Group commit as in a broker: commit cycles of several messages continue while the flusher's thread syncs, and
each sync acknowledges all that it covers. On standard output, unbuffered: `opening`, `open N` (N records
recovered), then one line per acknowledged message: number, topic, queue_id, queue_offset, phy_offset. Numbers
increase within each queue over the lifetime of the store, over any number of runs.
Not here: killing it, and what must be found afterwards (tests/crash).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from kourou.protocol.message import MessageExt
from kourou.protocol.properties import property_pair
from kourou.protocol.record import decode_record
from kourou.store.disk.files import Files
from kourou.store.flusher import AckLine, Flusher, Post
from kourou.store.log.put_batch import PutBatch
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.settings import FlushDiskType, MessageStoreConfig

TOPIC: Final = "crash"
QUEUES: Final = 4
_BORN_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x01"
# How many batches may wait for their sync while the next ones are written, as in a broker.
_MAX_WAITING: Final = 8


def crash_config(
    root: Path, log_file_bytes: int = 256 * 1024, flush: FlushDiskType = FlushDiskType.SYNC_FLUSH
) -> MessageStoreConfig:
    """A store with small files, so that all of them roll often."""
    return MessageStoreConfig(
        root=root,
        commit_log_file_bytes=log_file_bytes,
        consume_queue_file_bytes=500 * 20,
        index_slots=1_000,
        index_entries=4_000,
        flush_disk_type=flush,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def number_of(message: MessageExt) -> int:
    """The number in a message's body."""
    return int(message.body.split(b" ", 1)[0])


def last_number(store: MessageStore, queue: ConsumeQueue) -> int:
    """The number of a queue's last message; 0 when it has none."""
    if queue.max_queue_offset == queue.min_queue_offset:
        return 0
    found = store.get_message(queue.topic, queue.queue_id, queue.max_queue_offset - 1, 1)
    return number_of(decode_record(found.buffers[0]))


class CrashWriter:
    """Puts numbered messages and reports those that are acknowledged."""

    def __init__(self, store: MessageStore, seed: int, out_fd: int) -> None:
        self._store = store
        self._chance = random.Random(seed)
        self._out_fd = out_fd
        self._lines: list[bytes] = []
        self._waiting = AckLine()
        self._posted: SimpleQueue[object] = SimpleQueue()
        post: Post = self._posted.put
        self._flusher = Flusher(store, post, self._flushed)
        self._queues = [store.queue(TOPIC, queue_id) for queue_id in range(QUEUES)]
        # Messages that were never acknowledged may be in the log: numbers continue after all of them.
        self._number = max(last_number(store, queue) for queue in self._queues)

    def run(self) -> None:
        """Write until the process is killed; returns when the store rejects writes."""
        while not self._store.appender.is_fenced:
            self._write_cycle()
            self._now_and_then()
            self._take_posted(must_wait=len(self._waiting) >= _MAX_WAITING)

    def _write_cycle(self) -> None:
        born_timestamp = self._store.begin_cycle()
        for _ in range(self._chance.choice((1, 3, 20))):
            self._put(self._chance.choice(self._queues), born_timestamp)
        batch = self._store.write_cycle()
        if batch is None:
            return
        if self._store.config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            return self._confirm(batch)
        self._waiting.hold(batch, deadline_ms=1 << 62)
        self._flusher.request_nowait()

    def _put(self, queue: ConsumeQueue, born_timestamp: int) -> None:
        self._number += 1
        key = f"N{self._number}"
        padding = b"." * self._chance.choice((0, 100, 1000, 6000))
        self._store.appender.put(
            queue,
            b"%d " % self._number + padding,
            property_pair("UNIQ_KEY", key).encode(),
            tags_code=0,
            keys=(key,),
            born_timestamp=born_timestamp,
            born_host=_BORN_HOST,
            done=partial(self._acknowledged, self._number, queue.queue_id),
        )

    def _now_and_then(self) -> None:
        chance = self._chance.random()
        if chance < 0.02:
            self._store.flush_derived(thorough=chance < 0.01)
        elif chance < 0.1 and self._store.log.wants_next_file:
            self._store.log.prepare_next()

    def _take_posted(self, *, must_wait: bool) -> None:
        while must_wait or not self._posted.empty():
            done = self._posted.get()
            assert callable(done)
            done()
            must_wait = False

    def _flushed(self, phy_offset: int) -> None:
        for batch in self._waiting.advance(phy_offset):
            self._confirm(batch)

    def _confirm(self, batch: PutBatch) -> None:
        self._store.publish(batch)
        batch.answer(PutStatus.PUT_OK)
        # One write for all of them, so that the reader of the pipe sees whole lines.
        lines, self._lines = self._lines, []
        os.write(self._out_fd, b"".join(lines))

    def _acknowledged(
        self, number: int, queue_id: int, status: PutStatus, phy_offset: int, queue_offset: int
    ) -> None:
        assert status is PutStatus.PUT_OK
        self._lines.append(b"%d %s %d %d %d\n" % (number, TOPIC.encode(), queue_id, queue_offset, phy_offset))


def main() -> None:
    parser = argparse.ArgumentParser(description="write to a store until killed")
    parser.add_argument("root", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("--log-file-bytes", type=int, default=256 * 1024)
    parser.add_argument("--flush", type=FlushDiskType, default=FlushDiskType.SYNC_FLUSH)
    options = parser.parse_args()
    out_fd = sys.stdout.fileno()
    os.write(out_fd, b"opening\n")
    config = crash_config(options.root, options.log_file_bytes, options.flush)
    store = MessageStore.open(config, Files(), now_ms)
    os.write(out_fd, b"open %d\n" % store.report.records)
    CrashWriter(store, options.seed, out_fd).run()
    sys.exit(f"the store takes no more: {store.appender.refusal}")


if __name__ == "__main__":
    main()
