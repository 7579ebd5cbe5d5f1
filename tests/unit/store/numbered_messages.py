"""Stores full of numbered messages, what is found of them, and ways to spoil the files."""

from __future__ import annotations

import shutil
from pathlib import Path

from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import LOG_FILE_BYTES, NOW_MS, StoreKit, body_for, put, read_queue

QUEUES = (("orders", 0), ("orders", 1), ("payments", 0))

DERIVED = {
    "all queues": lambda root: shutil.rmtree(root / "consumequeue"),
    "one queue": lambda root: shutil.rmtree(root / "consumequeue" / "orders" / "1"),
    "first file of a queue": lambda root: (root / "consumequeue" / "orders" / "0" / ("0" * 20)).unlink(),
    "last file of a queue": lambda root: max((root / "consumequeue" / "payments" / "0").iterdir()).unlink(),
    "index": lambda root: shutil.rmtree(root / "index"),
    "newest index file": lambda root: max((root / "index").iterdir()).unlink(),
    "checkpoint": lambda root: (root / "checkpoint").unlink(),
    "snapshot": lambda root: (root / "consumequeue.snapshot").unlink(),
}


def fill(store: MessageStore, count: int, start: int = 0) -> None:
    """Numbered messages of 200 bytes, each with a key, in three queues by turns."""
    for number in range(start, start + count):
        topic, queue_id = QUEUES[number % 3]
        key = f"KEYS\x01k{number:03d}\x02"
        put(store, b"%03d" % number + body_for(200 - len(key) - 3, topic), topic, queue_id, properties=key)


def numbers(store: MessageStore) -> list[int]:
    """The messages of all queues, found by pulls; each has to lie where its record says."""
    found = []
    for topic, queue_id in QUEUES:
        for message in read_queue(store, topic, queue_id):
            assert (message.topic, message.queue_id) == (topic, queue_id)
            found.append(int(message.body[:3]))
    return sorted(found)


def found_keys(store: MessageStore, count: int) -> list[int]:
    """Which of the keys are found in the index."""
    return [
        number
        for number in range(count)
        if any(
            int(message.body[:3]) == number
            for message in store.query_message(QUEUES[number % 3][0], f"k{number:03d}", 32, 0, NOW_MS * 2)
        )
    ]


def assert_all(store: MessageStore, count: int) -> None:
    assert numbers(store) == list(range(count))
    assert found_keys(store, count) == list(range(count))


def lose(root: Path, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            DERIVED[name](root)
        except FileNotFoundError:
            assert len(names) > 1  # it went with another


def tear(kit: StoreKit, phy_offset: int, data: bytes = bytes(40)) -> None:
    """Overwrite bytes of the log while it is not open."""
    path = kit.root / "commitlog" / f"{phy_offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(phy_offset % LOG_FILE_BYTES)
        file.write(data)
