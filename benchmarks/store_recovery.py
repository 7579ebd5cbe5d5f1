"""How long a start takes after a kill. `python -m benchmarks.store_recovery [--full] [--gib N] [--profile]`.

A log of 128 MiB (`--full`: 1 GiB) of 1 KiB messages with two keys, written by a store that is then given up
without a word. It is opened as it was left: the log flushed every 32 MiB, queues and index written now and
then and never synced, so that all of the log is walked; and with every derived file lost: queues, index,
checkpoint, snapshot. After a clean stop there is nothing to walk. Time is by the clock, the log in the page
cache. Beside it stands a bare loop that reads the log and takes the CRC of its bytes.

With `--gib` a log of so many GiB, in files of one each, is started as a kill has left it, from disk, in turns
with `dd` of the same files. `--write` keeps the result in benchmarks/results.
"""

from __future__ import annotations

import cProfile
import datetime
import os
import pstats
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks._broker_report import machine
from benchmarks._store_load import (
    Spent,
    bare_scan,
    markdown_table,
    options,
    spent,
    work_folder,
    write_log,
)
from kourou.store.disk.files import Files
from kourou.store.kernel import choose_kernel
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig

RESULTS = Path(__file__).parent / "results"
DERIVED = ("consumequeue", "index", "checkpoint", "consumequeue.snapshot")


class Derived:
    """The derived files as they were left, to be put back before each round."""

    def __init__(self, root: Path, kept: Path) -> None:
        self._root = root
        self._kept = kept
        kept.mkdir()
        self._copy(root, kept)

    def put_back(self) -> None:
        """All of them as they were."""
        self.lose()
        self._copy(self._kept, self._root)

    def lose(self) -> None:
        """None of them; the marker of a store that was not closed stays."""
        for name in DERIVED:
            path = self._root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _copy(self, source: Path, target: Path) -> None:
        # By cp, which keeps holes: an IndexFile has 400 MB of them.
        names = [str(source / name) for name in DERIVED if (source / name).exists()]
        if names:
            status = os.spawnlp(os.P_WAIT, "cp", "cp", "-a", "--sparse=always", *names, str(target))
            assert status == 0, "cp failed"


def start(root: Path) -> MessageStore:
    """Open the store as a broker does, which recovers it; `KOUROU_KERNEL=0` leaves it to Python."""
    kernel = choose_kernel().kernel
    return MessageStore.open(
        MessageStoreConfig(root=root), Files(), lambda: time.time_ns() // 1_000_000, kernel=kernel
    )


def measure_start(root: Path, expected: int) -> Spent:
    """One start; the store is given up again."""
    opened: list[MessageStore] = []
    took = spent(lambda: opened.append(start(root)))
    (store,) = opened
    assert store.report.records == expected, store.report
    assert sum(queue.max_queue_offset for queue in store.queues.items()) >= expected
    store.abandon()
    return took


def measure(folder: Path, log_bytes: int, rounds: int) -> list[list[str]]:
    """A row for each state of the files."""
    root = folder / "store"
    count, log_bytes = write_log(root, log_bytes)
    derived = Derived(root, folder / "kept")
    log_path = next((root / "commitlog").iterdir())
    took: dict[str, list[Spent]] = {"as left by a kill": [], "all derived files lost": [], "bare": []}
    for _ in range(rounds):
        derived.put_back()
        took["as left by a kill"].append(measure_start(root, count))
        derived.lose()
        took["all derived files lost"].append(measure_start(root, count))
        took["bare"].append(bare_scan(log_path, log_bytes))
    start(root).close()
    took["after a clean stop"] = [measure_clean(root) for _ in range(rounds)]
    return [_row(name, count, log_bytes, spents, took["bare"]) for name, spents in took.items()]


def measure_from_disk(folder: Path, log_bytes: int, rounds: int) -> list[list[str]]:
    """A row for starts after a kill, one for `dd`, both with nothing of the log in memory."""
    root = folder / "store"
    count, log_bytes = write_log(root, log_bytes)
    derived = Derived(root, folder / "kept")
    paths = sorted((root / "commitlog").iterdir())
    starts, dds = [], []
    for _ in range(rounds):
        derived.put_back()
        _drop(paths)
        dds.append(spent(lambda: _dd(paths, log_bytes)))
        _drop(paths)
        starts.append(measure_start(root, count))
    dd = _row("dd of its CommitLog", count, log_bytes, dds, dds)
    return [
        _row("as left by a kill, from disk", count, log_bytes, starts, starts)[:-1],
        [*dd[:3], "", "", "", dd[6]],
    ]


def _drop(paths: list[Path]) -> None:
    """Write what is dirty, and take all of it out of the page cache."""
    os.sync()
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _dd(paths: list[Path], log_bytes: int) -> None:
    """Read the files up to the end of the log."""
    for path in paths:
        size_bytes = min(path.stat().st_size, log_bytes - int(path.name))
        command = ["dd", f"if={path}", "of=/dev/null", "bs=4M", f"count={size_bytes}", "iflag=count_bytes"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def measure_clean(root: Path) -> Spent:
    """A start after a clean stop, and another clean stop."""
    opened: list[MessageStore] = []
    took = spent(lambda: opened.append(start(root)))
    opened[0].close()
    return took


def _row(name: str, count: int, log_bytes: int, spents: list[Spent], bare_spents: list[Spent]) -> list[str]:
    best = min(one.clock_s for one in spents)
    cpu = min(one.cpu_s for one in spents)
    bare_cpu = min(one.cpu_s for one in bare_spents)
    return [
        name,
        f"{best:.2f}",
        f"{median(one.clock_s for one in spents):.2f}",
        f"{cpu:.2f}",
        f"{cpu / count * 1e6:.2f}",
        f"{count / best:,.0f}",
        f"{log_bytes / best / 1e6:,.0f}",
        f"{bare_cpu / cpu:.2f}",
    ]


HEAD = (
    "start",
    "s, best",
    "median",
    "CPU s, best",
    "CPU µs a record",
    "records/s",
    "MB/s",
    "bare : this, CPU",
)


def profile(folder: Path, log_bytes: int) -> None:
    """Where the time goes, with all derived files lost."""
    root = folder / "store"
    write_log(root, log_bytes)
    Derived(root, folder / "kept").lose()
    profiler = cProfile.Profile()
    profiler.enable()
    store = start(root)
    profiler.disable()
    store.abandon()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead")
    parser.add_argument("--gib", type=int, help="from disk, a log of so many GiB, beside dd")
    parser.add_argument("--rounds", type=int, help="how many")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results")
    chosen = parser.parse_args()
    log_bytes, rounds = (1 << 30, 5) if chosen.full else (128 << 20, 3)
    rounds = chosen.rounds or rounds
    with work_folder() as folder:
        if chosen.profile:
            profile(folder, log_bytes)
            return
        if chosen.gib:
            log_bytes = chosen.gib << 30
            table = markdown_table(HEAD[:-1], measure_from_disk(folder, log_bytes, rounds))
        else:
            table = markdown_table(HEAD, measure(folder, log_bytes, rounds))
    text = f"{rounds} rounds, a log of {log_bytes >> 20:,} MiB.\n\n{table}\n"
    print(text)
    if chosen.write:
        write(text)


def write(text: str) -> None:
    """Add the result to the file of the day, with command and machine."""
    path = RESULTS / f"recovery-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.md"
    command = " ".join(["python -m benchmarks.store_recovery", *sys.argv[1:]])
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n## `{command}`\n\n{machine()}, {choose_kernel()}; load average {load}. {text}")


if __name__ == "__main__":
    main()
