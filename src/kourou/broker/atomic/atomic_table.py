"""AtomicTable: what a broker knows of atomic publishes, derived from its journal record by record.

The same `apply` serves the running broker, for each record that is stored, and recovery, which reads the
journal again from the oldest live record on (`begin`). Records that nothing depends on any more are not live.
Pure: no clock, no disk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from kourou.broker.atomic.journal_records import (
    Committed,
    Decided,
    Ended,
    Finished,
    FinishedKept,
    JournalRecord,
    NameClaimed,
    OutcomesKept,
    SinkKept,
    Staged,
)
from kourou.protocol.atomic import MAX_OPEN, AtomicId, parse_atomic_id

LiveItem: TypeAlias = tuple[str, str, int]
"""Kind (the letter of its record), key, and part: what keeps a record of the journal live."""


@dataclass(slots=True)
class StagedPart:
    """One part: where its record is, and what is in it."""

    queue_offset: int
    phy_offset: int
    staged_ms: int
    deadline_ms: int
    size_bytes: int
    messages: int
    topics: dict[str, int]
    """With the highest queue_id of each."""


@dataclass(slots=True)
class Commit:
    """A commit whose messages are being published."""

    queue_offset: int
    phy_offset: int
    parts: tuple[int, ...]
    published: int
    """Messages, in the order of parts, that are in the log."""


@dataclass(slots=True)
class Participation:
    """A publish of which this broker has parts."""

    coordinator: str = ""
    producer_group: str = ""
    parts: dict[int, StagedPart] = field(default_factory=dict)
    commit: Commit | None = None

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(part.size_bytes for part in self.parts.values())

    @property
    def staged_ms(self) -> int:
        """When the first of its parts was staged."""
        return min((part.staged_ms for part in self.parts.values()), default=0)

    @property
    def deadline_ms(self) -> int:
        """When the first of its parts has waited long enough."""
        return min((part.deadline_ms for part in self.parts.values()), default=0)


@dataclass(slots=True)
class Decision:
    """A decision that some participants have not confirmed yet."""

    queue_offset: int
    record: Decided
    waits_for: set[str]


@dataclass(slots=True)
class Outcomes:
    """The last outcomes of a producer: at the coordinator those decided, at a participant those over."""

    queue_offset: int
    epoch: int
    used_ms: int
    committed: dict[int, bool]

    def is_forgotten(self, number: int) -> bool:
        """Whether a publish is so old that its outcome, if it had one, is not kept."""
        return (
            number not in self.committed and len(self.committed) >= MAX_OPEN and number < min(self.committed)
        )


class OutcomeTable(dict[str, Outcomes]):
    """Outcomes by producer id. Only those of its newest epoch are kept: an older program cannot decide."""

    def of(self, atomic_id: AtomicId) -> bool | None:
        """Whether a publish was committed; None if it is not known here."""
        outcomes = self.get(atomic_id.producer_id)
        if outcomes is None or outcomes.epoch != atomic_id.epoch:
            return None
        return outcomes.committed.get(atomic_id.number)


@dataclass(slots=True)
class Sink:
    """The last batch of a sink."""

    queue_offset: int
    query_id: str
    batch_id: int


@dataclass(slots=True)
class NameCoordinator:
    """The broker that coordinates the publishes of a named producer."""

    queue_offset: int
    broker_name: str


class AtomicTable:
    """The atomic publishes of one broker, as a participant and as a coordinator. One thread owns it."""

    def __init__(self) -> None:
        self.participations: dict[str, Participation] = {}
        self.decisions: dict[str, Decision] = {}
        self.outcomes = OutcomeTable()
        self.finished = OutcomeTable()
        self.sinks: dict[str, Sink] = {}
        self.names: dict[str, NameCoordinator] = {}
        self.staged_bytes = 0
        # By queue_offset, in ascending order: what is applied is newer than all before it.
        self._live: OrderedDict[int, dict[LiveItem, None]] = OrderedDict()
        self.live_items = 0

    # -- what is live ------------------------------------------------------------------------------

    @property
    def begin(self) -> int | None:
        """The queue_offset of the oldest live record; None: none is."""
        return next(iter(self._live), None)

    def oldest(self) -> Iterator[tuple[int, list[LiveItem]]]:
        """Live records, the oldest first, with what keeps them live."""
        for queue_offset, items in self._live.items():
            yield queue_offset, list(items)

    def is_live(self, queue_offset: int, item: LiveItem) -> bool:
        """Whether an item keeps a record live."""
        return item in self._live.get(queue_offset, ())

    def _hold(self, queue_offset: int, item: LiveItem) -> None:
        items = self._live.setdefault(queue_offset, {})
        self.live_items += item not in items
        items[item] = None

    def _release(self, queue_offset: int, item: LiveItem) -> None:
        items = self._live[queue_offset]
        del items[item]
        self.live_items -= 1
        if not items:
            del self._live[queue_offset]

    # -- records -----------------------------------------------------------------------------------

    def apply(self, record: JournalRecord, queue_offset: int, phy_offset: int) -> None:
        """A record is stored, the one behind all that were applied before."""
        match record:
            case Staged():
                self._staged(record, queue_offset, phy_offset)
            case Committed():
                self._committed(record, queue_offset, phy_offset)
            case Finished():
                self._drop(record.atomic_id)
                self._note(
                    self.finished, "P", record.atomic_id, record.is_commit, record.finished_ms, queue_offset
                )
            case FinishedKept():
                self._kept(self.finished, "P", record, queue_offset)
            case OutcomesKept():
                self._kept(self.outcomes, "H", record, queue_offset)
            case Decided():
                self._decided(record, queue_offset)
            case Ended():
                self._ended(record.atomic_id)
            case SinkKept():
                sink = self.sinks.get(record.sink_id)
                # Otherwise a newer batch was decided while this was on its way to the log.
                if sink is None or (sink.query_id, sink.batch_id) == (record.query_id, record.batch_id):
                    self._set_sink(record.sink_id, Sink(queue_offset, record.query_id, record.batch_id))
            case NameClaimed():
                self._set_coordinator(record.name, NameCoordinator(queue_offset, record.coordinator))

    def _staged(self, record: Staged, queue_offset: int, phy_offset: int) -> None:
        if self.finished.of(parse_atomic_id(record.atomic_id)) is not None:
            return  # late, or put again while its publish ended
        joined = self.participations.setdefault(record.atomic_id, Participation())
        joined.coordinator, joined.producer_group = record.coordinator, record.producer_group
        before = joined.parts.get(record.part)
        item = ("S", record.atomic_id, record.part)
        if before is not None:
            self.staged_bytes -= before.size_bytes
            self._release(before.queue_offset, item)
        topics: dict[str, int] = {}
        for group in record.groups:
            topics[group.topic] = max(group.queue_id, topics.get(group.topic, 0))
        part = joined.parts[record.part] = StagedPart(
            queue_offset,
            phy_offset,
            record.staged_ms,
            record.deadline_ms,
            sum(len(group.entries) for group in record.groups),
            record.messages,
            topics,
        )
        self.staged_bytes += part.size_bytes
        self._hold(queue_offset, item)

    def _committed(self, record: Committed, queue_offset: int, phy_offset: int) -> None:
        if self.finished.of(parse_atomic_id(record.atomic_id)) is not None:
            return
        # Without parts only if their records are lost; that is reported when it is published.
        joined = self.participations.setdefault(record.atomic_id, Participation())
        item = ("C", record.atomic_id, 0)
        if joined.commit is not None:
            self._release(joined.commit.queue_offset, item)
        joined.commit = Commit(queue_offset, phy_offset, tuple(record.parts), record.published)
        self._hold(queue_offset, item)

    def _drop(self, atomic_id: str) -> None:
        joined = self.participations.pop(atomic_id, None)
        if joined is None:
            return
        for number, part in joined.parts.items():
            self.staged_bytes -= part.size_bytes
            self._release(part.queue_offset, ("S", atomic_id, number))
        if joined.commit is not None:
            self._release(joined.commit.queue_offset, ("C", atomic_id, 0))

    def _decided(self, record: Decided, queue_offset: int) -> None:
        atomic_id = record.atomic_id
        before = self.decisions.pop(atomic_id, None)
        waits_for = set(record.participants)
        if before is not None:
            self._release(before.queue_offset, ("D", atomic_id, 0))
            # Of those that an operator has not given up since.
            waits_for &= before.waits_for
        if waits_for:
            self.decisions[atomic_id] = Decision(queue_offset, record, waits_for)
            self._hold(queue_offset, ("D", atomic_id, 0))
        self._note(self.outcomes, "H", atomic_id, record.is_commit, record.decided_ms, queue_offset)
        if record.sink_id is not None and record.is_commit:
            self._set_sink(record.sink_id, Sink(queue_offset, record.query_id, record.batch_id))

    def _note(
        self, table: OutcomeTable, kind: str, atomic_id: str, is_commit: bool, at_ms: int, queue_offset: int
    ) -> None:
        producer_id, epoch, number = parse_atomic_id(atomic_id)
        outcomes = table.get(producer_id)
        if outcomes is None or outcomes.epoch < epoch:
            self._set_outcomes(
                table, kind, producer_id, Outcomes(queue_offset, epoch, at_ms, {number: is_commit})
            )
        elif outcomes.epoch == epoch:
            outcomes.used_ms = max(outcomes.used_ms, at_ms)
            outcomes.committed[number] = is_commit
            if len(outcomes.committed) > MAX_OPEN:
                del outcomes.committed[min(outcomes.committed)]

    def _kept(
        self, table: OutcomeTable, kind: str, record: FinishedKept | OutcomesKept, queue_offset: int
    ) -> None:
        """Outcomes that were put again: they replace the records before, unless others were stored while they
        were on their way to the log."""
        known = table.get(record.producer_id)
        if known is not None and known.epoch > record.epoch:
            return
        if known is None or known.epoch < record.epoch or known.committed.keys() <= record.outcomes.keys():
            kept = Outcomes(queue_offset, record.epoch, record.used_ms, dict(record.outcomes))
            self._set_outcomes(table, kind, record.producer_id, kept)

    def _ended(self, atomic_id: str) -> None:
        decision = self.decisions.pop(atomic_id, None)
        if decision is not None:
            self._release(decision.queue_offset, ("D", atomic_id, 0))

    def _set_outcomes(self, table: OutcomeTable, kind: str, producer_id: str, outcomes: Outcomes) -> None:
        before = table.get(producer_id)
        if before is not None:
            self._release(before.queue_offset, (kind, producer_id, 0))
        table[producer_id] = outcomes
        self._hold(outcomes.queue_offset, (kind, producer_id, 0))

    def _set_sink(self, sink_id: str, sink: Sink) -> None:
        before = self.sinks.get(sink_id)
        if before is not None:
            self._release(before.queue_offset, ("K", sink_id, 0))
        self.sinks[sink_id] = sink
        self._hold(sink.queue_offset, ("K", sink_id, 0))

    def _set_coordinator(self, name: str, coordinator: NameCoordinator) -> None:
        before = self.names.get(name)
        if before is not None:
            self._release(before.queue_offset, ("N", name, 0))
        self.names[name] = coordinator
        self._hold(coordinator.queue_offset, ("N", name, 0))

    def expire(self, before_ms: int) -> None:
        """Forget the outcomes of producers that have not been used since then."""
        for table, kind in ((self.outcomes, "H"), (self.finished, "P")):
            for producer_id in [one for one, outcomes in table.items() if outcomes.used_ms < before_ms]:
                self._release(table.pop(producer_id).queue_offset, (kind, producer_id, 0))

    # -- putting again -----------------------------------------------------------------------------

    def record_again(self, item: LiveItem) -> JournalRecord:
        """What to put in place of an old record, for one item that keeps it live; not for a part, whose
        record is copied."""
        kind, key, _ = item
        if kind == "C":
            commit = self.participations[key].commit
            assert commit is not None
            return Committed(key, list(commit.parts), commit.published)
        if kind == "D":
            if not self.decisions[key].waits_for:
                return Ended(key)
            record = self.decisions[key].record
            # The sink is kept by an item of its own: it may be further by now.
            return Decided(key, record.is_commit, record.participants, record.decided_ms, record.is_abandoned)
        if kind == "H":
            kept = self.outcomes[key]
            return OutcomesKept(key, kept.epoch, kept.used_ms, dict(kept.committed))
        if kind == "P":
            kept = self.finished[key]
            return FinishedKept(key, kept.epoch, kept.used_ms, dict(kept.committed))
        if kind == "K":
            sink = self.sinks[key]
            return SinkKept(key, sink.query_id, sink.batch_id)
        assert kind == "N", f"no record for {item}"
        return NameClaimed(key, self.names[key].broker_name)
