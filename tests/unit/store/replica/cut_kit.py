"""Stores for tests of cutting: the same messages again and again, so that a store that was cut can be
compared with one that never had more."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kourou.protocol.producer_sequence import ProducerOpening, format_opening, parse_sequence
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.replica.epochs import EpochFile
from kourou.store.replica.log_cut import cut_log
from kourou.store.replica.orphaned_tail import SavedTail
from tests.unit.store.message_stores import StoreKit, put

SET_NAME = "broker-a"
SEQUENCE = "__KOUROU_SEQ"
FILE_BYTES = 4096


class Script:
    """Numbered steps: the nth does the same in every store that did the ones before."""

    def __init__(self, seed: int = 1, *, has_producers: bool = True) -> None:
        self._seed = seed
        self._kinds = ["plain"] * 6 + ["long"] + (["open", *["send"] * 4] if has_producers else [])

    def run(self, kit: StoreKit, store: MessageStore, numbers: Sequence[int]) -> list[int]:
        """Do these steps; where the log ended after each."""
        ends = []
        for number in numbers:
            kit.clock.now_ms += 700
            choice = random.Random(self._seed * 100_000 + number)
            self._step(store, choice.choice(self._kinds), number, choice)
            ends.append(store.log.max_phy_offset)
        return ends

    def _step(self, store: MessageStore, kind: str, number: int, choice: random.Random) -> None:
        producer_id = choice.choice(("@loader", "0123456789abcdef"))
        queue_id = choice.randrange(2)
        if kind == "open" or (kind == "send" and producer_id not in store.producers.table.producers):
            _open_producer(store, producer_id)
        elif kind == "send":
            _send(store, producer_id, queue_id)
        else:
            size = choice.randrange(1_000, 3_000) if kind == "long" else choice.randrange(60)
            keys = f"KEYS\x01k{number % 7} only{number}\x02UNIQ_KEY\x01ID{number}\x02" if number % 3 else ""
            put(store, b"%d " % number + bytes(size), f"t{choice.randrange(3)}", queue_id, properties=keys)


def _open_producer(store: MessageStore, producer_id: str) -> None:
    table = store.producers.table
    opening = ProducerOpening(producer_id, table.next_epoch(producer_id, 0), allows_gaps=False)
    table.note_opened(opening, 0)
    put(store, b"", "rmq_sys_kourou_producers", properties=f"{SEQUENCE}\x01{format_opening(opening)}\x02")


def _send(store: MessageStore, producer_id: str, queue_id: int) -> None:
    table = store.producers.table
    sequence = table.last_sequences(producer_id, "orders").get(queue_id, -1) + 1
    value = f"{table.producers[producer_id].identity}:{sequence}"
    table.note(parse_sequence(value), "orders", queue_id, store.appender.end_phy_offset, 0)
    put(store, b"once", "orders", queue_id, properties=f"{SEQUENCE}\x01{value}\x02")


def new_kit(root: Path, files: Files | None = None, **settings: Any) -> StoreKit:
    return StoreKit(root, files, commit_log_file_bytes=FILE_BYTES, **settings)


def cut(kit: StoreKit, phy_offset: int) -> SavedTail | None:
    return cut_log(kit.files, kit.config(), phy_offset, set_name=SET_NAME, now_ms=kit.clock)


def follow(store: MessageStore, master: MessageStore) -> None:
    """Have a store copy what its master has more, as a slave does."""
    replica, at, end = store.replica_log(), store.log.max_phy_offset, master.log.max_phy_offset
    while at < end:
        size = min(FILE_BYTES - at % FILE_BYTES, end - at)
        replica.append(at, master.log.read(at, size) or b"")
        replica.dispatch()
        at += size


def set_epochs(root: Path, *starts: int) -> None:
    epochs = EpochFile(Files(), root)
    for start in starts:
        epochs.begin(start)


def epoch_starts(root: Path) -> list[int]:
    epochs = EpochFile(Files(), root)
    epochs.load()
    return [epoch.start_phy_offset for epoch in epochs.epochs]


def derived(store: MessageStore) -> dict[str, object]:
    """Everything that a store has derived from its log, and the log itself."""
    log, producers = store.log, store.producers.table
    raw = b"".join(
        log.read(file.start_phy_offset, min(file.end_phy_offset, log.max_phy_offset) - file.start_phy_offset)
        or b""
        for file in log.log_files
        if file.start_phy_offset < log.max_phy_offset
    )
    queues = {
        f"{queue.topic}/{queue.queue_id}": (
            queue.min_queue_offset,
            queue.next_queue_offset,
            [queue.unit(at) for at in range(queue.max_queue_offset)],
        )
        for queue in store.queues.items()
        if queue.max_queue_offset
    }
    # Each message with an id has one of the keys.
    found = {
        (topic, key): [one.phy_offset for one in store.query_message(topic, key, 64, 0, 2**60)]
        for topic in ("t0", "t1", "t2")
        for key in (f"k{number}" for number in range(7))
    }
    windows = {
        (topic, queue_id, identity): producers.windows.high(slot)
        for topic, queue_id, of_queue in producers.queues()
        for identity, slot in of_queue.items()
    }
    checkpoint = store.checkpoint
    return {
        "log": (log.min_phy_offset, log.max_phy_offset, raw),
        "queues": queues,
        "index": found,
        "producers": {name: one.epoch for name, one in producers.producers.items()},
        "windows": windows,
        "names": producers.names,
        "checkpoint": {
            name: getattr(checkpoint, name)
            for name in checkpoint.__slots__
            if name.endswith(("_offset", "_timestamp"))
        },
    }
