"""Figures of Spark's reads as tables: medians, and ratios of what ran in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from benchmarks._broker_report import spread

WIDTHS = {
    "kafka": "those of the Kafka source",
    "value": "`value` alone",
    "own": "all that the source has",
}
PEERS = ("Kafka", "Parquet")
CPU_PARTS = ("JVM", "workers", "server")
Key = tuple[int | str, ...]


class Rounds:
    """Figures by key, in the order of the rounds."""

    def __init__(self) -> None:
        self.values: dict[Key, list[float]] = {}

    def add(self, key: Key, value: float) -> None:
        """Another round."""
        self.values.setdefault(key, []).append(value)

    def median(self, key: Key) -> float:
        """The middle of all rounds."""
        return statistics.median(self.values[key])

    def ratio(self, key: Key, other: Key) -> str:
        """How many times the other's, round by round, with the spread; nothing where one is missing."""
        if key not in self.values or other not in self.values or key == other:
            return ""
        return spread([one / two for one, two in zip(self.values[key], self.values[other], strict=True)])


def read_table(reads: Rounds, cpu_us: Rounds, sizes: Iterable[int]) -> str:
    """A line for each size, source and set of columns."""
    heads = ["bytes of a value", "source", "columns", "rows/s", "MB/s of values", "CPU µs a row"]
    rows = []
    for size_bytes in sizes:
        for key in (key for key in reads.values if key[0] == size_bytes):
            _, name, width = key
            middle = reads.median(key)
            cells = [f"{size_bytes:,}", str(name), WIDTHS[str(width)], f"{middle:,.0f}"]
            cells.append(f"{middle * size_bytes / 1e6:,.0f}")
            cells.append(_cpu_cell(cpu_us, key))
            # Only our source has all of these columns: the whole rows of the others come closest.
            peer_width = "kafka" if width == "own" else width
            cells += [reads.ratio(key, (size_bytes, peer, peer_width)) for peer in PEERS]
            rows.append(cells)
    return table([*heads, *(f": {peer}" for peer in PEERS)], rows)


def _cpu_cell(cpu_us: Rounds, key: Key) -> str:
    parts = [cpu_us.median((*key, name)) for name in CPU_PARTS]
    return f"{sum(parts):.2f} ({' + '.join(f'{part:.2f}' for part in parts)})"


def sink_table(sends: Rounds, sizes: Iterable[int]) -> str:
    """A line for each size."""
    names = list(dict.fromkeys(str(key[1]) for key in sends.values))
    rows = []
    for size_bytes in sizes:
        keys: list[Key] = [(size_bytes, name) for name in names]
        medians = [f"{sends.median(key):,.0f}" for key in keys]
        rows.append([f"{size_bytes:,}", *medians, sends.ratio(keys[0], keys[-1])])
    return table(["bytes of a value", *(f"{name}, rows/s" for name in names), "ratio"], rows)


def latency_table(batches_ms: Rounds, sizes: Iterable[int]) -> str:
    """A line for each size and source."""
    rows = []
    for size_bytes in sizes:
        for key in (key for key in batches_ms.values if key[0] == size_bytes):
            times_ms = sorted(batches_ms.values[key])
            p95_ms = times_ms[min(len(times_ms) - 1, len(times_ms) * 95 // 100)]
            cells = [f"{statistics.median(times_ms):.0f}", f"{p95_ms:.0f}", str(len(times_ms))]
            rows.append([f"{size_bytes:,}", str(key[1]), *cells])
    return table(["bytes of a value", "source", "p50, ms", "p95, ms", "batches"], rows)


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Cells as Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])
