"""The cost of appending, in commit cycles of 1, 32 and 256 messages.

Run as `python -m benchmarks.store_append [--full]`. A round does the work of a broker's commit cycles: put,
one write, publish to ConsumeQueues, collect and build the index (two keys per message), respond; at its end
one flush of queues and index into the page cache. It is compared with two bare loops that write as many bytes
to a file of the same kind: one `pwrite` per cycle, and one per record.
"""

from __future__ import annotations

import cProfile
import os
import pstats
from itertools import product
from pathlib import Path
from zlib import crc32

from benchmarks._store_load import (
    Ready,
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
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig

BODY_BYTES = (128, 1024)
PER_CYCLE = (1, 32, 256)
QUEUES = 8
LOG_FILE_BYTES = 1024 * 1024 * 1024


class BareFile:
    """A file like one of the CommitLog, and nothing around it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.posix_fallocate(self._descriptor, 0, LOG_FILE_BYTES)
        self._position = 0

    def write(self, writes: int, size_bytes: int) -> Spent:
        """So many writes of so many bytes, where none were before."""
        data = os.urandom(size_bytes)
        descriptor, start = self._descriptor, self._position
        self._position += writes * size_bytes

        def work() -> None:
            pwrite = os.pwrite
            for position in range(start, start + writes * size_bytes, size_bytes):
                pwrite(descriptor, data, position)

        return spent(work)

    def close(self) -> None:
        """Remove it: the next one has pages of its own."""
        os.close(self._descriptor)
        self._path.unlink()


def append_round(store: MessageStore, messages: list[Ready], per_cycle: int) -> Spent:
    """One round of ours."""

    def work() -> None:
        append(store, messages, per_cycle)
        store.flush_derived(thorough=False)

    return spent(work)


def record_bytes(store: MessageStore, messages: list[Ready]) -> int:
    """How long one of the records is."""
    start = store.log.max_phy_offset
    append(store, messages[:1], 1)
    return store.log.max_phy_offset - start


def crc_round(messages: list[Ready]) -> Spent:
    """The CRC that every record needs of its body, and nothing else."""

    def work() -> None:
        for message in messages:
            crc32(message[1])

    return spent(work)


def measure(folder: Path, body_bytes: int, per_cycle: int, count: int, rounds: int) -> list[str]:
    """The row for one size of body and of commit cycle."""
    ours, batches, records, crcs = [], [], [], []
    bare = BareFile(folder / "bare")
    with open_store(MessageStoreConfig(root=folder / f"store-{body_bytes}-{per_cycle}")) as store:
        queues = [store.queue("TopicTest", queue_id) for queue_id in range(QUEUES)]
        messages = ready_messages(queues, count, body_bytes)
        size = record_bytes(store, messages)
        for _ in range(rounds):
            ours.append(append_round(store, messages, per_cycle))
            batches.append(bare.write(count // per_cycle, size * per_cycle))
            records.append(bare.write(count, size))
            crcs.append(crc_round(messages))
    bare.close()
    best, middle = best_and_median(ours, count)
    cells = [f"{body_bytes:,} B", str(per_cycle), f"{count / min(one.clock_s for one in ours):,.0f}"]
    cells += [f"{best:.2f}", f"{middle:.2f}"]
    for bare_rounds in (batches, records):
        bare_best, bare_middle = best_and_median(bare_rounds, count)
        cells += [f"{bare_best:.2f}", f"{bare_middle:.2f}", f"{bare_best / best:.2f}"]
    return [*cells, f"{best_and_median(crcs, count)[0]:.2f}"]


HEAD = (
    "body",
    "a cycle",
    "messages/s, clock, best",
    "µs a message, best",
    "median",
    "`pwrite` of a batch, best",
    "median",
    "ratio",
    "`pwrite` of each record, best",
    "median",
    "ratio",
    "CRC of the body, best",
)


def profile(folder: Path) -> None:
    """Where the time goes at 1 KiB in commit cycles of 256."""
    with open_store(MessageStoreConfig(root=folder / "store-profile")) as store:
        queues = [store.queue("TopicTest", queue_id) for queue_id in range(QUEUES)]
        messages = ready_messages(queues, 51_200, 1024)
        append_round(store, messages, 256)
        profiler = cProfile.Profile()
        profiler.enable()
        append_round(store, messages, 256)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(16)


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead")
    chosen = parser.parse_args()
    count, rounds = (40_960, 9) if chosen.full else (10_240, 5)
    with work_folder() as folder:
        if chosen.profile:
            profile(folder)
            return
        rows = [
            measure(folder, body_bytes, per_cycle, count, rounds)
            for body_bytes, per_cycle in product(BODY_BYTES, PER_CYCLE)
        ]
    print(f"{rounds} rounds of {count:,} messages. The ratio is that of the best rounds, in CPU time.\n")
    print(markdown_table(HEAD, rows))


if __name__ == "__main__":
    main()
