"""Planning: which offsets a batch reads, and which task reads which of them; pure functions.

Nothing is skipped or read twice: together the ranges of all tasks are exactly the offsets between a batch's
begin and its end. Not here: querying brokers (queue_lookup.py), reading (reading.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.protocol.bodies import MessageQueue

SMALL_ROWS: Final = 2_000
"""Ranges are combined into one task up to this many rows: a task costs more than reading them."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets of one queue from `begin` (inclusive) to `end` (exclusive)."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def rows(self) -> int:
        """The maximum number of messages."""
        return self.end - self.begin


def ranges_between(begin: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """The ranges between, sorted by queue; queues without a begin or without anything new are left out."""
    return [
        QueueRange(queue, begin[queue], end[queue])
        for queue in sorted(end)
        if queue in begin and begin[queue] < end[queue]
    ]


def limited_end(
    begin: Mapping[MessageQueue, int],
    available: Mapping[MessageQueue, int],
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    row_bytes: Mapping[MessageQueue, float] | None = None,
) -> dict[MessageQueue, int]:
    """Where a batch ends that respects the limits but reads at least one row.

    Each queue gets a proportional share of `max_rows`, so that none starves; the remainder goes to the
    longest queues. `max_bytes` is applied with the sizes in `row_bytes`, which are estimates.
    """
    rows = {queue: max(0, available[queue] - begin.get(queue, available[queue])) for queue in available}
    if max_rows is not None:
        rows = _shared(rows, max_rows)
    if max_bytes is not None:
        rows = _within_bytes(rows, max_bytes, row_bytes or {})
    return {queue: begin.get(queue, available[queue]) + rows[queue] for queue in available}


def _shared(rows: dict[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    total = sum(rows.values())
    if total <= limit:
        return rows
    # Integers throughout: with floats a share may be one too large.
    shares = {queue: count * limit // total for queue, count in rows.items()}
    left = limit - sum(shares.values())
    for queue in sorted(rows, key=lambda queue: (-rows[queue], queue)):
        more = min(left, rows[queue] - shares[queue], 1)
        shares[queue] += more
        left -= more
    return shares


def _within_bytes(
    rows: dict[MessageQueue, int], max_bytes: int, row_bytes: Mapping[MessageQueue, float]
) -> dict[MessageQueue, int]:
    sizes = {queue: max(1.0, row_bytes.get(queue, 1.0)) for queue in rows}
    total_bytes = sum(count * sizes[queue] for queue, count in rows.items())
    if total_bytes <= max_bytes:
        return rows
    fewer = {queue: int(count * (max_bytes / total_bytes)) for queue, count in rows.items()}
    if not any(fewer.values()):
        # One row is larger than the limit: without it the stream would stall.
        fullest = max(rows, key=lambda queue: (rows[queue], queue))
        fewer[fullest] = 1
    return fewer


def plan_tasks(
    ranges: Sequence[QueueRange], min_partitions: int | None = None, small_rows: int = SMALL_ROWS
) -> list[tuple[QueueRange, ...]]:
    """The ranges of each task, in queue order.

    Large ranges are split until there are `min_partitions`, if there are as many rows. Otherwise each queue
    is one task, and small ranges share one.
    """
    if min_partitions is not None and 0 < len(ranges) < min_partitions:
        return [(piece,) for piece in _split(ranges, min_partitions)]
    return _packed(ranges, small_rows, min_partitions or 1)


def _split(ranges: Iterable[QueueRange], wanted: int) -> list[QueueRange]:
    """Split into `wanted` pieces, with the largest as small as possible."""
    parts = {piece.queue: 1 for piece in ranges}
    heap = [(-piece.rows, index, piece) for index, piece in enumerate(ranges)]
    heapq.heapify(heap)
    for _ in range(wanted - len(heap)):
        size, index, piece = heap[0]
        if size >= -1:
            break
        parts[piece.queue] += 1
        heapq.heapreplace(heap, (-_ceil(piece.rows, parts[piece.queue]), index, piece))
    return [each for piece in ranges for each in _cut(piece, min(parts[piece.queue], piece.rows))]


def _cut(piece: QueueRange, parts: int) -> list[QueueRange]:
    bounds = [piece.begin + piece.rows * part // parts for part in range(parts + 1)]
    return [QueueRange(piece.queue, low, high) for low, high in zip(bounds, bounds[1:], strict=False)]


def _packed(ranges: Sequence[QueueRange], small_rows: int, min_tasks: int) -> list[tuple[QueueRange, ...]]:
    tasks: list[list[QueueRange]] = []
    rows = 0
    for index, piece in enumerate(ranges):
        must_spread = len(tasks) + len(ranges) - index <= min_tasks
        if tasks and rows + piece.rows <= small_rows and not must_spread:
            tasks[-1].append(piece)
            rows += piece.rows
        else:
            tasks.append([piece])
            rows = piece.rows
    return [tuple(task) for task in tasks]


def _ceil(number: int, parts: int) -> int:
    return -(-number // parts)
