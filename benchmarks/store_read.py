"""What reading costs: pulls of 32 and of 1,024 messages of 1 KiB. `python -m benchmarks.store_read [--full]`.

One queue whose messages lie side by side in the log, and four whose messages alternate. Newest data are read
through a map of the log, as views that copy nothing; older data by calls that never wait for the disk. In
both cases all is in the page cache. "Taken" pulls also join the bytes, as those that go over TLS. Beside each
stands a bare loop over ranges as long: slices of a map, or `pread`, that copy the bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

from benchmarks._store_load import (
    Spent,
    append,
    best_and_median,
    markdown_table,
    open_store,
    options,
    ready_messages,
    spent,
    work_folder,
)
from kourou.protocol.layout import Buffer
from kourou.store.message_store import MessageStore
from kourou.store.read.get_message_result import GetMessageStatus
from kourou.store.settings import MessageStoreConfig

BODY_BYTES = 1024
PULLS = (32, 1024)
TOPICS = {"contiguous": 1, "four interleaved": 4}
WINDOWS = {"map": 1 << 40, "pread": 0}


def fill(store: MessageStore, count: int) -> None:
    """The messages of both topics, one after the other."""
    for topic, queues in TOPICS.items():
        append(
            store,
            ready_messages([store.queue(topic, number) for number in range(queues)], count, BODY_BYTES),
            256,
        )
    store.flush_derived(thorough=False)


class Puller:
    """Pulls one topic from its start to its end, the queues in turn."""

    def __init__(self, store: MessageStore, topic: str, per_pull: int, count: int) -> None:
        self._store = store
        self._topic = topic
        self._per_pull = per_pull
        self._count = count

    def views(self) -> None:
        """Pulls as they are: views, where they can be."""
        self._pull_all(lambda buffers: None)

    def taken(self) -> None:
        """Pulls whose bytes are joined."""
        self._pull_all(b"".join)

    def _pull_all(self, take: Callable[[list[Buffer]], object]) -> None:
        next_offsets = dict.fromkeys(range(TOPICS[self._topic]), 0)
        messages = 0
        while next_offsets:
            for queue_id in list(next_offsets):
                result = self._store.get_message(
                    self._topic, queue_id, next_offsets[queue_id], self._per_pull
                )
                if result.status is GetMessageStatus.FOUND:
                    take(result.buffers)
                    messages += result.message_count
                    next_offsets[queue_id] = result.next_begin_offset
                else:
                    del next_offsets[queue_id]
        assert messages == self._count


def bare_all(path: Path, count: int, record_bytes: int, per_pull: int, *, mapped: bool) -> Spent:
    """Copy ranges as long as pulls out of the log's first file."""
    descriptor = os.open(path, os.O_RDONLY)
    view = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    size = record_bytes * per_pull
    end = record_bytes * count

    def by_map() -> None:
        for position in range(0, end, size):
            view[position : position + size]

    def by_pread() -> None:
        for position in range(0, end, size):
            os.pread(descriptor, size, position)

    took = spent(by_map if mapped else by_pread)
    view.close()
    os.close(descriptor)
    return took


def measure(folder: Path, count: int, rounds: int) -> list[list[str]]:
    """A row for each way of reading."""
    with open_store(MessageStoreConfig(root=folder / "store")) as store:
        fill(store, count)
        record_bytes = store.log.max_phy_offset // (count * len(TOPICS))
        store.flush()
        store.flush_derived(thorough=True)
    rows = []
    for way, window in WINDOWS.items():
        config = MessageStoreConfig(root=folder / "store", read_window_bytes=window)
        with open_store(config) as store:
            path = store.log.log_files[0].path
            for topic, per_pull in product(TOPICS, PULLS):
                puller = Puller(store, topic, per_pull, count)
                views, taken, bare = [], [], []
                for _ in range(rounds):
                    views.append(spent(puller.views))
                    taken.append(spent(puller.taken))
                    bare.append(bare_all(path, count, record_bytes, per_pull, mapped=way == "map"))
                rows.append([f"{topic}, {way}", f"{per_pull:,}", *_cells(count, views, taken, bare)])
    return rows


def _cells(count: int, views: list[Spent], taken: list[Spent], bare: list[Spent]) -> list[str]:
    cells = []
    for rounds in (views, taken):
        best, middle = best_and_median(rounds, count)
        cells += [f"{count / min(one.clock_s for one in rounds):,.0f}", f"{best:.3f}", f"{middle:.3f}"]
    bare_best, bare_middle = best_and_median(bare, count)
    taken_best, _ = best_and_median(taken, count)
    return [*cells, f"{bare_best:.3f}", f"{bare_middle:.3f}", f"{bare_best / taken_best:.2f}"]


HEAD = (
    "queues, way",
    "a pull",
    "messages/s, clock, best",
    "µs a message, best",
    "median",
    "taken: messages/s",
    "µs a message, best",
    "median",
    "bare, best",
    "median",
    "bare : taken",
)


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    count, rounds = (204_800, 9) if chosen.full else (40_960, 5)
    with work_folder() as folder:
        rows = measure(folder, count, rounds)
    print(
        f"{rounds} rounds over {count:,} messages of {BODY_BYTES:,} bytes. The ratio: of the best rounds.\n"
    )
    print(markdown_table(HEAD, rows))


if __name__ == "__main__":
    main()
