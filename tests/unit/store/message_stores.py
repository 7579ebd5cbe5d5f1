"""Small stores for tests: files of some kilobytes, a clock that stands still, faults on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kourou.protocol.batch import BatchEntry
from kourou.protocol.message import MessageExt
from kourou.protocol.record import RecordEncoder, decode_records
from kourou.store.disk.files import Files
from kourou.store.kernel import Kernel
from kourou.store.message_store import MessageStore, PutMessageResult
from kourou.store.settings import MessageStoreConfig
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.store_check import assert_store_ok

LOG_FILE_BYTES = 4096
QUEUE_FILE_UNITS = 10
NOW_MS = 1_700_000_000_000
BORN_HOST = bytes((10, 0, 0, 7, 0, 0, 0x30, 0x39))
STORE_HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


class Clock:
    """Blocks until it is released."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms


class StoreKit:
    """One folder with a store, opened as often as a test likes, in a `with` block.

    At its end every invariant of the store is checked; a test that damages it sets `is_checked` False.
    """

    def __init__(self, root: Path, files: Files | None = None, **settings: Any) -> None:
        self.root = root
        self.files = files if files is not None else FaultyFiles()
        self.clock = Clock()
        self.settings = settings
        self.kernel: Kernel | None = None
        self.stores: list[MessageStore] = []
        self.is_checked = True
        self.deleted_topics: set[str] = set()

    def config(self, **settings: Any) -> MessageStoreConfig:
        """Small sizes, changed by `settings`."""
        small = {
            "root": self.root,
            "commit_log_file_bytes": LOG_FILE_BYTES,
            "consume_queue_file_bytes": QUEUE_FILE_UNITS * 20,
            "index_slots": 16,
            "index_entries": 64,
        }
        return MessageStoreConfig(**{**small, **self.settings, **settings})

    def open(self, **settings: Any) -> MessageStore:
        """Open the store, recovering it if need be."""
        store = MessageStore.open(self.config(**settings), self.files, self.clock, self.kernel)
        self.stores.append(store)
        return store

    def reopen(self, store: MessageStore, **settings: Any) -> MessageStore:
        """Stop cleanly and open again."""
        store.close()
        return self.open(**settings)

    def kill(self, store: MessageStore, **settings: Any) -> MessageStore:
        """Die without a word and open again; what was written is still in the page cache."""
        store.abandon()
        return self.open(**settings)

    def close(self) -> None:
        """Let go of every store that a test left open."""
        for store in self.stores:
            store.abandon()

    def __enter__(self) -> StoreKit:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.close()
        if error is None and self.is_checked and (self.root / "checkpoint").exists():
            assert_store_ok(self.root, deleted_topics=self.deleted_topics)


def faulty(kit: StoreKit) -> FaultyFiles:
    """The files of a kit, for faults."""
    assert isinstance(kit.files, FaultyFiles)
    return kit.files


def put(
    store: MessageStore, body: bytes, topic: str = "orders", queue_id: int = 0, **rest: Any
) -> PutMessageResult:
    """Put one message the short way."""
    return store.put_message(topic, queue_id, body, **rest)


def read_queue(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[MessageExt]:
    """All messages of a queue, by pulls."""
    messages: list[MessageExt] = []
    at = store.min_offset_in_queue(topic, queue_id)
    while at < store.max_offset_in_queue(topic, queue_id):
        result = store.get_message(topic, queue_id, at, 7)
        assert result.next_begin_offset > at
        for buffer in result.buffers:
            messages += decode_records(bytes(buffer))
        at = result.next_begin_offset
    return messages


def bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue."""
    return [message.body for message in read_queue(store, topic, queue_id)]


def record_bytes(body_bytes: int, topic: str = "orders", properties: bytes = b"") -> int:
    """How long the record of such a message is."""
    return RecordEncoder(topic, 0, STORE_HOST).size(bytes(body_bytes), properties, BORN_HOST)


def body_for(record_size_bytes: int, topic: str = "orders") -> bytes:
    """A body that makes a record of just this size."""
    return b"x" * (record_size_bytes - record_bytes(0, topic))


def entries(*some_bodies: bytes, properties: bytes = b"") -> list[BatchEntry]:
    """A client's batch."""
    return [BatchEntry(0, body, properties) for body in some_bodies]


def listing(root: Path, without: Sequence[str] = ()) -> dict[str, tuple[int, bytes]]:
    """Every file and folder below `root`: of files modification time and content."""
    return {
        str(path.relative_to(root)): (0, b"")
        if path.is_dir()
        else (path.stat().st_mtime_ns, path.read_bytes())
        for path in _walk(root)
        if path.name not in without and path.parent.name not in without
    }


def _walk(root: Path) -> Iterator[Path]:
    yield from sorted(root.rglob("*"))
