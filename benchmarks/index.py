"""The cost of indexing a message: collect, build, flush, query. `python -m benchmarks.index`.

Messages have a unique id and one business key, a file has RocketMQ's size (5 million slots, 20 million
entries), and records arrive in commit cycles, as in a broker. Filling and queries are in processor time,
filling by the best round: on a shared machine only that is meaningful. The rest is wall-clock time.
"""

from __future__ import annotations

import gc
import platform
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from kourou.store.disk.files import Files
from kourou.store.index.index_service import IndexService

SLOTS = 5_000_000
ENTRIES = 20_000_000
MESSAGES = 100_000
PER_CYCLE = 32
ROUNDS = 20
EXTRA = 20_480
NOW_MS = 1_794_711_764_287

Record = tuple[str, tuple[str, ...], int, int]


def records(first: int, count: int) -> list[Record]:
    """Messages of ten topics, 1 KiB apart in the log, 100 in each millisecond."""
    return [
        (
            f"Topic{number % 10}",
            (f"7F00000150805FFD2B2748C0{number:08X}", f"order-{number}"),
            number * 1024,
            NOW_MS + number // 100,
        )
        for number in range(first, first + count)
    ]


def fill(index: IndexService, taken: list[Record]) -> float:
    """Seconds to index the records in commit cycles of 32, including the final build."""
    started = time.process_time()
    for first in range(0, len(taken), PER_CYCLE):
        for topic, keys, phy_offset, store_timestamp in taken[first : first + PER_CYCLE]:
            index.collect(topic, keys, phy_offset, store_timestamp)
    index.build()
    return time.process_time() - started


def rest_of_the_loop(taken: list[Record]) -> float:
    """Seconds that `fill` takes without the index."""
    started = time.process_time()
    for first in range(0, len(taken), PER_CYCLE):
        for _, _, _, _ in taken[first : first + PER_CYCLE]:
            pass
    return time.process_time() - started


def measure_filling(index: IndexService) -> None:
    """Time per message, and of a flush of as many as a busy second brings."""
    fills, loops, flushes = [], [], []
    for number in range(ROUNDS):
        taken = records(number * MESSAGES, MESSAGES)
        gc.freeze()  # as a broker does after its start: what is old is not looked at again
        loops.append(rest_of_the_loop(taken))
        fills.append(fill(index, taken))
        started = time.perf_counter()
        index.flush()
        flushes.append(time.perf_counter() - started)
    print(f"{(min(fills) - min(loops)) / MESSAGES * 1e6:8.2f} µs  a message with two keys, collect and build")
    print(f"{statistics.median(flushes) * 1e3:8.1f} ms  flush of {MESSAGES:,} messages, median")


def measure_pauses(index: IndexService) -> None:
    """Time of single calls of `collect`, the longest of which build a batch."""
    times = []
    for topic, keys, phy_offset, store_timestamp in records(ROUNDS * MESSAGES, EXTRA):
        started = time.perf_counter()
        index.collect(topic, keys, phy_offset, store_timestamp)
        times.append(time.perf_counter() - started)
    built = sorted(times)[-(EXTRA // 2048) :]
    print(f"{statistics.median(times) * 1e6:8.2f} µs  collect, median (the clock included)")
    print(f"{statistics.median(built) * 1e3:8.2f} ms  collect that builds a batch, median")


def measure_queries(index: IndexService) -> None:
    """Time of a query by unique id, anywhere in the file."""
    chosen = random.Random(1)
    numbers = [chosen.randrange(ROUNDS * MESSAGES) for _ in range(5_000)]
    started = time.process_time()
    for number in numbers:
        found = index.query(f"Topic{number % 10}", f"7F00000150805FFD2B2748C0{number:08X}", 32, 0, NOW_MS * 2)
        assert number * 1024 in found
    print(f"{(time.process_time() - started) / len(numbers) * 1e6:8.2f} µs  query by unique id")


def measure_starts(folder: Path) -> None:
    """Time to open the file after a clean stop, and to check and rebuild it after a crash."""
    for clean_exit in (True, False):
        index = IndexService(Files(), folder, SLOTS, ENTRIES, lambda: NOW_MS)
        started = time.perf_counter()
        index.load(clean_exit, 0)
        took_ms = (time.perf_counter() - started) * 1e3
        index.close()
        entries = 2 * (ROUNDS * MESSAGES + EXTRA)
        print(
            f"{took_ms:8.1f} ms  load after a {'clean stop' if clean_exit else 'crash'}, {entries:,} entries"
        )


def resident_mb() -> float:
    """Most memory this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure everything here."""
    print(f"Python {platform.python_version()}, {platform.machine()}, {SLOTS:,} slots, {ENTRIES:,} entries")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "index"
        index = IndexService(Files(), folder, SLOTS, ENTRIES, lambda: NOW_MS)
        index.load(True, 0)
        at_rest = resident_mb()
        index.collect("Topic0", ("one",), 0, NOW_MS)
        index.build()
        print(f"{resident_mb() - at_rest:8.1f} MB  more in memory for a new file with one entry")
        index.reset()
        measure_filling(index)
        measure_pauses(index)
        index.flush()
        measure_queries(index)
        index.close()
        measure_starts(folder)


if __name__ == "__main__":
    main()
