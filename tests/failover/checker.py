"""Checks of a history: what a broker set promises to its clients, and where a run broke it.

Pure functions of operations (history.py), in about linear time. `python -m tests.failover.checker FILE...`
prints the report of history files. Each finding names the values, offsets and operations with their times.

What is a fault and what is not: findings.py.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tests.failover.findings import Fault, Finding, Report
from tests.failover.history import Operation, read_history

Place = tuple[str, int]
"""Queue and offset."""
_MAX_RANGES: Final = 10
"""Ranges of offsets in a text."""


def check(operations: Iterable[Operation]) -> Report:
    """All checks. ValueError for a value that was sent twice by the workload itself."""
    run = _Run.of(operations)
    checks = (
        _lost,
        _stored_twice,
        _two_values,
        _reordered,
        _refused_but_read,
        _transactions,
        _publishes,
        _two_epochs,
        _wrong_master,
        _skipped,
        _holes,
        _undelivered,
        _offsets_ahead,
    )
    return Report([finding for each in checks for finding in each(run)], run.counts())


# -- an index of the history -------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """The operations of a history, by what checks look for."""

    start_ns: int = 0
    sent: dict[str, Operation] = field(default_factory=dict)
    reads: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """By value: what readers and consumers got."""
    stored: set[str] = field(default_factory=set)
    """The values that final readers found."""
    scans: dict[str, Operation] = field(default_factory=dict)
    """By queue."""
    acknowledged: list[Operation] = field(default_factory=list)
    """Sends with their place."""
    decisions: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    publishes: dict[tuple[str, int | None], list[Operation]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By process and batch."""
    drains: list[Operation] = field(default_factory=list)
    offsets: list[Operation] = field(default_factory=list)
    masters: dict[tuple[str, int], Operation] = field(default_factory=dict)
    """By broker name and epoch."""
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By broker name: first offset and epoch."""
    events: int = 0

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> _Run:
        run = cls()
        start_ns: int | None = None
        for operation in operations:
            if start_ns is None or operation.begin_ns < start_ns:
                start_ns = operation.begin_ns
            run._add(operation)
        run.start_ns = start_ns or 0
        for starts in run.epochs.values():
            starts.sort()
        return run

    def _add(self, operation: Operation) -> None:
        value, queue, kind = operation.value, operation.queue, operation.kind
        if kind in ("read", "deliver"):
            assert value is not None
            self.reads[value].append(operation)
            if kind == "read":
                self.stored.add(value)
        elif kind in ("send", "transaction", "publish"):
            assert value is not None
            if value in self.sent:
                raise ValueError(f"value {value!r} was sent by two operations; values have to be unique")
            self.sent[value] = operation
            if kind == "transaction":
                self.decisions[value].append(operation)
            elif kind == "publish":
                self.publishes[operation.process, operation.batch].append(operation)
            elif operation.is_acknowledged and queue is not None and operation.queue_offset is not None:
                self.acknowledged.append(operation)
        elif kind == "check":
            assert value is not None
            self.decisions[value].append(operation)
        elif kind == "scan":
            assert queue is not None
            self.scans[queue] = operation
        elif kind == "drain":
            self.drains.append(operation)
        elif kind == "offset":
            self.offsets.append(operation)
        elif kind == "reign":
            assert operation.key is not None and operation.epoch is not None
            self.masters[operation.key, operation.epoch] = operation
        elif kind == "epoch":
            assert operation.key is not None and operation.phy_offset is not None
            assert operation.epoch is not None
            self.epochs[operation.key].append((operation.phy_offset, operation.epoch))
        elif kind == "event":
            self.events += 1

    def epoch_of(self, operation: Operation) -> int | None:
        """The epoch in which a record was stored and acknowledged; None if that is not known."""
        if operation.is_idempotent and operation.unsure_attempts:
            return None
        if operation.epoch is not None or operation.phy_offset is None:
            return operation.epoch
        starts = self.epochs.get(_broker_name(operation), [])
        found = bisect_right(starts, operation.phy_offset, key=lambda start: start[0])
        return starts[found - 1][1] if found else None

    def delivered(self) -> Iterator[Operation]:
        for operations in self.reads.values():
            for operation in operations:
                if operation.kind == "deliver":
                    yield operation

    def published(self) -> Iterator[Operation]:
        """The messages of publishes that were acknowledged, at the places where they were found."""
        for operations in self.publishes.values():
            for operation in operations:
                found = (each for each in self.reads.get(operation.value or "", ()) if each.kind == "read")
                if operation.is_acknowledged and (read := next(found, None)) is not None:
                    place = {"queue": read.queue, "queue_offset": read.queue_offset}
                    yield msgspec.structs.replace(operation, **place)

    def counts(self) -> dict[str, int]:
        """How much was done."""
        outcomes = Counter(operation.outcome for operation in self.sent.values())
        kinds = Counter(operation.kind for operation in self.sent.values())
        return {
            "sent": kinds["send"],
            "transactions": kinds["transaction"],
            "published": kinds["publish"],
            "acknowledged": outcomes["ok"],
            "refused": outcomes["failed"],
            "unknown": outcomes["unknown"],
            "stored": len(self.stored),
            "deliveries": sum(1 for _ in self.delivered()),
            "offsets": len(self.offsets),
            "queues": len(self.scans),
            "epochs": len({epoch for starts in self.epochs.values() for _, epoch in starts}),
            "events": self.events,
        }

    def shown(self, operation: Operation) -> str:
        """An operation, with seconds since the first of the history."""
        begin_s = (operation.begin_ns - self.start_ns) / 1e9
        end = "never" if operation.end_ns is None else f"{(operation.end_ns - self.start_ns) / 1e9:.6f}"
        words = [f"{operation.kind} {operation.value!r} by {operation.process}"]
        if operation.queue is not None:
            words.append(f"at {operation.queue} offset {operation.queue_offset}")
        if operation.group is not None:
            words.append(f"for {operation.group}")
        if operation.decision is not None:
            words.append(f"with {operation.decision}")
        if (epoch := self.epoch_of(operation)) is not None:
            words.append(f"in epoch {epoch}")
        if operation.address is not None:
            words.append(f"of {operation.address}")
        return f"[{' '.join(words)}, from {begin_s:.6f} s to {end} s: {operation.outcome}]"

    def finding(self, fault: Fault, text: str, *operations: Operation) -> Finding:
        shown = " ".join(self.shown(operation) for operation in operations)
        return Finding(fault, f"{text} {shown}".rstrip(), operations)


def _broker_name(operation: Operation) -> str:
    return "" if operation.queue is None else operation.queue.rsplit("/", 2)[1]


def _place(operation: Operation) -> Place | None:
    if operation.queue is None or operation.queue_offset is None:
        return None
    return operation.queue, operation.queue_offset


# -- values ------------------------------------------------------------------------------------------


def _lost(run: _Run) -> Iterator[Finding]:
    unread: dict[str, Operation] = {}
    for operation in run.acknowledged:
        queue, queue_offset = operation.queue, operation.queue_offset
        assert queue is not None and queue_offset is not None and operation.value is not None
        scan = run.scans.get(queue)
        if scan is None:
            unread.setdefault(queue, operation)
        elif operation.value not in run.stored and queue_offset >= (scan.low_offset or 0):
            seen = run.reads.get(operation.value, [])[:1]
            yield run.finding(Fault.LOST, f"{operation.value!r} is lost:", operation, *seen)
    for queue, operation in unread.items():
        yield run.finding(Fault.UNREAD_QUEUE, f"{queue} was not read in the end:", operation)


def _stored_twice(run: _Run) -> Iterator[Finding]:
    for value, reads in run.reads.items():
        sent = run.sent.get(value)
        if sent is None:
            yield run.finding(Fault.NEVER_SENT, f"{value!r} was never sent:", reads[0])
            continue
        places: dict[Place, Operation] = {}
        for operation in (sent, *reads):
            if (place := _place(operation)) is not None and (operation is not sent or sent.is_acknowledged):
                places.setdefault(place, operation)
        if len(places) > _allowed(sent):
            offsets = ", ".join(f"{queue} offset {queue_offset}" for queue, queue_offset in places)
            text = f"{value!r} is at {offsets}, and may be stored {_allowed(sent)} times:"
            witnesses = [operation for operation in places.values() if operation is not sent]
            yield run.finding(Fault.STORED_TWICE, text, sent, *witnesses)


def _allowed(sent: Operation) -> int:
    """At how many offsets a value may be."""
    if sent.is_idempotent:
        return 1
    return max(1, sent.unsure_attempts + sent.is_acknowledged)


def _two_values(run: _Run) -> Iterator[Finding]:
    places: dict[Place, Operation] = {}
    others: set[tuple[Place, str]] = set()
    witnesses = (*run.acknowledged, *(read for reads in run.reads.values() for read in reads))
    for operation in witnesses:
        place, value = _place(operation), operation.value
        assert place is not None and value is not None
        first = places.setdefault(place, operation)
        if first.value != value and (place, value) not in others:
            others.add((place, value))
            text = f"{place[0]} offset {place[1]} has {first.value!r} and {value!r}:"
            yield run.finding(Fault.TWO_VALUES, text, first, operation)


def _refused_but_read(run: _Run) -> Iterator[Finding]:
    for value, sent in run.sent.items():
        if sent.outcome == "failed" and value in run.reads:
            text = f"{value!r} was refused:"
            yield run.finding(Fault.REFUSED_BUT_READ, text, sent, run.reads[value][0])


def _transactions(run: _Run) -> Iterator[Finding]:
    for value, decisions in run.decisions.items():
        by_decision = {each.decision: each for each in decisions if each.decision is not None}
        if len(by_decision) > 1:
            text = f"{value!r} has both outcomes:"
            yield run.finding(Fault.BOTH_OUTCOMES, text, *by_decision.values())
            continue
        sent = run.sent.get(value)
        if sent is None or sent.outcome == "failed":
            continue
        if "rollback" in by_decision and value in run.reads:
            text = f"{value!r} was rolled back:"
            yield run.finding(Fault.ROLLED_BACK_BUT_READ, text, sent, run.reads[value][0])
        elif "commit" in by_decision and sent.is_acknowledged and value not in run.stored and run.scans:
            text = f"{value!r} was committed:"
            yield run.finding(Fault.COMMITTED_BUT_MISSING, text, sent, *run.reads.get(value, [])[:1])


def _publishes(run: _Run) -> Iterator[Finding]:
    if not run.scans or any(scan.low_offset for scan in run.scans.values()):
        return
    for messages in run.publishes.values():
        outcomes = {each.outcome for each in messages}
        if "failed" in outcomes:
            continue
        missing = [each for each in messages if each.value not in run.stored]
        count = f"{len(missing)} of {len(messages)} messages of an atomic publish"
        if missing and len(missing) < len(messages):
            found = next(each for each in messages if each.value in run.stored)
            yield run.finding(Fault.TORN_PUBLISH, f"{count} are missing:", missing[0], found)
        elif missing and "ok" in outcomes:
            yield run.finding(Fault.COMMITTED_BUT_MISSING, f"{count} are missing:", missing[0])


# -- order -------------------------------------------------------------------------------------------


def _reordered(run: _Run) -> Iterator[Finding]:
    lanes: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in (*run.acknowledged, *run.published()):
        assert operation.queue is not None
        lanes[operation.process, operation.queue].append(operation)
    for sends in lanes.values():
        yield from _reordered_sends(run, sends)
        yield from _reordered_batches(run, sends)


def _reordered_sends(run: _Run, sends: Sequence[Operation]) -> Iterator[Finding]:
    ended = sorted(sends, key=lambda each: each.end_ns or 0)
    position, highest = 0, None
    for operation in sorted(sends, key=lambda each: each.begin_ns):
        while ended[position].lies_before(operation):
            earlier = ended[position]
            if highest is None or _offset(earlier) > _offset(highest):
                highest = earlier
            position += 1
        if highest is not None and _offset(highest) > _offset(operation):
            text = f"{operation.value!r} was sent after {highest.value!r}, and lies before it:"
            yield run.finding(Fault.REORDERED, text, highest, operation)


def _reordered_batches(run: _Run, sends: Sequence[Operation]) -> Iterator[Finding]:
    batches: dict[int, list[Operation]] = defaultdict(list)
    for operation in sends:
        if operation.batch is not None:
            batches[operation.batch].append(operation)
    for batch in batches.values():
        for before, after in pairwise(sorted(batch, key=lambda each: each.index)):
            if _offset(before) > _offset(after):
                text = f"{after.value!r} comes after {before.value!r} in a batch, and lies before it:"
                yield run.finding(Fault.REORDERED, text, before, after)


def _offset(operation: Operation) -> int:
    assert operation.queue_offset is not None
    return operation.queue_offset


# -- epochs ------------------------------------------------------------------------------------------


def _two_epochs(run: _Run) -> Iterator[Finding]:
    brokers: dict[str, dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for operation in run.acknowledged:
        if (epoch := run.epoch_of(operation)) is not None:
            brokers[_broker_name(operation)][epoch].append(operation)
    for epochs in brokers.values():
        later: Operation | None = None
        for epoch in sorted(epochs, reverse=True):
            for operation in epochs[epoch]:
                if later is not None and later.lies_before(operation):
                    text = f"epoch {epoch} acknowledged after epoch {run.epoch_of(later)}:"
                    yield run.finding(Fault.TWO_EPOCHS, text, later, operation)
            first = min(epochs[epoch], key=lambda each: each.end_ns or 0)
            if later is None or (first.end_ns or 0) < (later.end_ns or 0):
                later = first


def _wrong_master(run: _Run) -> Iterator[Finding]:
    for operation in run.acknowledged:
        epoch = run.epoch_of(operation)
        reign = None if epoch is None else run.masters.get((_broker_name(operation), epoch))
        if reign is not None and operation.address not in (None, reign.address):
            text = f"the master of epoch {epoch} was {reign.address}:"
            yield run.finding(Fault.WRONG_MASTER, text, operation)


# -- consumers ---------------------------------------------------------------------------------------


def _skipped(run: _Run) -> Iterator[Finding]:
    lanes: dict[tuple[str, str, int], list[Operation]] = defaultdict(list)
    for operation in run.delivered():
        if operation.assignment is not None:
            assert operation.queue is not None
            lanes[operation.process, operation.queue, operation.assignment].append(operation)
    for deliveries in lanes.values():
        deliveries.sort(key=lambda each: each.number)
        highest = deliveries[0]
        for operation in deliveries:
            if _offset(operation) > _offset(highest) + 1:
                gap = _ranges([range(_offset(highest) + 1, _offset(operation))])
                yield run.finding(Fault.SKIPPED, f"a consumer skipped offset {gap}:", highest, operation)
            if _offset(operation) > _offset(highest):
                highest = operation


def _holes(run: _Run) -> Iterator[Finding]:
    """Offsets that final readers did not get."""
    found: dict[str, set[int]] = defaultdict(set)
    for reads in run.reads.values():
        for operation in reads:
            if operation.kind == "read" and operation.queue is not None:
                found[operation.queue].add(_offset(operation))
    for queue, scan in run.scans.items():
        if missing := _missing(scan, found[queue]):
            text = f"the final reader of {queue} has no offset {_ranges(missing)}:"
            yield run.finding(Fault.SKIPPED, text, scan)


def _undelivered(run: _Run) -> Iterator[Finding]:
    delivered: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
    for operation in run.delivered():
        delivered[operation.group, operation.queue].add(_offset(operation))
    for drain in run.drains:
        scan = None if drain.queue is None else run.scans.get(drain.queue)
        if scan is not None and (missing := _missing(scan, delivered[drain.group, drain.queue])):
            text = f"{drain.group} never got offset {_ranges(missing)} of {drain.queue}:"
            yield run.finding(Fault.UNDELIVERED, text, drain)


def _offsets_ahead(run: _Run) -> Iterator[Finding]:
    lanes: dict[tuple[str | None, str | None], list[Operation]] = defaultdict(list)
    for operation in (*run.delivered(), *run.offsets):
        lanes[operation.group, operation.queue].append(operation)
    for (group, queue), operations in lanes.items():
        scan = run.scans.get(queue or "")
        consumed, delivered = (scan.low_offset or 0) if scan else 0, set()
        # A delivery is written before the offset behind it is committed, and an offset after its answer.
        for operation in sorted(operations, key=lambda each: each.end_ns or 0):
            if operation.kind == "deliver":
                delivered.add(_offset(operation))
                continue
            while consumed in delivered:
                consumed += 1
            if operation.amount is not None and operation.amount > consumed:
                text = f"{group} has offset {operation.amount} of {queue} without having got {consumed}:"
                yield run.finding(Fault.OFFSET_AHEAD, text, operation)


def _missing(scan: Operation, found: set[int]) -> list[range]:
    """The offsets of a queue that are not among those found."""
    low, high = scan.low_offset or 0, scan.high_offset or 0
    edges = [low - 1, *sorted(each for each in found if low <= each < high), high]
    return [range(before + 1, after) for before, after in pairwise(edges) if after > before + 1]


def _ranges(missing: Sequence[range]) -> str:
    shown = [f"{each.start}" if len(each) == 1 else f"{each.start} to {each.stop - 1}" for each in missing]
    return ", ".join(shown[:_MAX_RANGES]) + (", …" if len(shown) > _MAX_RANGES else "")


def main(paths: Sequence[str]) -> int:
    """Print the report of history files; returns the exit status."""
    report = check(read_history(*map(Path, paths)))
    print(report.text())
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
