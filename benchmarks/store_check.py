"""How fast `kourou store check` looks at a store. `python -m benchmarks.store_check [--full]`.

A store of 128 MiB (`--full`: 1 GiB) of 1 KiB messages with two keys in 32 queues, closed cleanly and in the
page cache. Beside it stands a bare loop that reads the log and takes the CRC of its bytes.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks._store_load import (
    Spent,
    bare_scan,
    markdown_table,
    options,
    spent,
    work_folder,
    write_log,
)
from kourou.store.check.check import check_store
from kourou.store.disk.files import Files
from kourou.store.kernel import choose_kernel
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig


def check(root: Path, count: int) -> None:
    """One check, which finds nothing; `KOUROU_KERNEL=0` leaves it to Python."""
    report = check_store(Files(), root, kernel=choose_kernel().kernel)
    assert report.ok and not report.recovery, report
    assert report.counts.records == report.counts.units == count
    assert report.counts.index_entries == 2 * count


def measure(folder: Path, log_bytes: int, rounds: int) -> list[list[str]]:
    """A row for the check, one for the bare loop."""
    root = folder / "store"
    count, log_bytes = write_log(root, log_bytes)
    MessageStore.open(MessageStoreConfig(root=root), Files(), lambda: time.time_ns() // 1_000_000).close()
    path = next((root / "commitlog").iterdir())
    checks, scans = [], []
    for _ in range(rounds):
        checks.append(spent(lambda: check(root, count)))
        scans.append(bare_scan(path, log_bytes))
    ratio = min(one.cpu_s for one in scans) / min(one.cpu_s for one in checks)
    return [
        [*_cells("store check", count, log_bytes, checks), f"{ratio:.2f}"],
        [*_cells("bare", count, log_bytes, scans), "1.00"],
    ]


def _cells(name: str, count: int, log_bytes: int, rounds: list[Spent]) -> list[str]:
    best = min(one.clock_s for one in rounds)
    cpu = min(one.cpu_s for one in rounds)
    return [
        name,
        f"{best:.2f}",
        f"{median(one.clock_s for one in rounds):.2f}",
        f"{cpu:.2f}",
        f"{cpu / count * 1e6:.2f}",
        f"{count / best:,.0f}",
        f"{log_bytes / best / 1e6:,.0f}",
    ]


HEAD = ("", "s, best", "median", "CPU s, best", "CPU µs a record", "records/s", "MB/s", "bare : this, CPU")


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    log_bytes, rounds = (1 << 30, 5) if chosen.full else (128 << 20, 3)
    with work_folder() as folder:
        rows = measure(folder, log_bytes, rounds)
    print(f"{rounds} rounds, a log of {log_bytes >> 20:,} MiB.\n")
    print(markdown_table(HEAD, rows))


if __name__ == "__main__":
    main()
