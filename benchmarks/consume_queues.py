"""What many ConsumeQueues cost: memory, appends, flush rounds, starts. `python -m benchmarks.consume_queues`.

Numbers of queues may be given as arguments; 10,000 and 50,000 otherwise. Each runs in a process
of its own, since memory is part of the question, in a temporary folder (TMPDIR says where).
Bare loops that do only the unavoidable stand beside the store's figures.
"""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kourou.store.disk.files import Files
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues

QUEUES = (10_000, 50_000)
QUEUES_PER_TOPIC = 8
FILE_BYTES = 6_000_000
RECORD_BYTES = 1024
HOT_APPENDS = 300_000

_pack = struct.Struct(">qiq").pack


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(name: str, seconds: float, count: int, unit: str, note: str = "") -> None:
    """One line: time per piece, and in all."""
    print(f"{seconds / count * 1e6:10.2f} µs/{unit:6} {seconds:8.2f} s  {name}{note}")


def timed(step: Callable[[], object]) -> float:
    """Seconds a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


class Load:
    """Appends records that follow each other in the log."""

    def __init__(self, queues: list[ConsumeQueue]) -> None:
        self.queues = queues
        self.phy_offset = 0

    def spread(self) -> None:
        """One unit to every queue."""
        phy_offset = self.phy_offset
        for queue in self.queues:
            queue.append(phy_offset, RECORD_BYTES, 0)
            phy_offset += RECORD_BYTES
        self.phy_offset = phy_offset

    def hot(self) -> None:
        """Many units to one queue."""
        queue, phy_offset = self.queues[0], self.phy_offset
        for _ in range(HOT_APPENDS):
            queue.append(phy_offset, RECORD_BYTES, 0)
            phy_offset += RECORD_BYTES
        self.phy_offset = phy_offset


def bare_appends() -> None:
    """The same bytes into one buffer."""
    tail, phy_offset = bytearray(), 0
    for _ in range(HOT_APPENDS):
        tail += _pack(phy_offset, RECORD_BYTES, 0)
        phy_offset += RECORD_BYTES


def bare_writes(places: list[tuple[str, int]]) -> None:
    """One unit into every file: open, write, close."""
    unit = _pack(1, RECORD_BYTES, 0)
    for path, position in places:
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, unit, position)
        os.close(fd)


def measure_memory(root: Path, count: int) -> tuple[ConsumeQueues, Load]:
    """Make the queues and append to them."""
    before_mb = resident_mb()
    queues = ConsumeQueues(Files(), root, FILE_BYTES)
    load = Load([])
    seconds = timed(lambda: load.queues.extend(_get(queues, number) for number in range(count)))
    report("make queues", seconds, count, "queue")
    report("append, one unit to each queue, first", timed(load.spread), count, "unit")
    seconds = min(timed(load.spread) for _ in range(3))
    report("append, one unit to each queue, later", seconds, count, "unit")
    print(f"{resident_mb() - before_mb:10.1f} MB for queues with 4 units each in memory")
    seconds = min(timed(load.hot) for _ in range(3))
    bare = min(timed(bare_appends) for _ in range(3))
    note = f"; a bare buffer takes {bare / HOT_APPENDS * 1e6:.2f} µs"
    report("append, all to one queue", seconds, HOT_APPENDS, "unit", note)
    return queues, load


def _get(queues: ConsumeQueues, number: int) -> ConsumeQueue:
    return queues.get(f"topic-{number // QUEUES_PER_TOPIC:05d}", number % QUEUES_PER_TOPIC)


def measure_flush(queues: ConsumeQueues, load: Load, root: Path) -> None:
    """Rounds over all queues: with files to make, and with files there."""
    count = len(load.queues)
    report("flush round, files made", timed(lambda: queues.flush_round(least_bytes=0)), count, "queue")
    rounds = []
    for _ in range(3):
        load.spread()
        rounds.append(timed(lambda: queues.flush_round(least_bytes=0)))
    # Where the next unit will be, which the round after this writes over.
    places = [
        (f"{root}/{queue.topic}/{queue.queue_id}/{0:020d}", queue.max_queue_offset * 20)
        for queue in load.queues[1:]
    ]
    bare = timed(lambda: bare_writes(places)) / count * 1e6
    report(
        "flush round, one unit each", min(rounds), count, "queue", f"; bare open, pwrite, close {bare:.2f} µs"
    )
    load.spread()
    report("round that finds nothing due", timed(queues.flush_round), count, "queue")
    queues.flush_round(least_bytes=0)


def measure_reads(load: Load) -> None:
    """Units that were flushed: with the file open, and where it has to be opened."""
    count = len(load.queues)
    report("read 32 units, file opened", timed(lambda: _read_each(load.queues, 1)), count, "read")
    few = load.queues[:1000]
    _read_each(few, 1)
    report("read 32 units, file open", timed(lambda: _read_each(few, 10)), len(few) * 10, "read")


def _read_each(queues: list[ConsumeQueue], times: int) -> None:
    for _ in range(times):
        for queue in queues:
            queue.read_units(0, 32)


def measure_start(queues: ConsumeQueues, load: Load, root: Path) -> None:
    """Finding all queues again, with the snapshot and by looking at every file."""
    count = len(load.queues)
    report("save the snapshot", timed(lambda: queues.save_snapshot(load.phy_offset)), count, "queue")
    for name, snapshot_ok in (("start by snapshot", True), ("start by looking at every file", False)):
        again = ConsumeQueues(Files(), root, FILE_BYTES)
        seconds = timed(lambda again=again, ok=snapshot_ok: again.load(ok))  # type: ignore[misc]
        assert len(again) == count and again.max_phy_offset() == load.phy_offset
        report(name, seconds, count, "queue")


def measure(count: int) -> None:
    """Everything, with this many queues."""
    print(f"\n{count:,} queues, {QUEUES_PER_TOPIC} a topic, files of {FILE_BYTES:,} bytes")
    before_mb = resident_mb()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "consumequeue"
        queues, load = measure_memory(root, count)
        measure_flush(queues, load, root)
        measure_reads(load)
        print(f"{resident_mb() - before_mb:10.1f} MB after flushes and reads, {resident_mb():.1f} MB in all")
        measure_start(queues, load, root)
        queues.close()


def main() -> None:
    """Measure each number of queues in a process of its own."""
    counts = [int(argument) for argument in sys.argv[1:]]
    if len(counts) == 1:
        measure(counts[0])
        return
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    for count in counts or QUEUES:
        sys.stdout.flush()
        subprocess.run([sys.executable, "-m", "benchmarks.consume_queues", str(count)], check=True)


if __name__ == "__main__":
    main()
