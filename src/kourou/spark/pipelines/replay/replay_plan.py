"""The slices of a replay: a pure function of how many messages each queue has at which time.

A slice is a range of times, so that queues advance side by side as they originally did, and within it a range
of offsets of each queue. Slices end only where no queue has earlier messages after them: a clock that was set
back never changes the order of a queue. Long slices are split further by offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kourou.protocol.bodies import MessageQueue


@dataclass(frozen=True, slots=True)
class Bucket:
    """The messages of an archived queue in a short time span that begins at `begin_ms`."""

    queue: MessageQueue
    begin_ms: int
    rows: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one queue, both ends inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The messages sent between two records of progress."""

    begin_ms: int
    end_ms: int
    """The end of the slice's time range."""
    rows: int
    """The number of messages; approximate for a part of a longer slice."""
    ranges: dict[MessageQueue, OffsetRange]


def plan_slices(buckets: Sequence[Bucket], *, bucket_ms: int, slice_rows: int) -> Iterator[Slice]:
    """Slices of about this many rows, in sending order."""
    ordered = sorted(buckets, key=lambda bucket: bucket.begin_ms)
    forbidden = _crossed_cuts(ordered)
    taken: list[Bucket] = []
    for begin_ms, group in groupby(ordered, key=lambda bucket: bucket.begin_ms):
        rows = sum(bucket.rows for bucket in taken)
        if rows >= slice_rows and not any(low < begin_ms <= high for low, high in forbidden):
            yield from _pieces(_slice(taken, bucket_ms), slice_rows)
            taken = []
        taken += group
    if taken:
        yield from _pieces(_slice(taken, bucket_ms), slice_rows)


def _crossed_cuts(ordered: Sequence[Bucket]) -> list[tuple[int, int]]:
    """Times (from, to] at which no slice may end, as a queue has lower offsets after them than before."""
    by_queue: dict[MessageQueue, list[Bucket]] = {}
    for bucket in ordered:
        by_queue.setdefault(bucket.queue, []).append(bucket)
    crossed = []
    for own in by_queue.values():
        lowest_after = [bucket.first_offset for bucket in own]
        for at in range(len(own) - 2, -1, -1):
            lowest_after[at] = min(lowest_after[at], lowest_after[at + 1])
        highest = -1
        for at in range(len(own) - 1):
            highest = max(highest, own[at].last_offset)
            if highest >= lowest_after[at + 1]:
                crossed.append((own[at].begin_ms, own[at + 1].begin_ms))
    return crossed


def _slice(buckets: Sequence[Bucket], bucket_ms: int) -> Slice:
    ranges: dict[MessageQueue, OffsetRange] = {}
    for bucket in buckets:
        before = ranges.get(bucket.queue, OffsetRange(bucket.first_offset, bucket.last_offset))
        ranges[bucket.queue] = OffsetRange(
            min(before.first, bucket.first_offset), max(before.last, bucket.last_offset)
        )
    begin_ms = min(bucket.begin_ms for bucket in buckets)
    end_ms = max(bucket.begin_ms for bucket in buckets) + bucket_ms
    return Slice(begin_ms, end_ms, sum(bucket.rows for bucket in buckets), ranges)


def _pieces(whole: Slice, slice_rows: int) -> Iterator[Slice]:
    """Split so that every queue advances by the same share of its offsets."""
    count = -(-whole.rows // slice_rows)
    for number in range(count):
        ranges = {}
        for queue, each in whole.ranges.items():
            length = each.last - each.first + 1
            first = each.first + length * number // count
            last = each.first + length * (number + 1) // count - 1
            if last >= first:
                ranges[queue] = OffsetRange(first, last)
        rows = whole.rows * (number + 1) // count - whole.rows * number // count
        yield Slice(whole.begin_ms, whole.end_ms, rows, ranges)


def target_queues(
    sources: Sequence[MessageQueue], targets: Mapping[str, Sequence[MessageQueue]], topic: str | None
) -> dict[MessageQueue, MessageQueue]:
    """The target of each archived queue: one queue, to keep its order.

    The one with the same broker and number if it exists, otherwise round-robin. `topic` is the target of all;
    None: each topic's own name.
    """
    found = {}
    for number, source in enumerate(sorted(sources)):
        there = sorted(targets[topic or source.topic])
        same = [
            each
            for each in there
            if (each.broker_name, each.queue_id) == (source.broker_name, source.queue_id)
        ]
        found[source] = same[0] if same else there[number % len(there)]
    return found
