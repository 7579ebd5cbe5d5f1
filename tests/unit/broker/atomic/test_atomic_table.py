"""The table of atomic publishes: what it knows after any history, and that the journal gives it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kourou.broker.atomic.atomic_table import AtomicTable
from kourou.broker.atomic.journal_records import (
    Committed,
    Decided,
    Ended,
    Finished,
    JournalRecord,
    NameClaimed,
    Staged,
    decode_journal_record,
    encode_journal_record,
)
from kourou.protocol.atomic import MAX_OPEN, AtomicId, StagedGroup, parse_atomic_id
from kourou.protocol.batch import BatchEntry, encode_batch_entries

IDS = [str(AtomicId("@a", epoch, number)) for epoch in (0, 1) for number in range(3)]


def staged(atomic_id: str, part: int, messages: int = 2) -> Staged:
    entries = encode_batch_entries(BatchEntry(0, b"%d" % n, b"") for n in range(messages))
    return Staged(
        atomic_id, part, "broker-a", "g", 0, 1_000, b"host", [StagedGroup("T", 0, 0, 1, entries)], messages
    )


def decided(atomic_id: str, *, is_commit: bool = True, **more: Any) -> Decided:
    return Decided(atomic_id, is_commit, {"broker-a": [0]}, 7, **more)


def _is_commit(atomic_id: str) -> bool:
    """How a publish ends: each one way only."""
    return not atomic_id.endswith("1")


class KnownJournal:
    """A table, and the records that it was made of. Those put last may not be applied yet: they are on their
    way to the log."""

    def __init__(self) -> None:
        self.table = AtomicTable()
        self.records: list[bytes] = []
        self.begins: list[int] = []
        self.applied = 0

    def put(self, record: JournalRecord, *, is_stored: bool = True) -> None:
        self.records.append(encode_journal_record(record))
        begin = self.table.begin
        self.begins.append(self.applied if begin is None else min(begin, self.applied))
        if is_stored:
            self.apply_all()

    def apply_all(self) -> None:
        for queue_offset in range(self.applied, len(self.records)):
            self.table.apply(self._record(queue_offset), queue_offset, 1_000 * (queue_offset + 1))
        self.applied = len(self.records)

    def _record(self, queue_offset: int) -> JournalRecord:
        return decode_journal_record(self.records[queue_offset])

    def replayed(self, begin: int) -> AtomicTable:
        table = AtomicTable()
        for queue_offset in range(begin, len(self.records)):
            table.apply(self._record(queue_offset), queue_offset, 1_000 * (queue_offset + 1))
        return table

    def on_the_way(self, atomic_id: str) -> bool:
        """Whether a publish is being ended here."""
        waiting = (self._record(offset) for offset in range(self.applied, len(self.records)))
        return any(
            isinstance(record, Committed | Finished) and record.atomic_id == atomic_id for record in waiting
        )


def contents(table: AtomicTable) -> dict[str, Any]:
    """All that the table knows, but which participants have confirmed: that is not stored."""
    return {
        "participations": {key: asdict(one) for key, one in table.participations.items()},
        "decisions": {key: (one.queue_offset, one.record) for key, one in table.decisions.items()},
        "outcomes": {key: asdict(one) for key, one in table.outcomes.items()},
        "finished": {key: asdict(one) for key, one in table.finished.items()},
        "sinks": {key: asdict(one) for key, one in table.sinks.items()},
        "names": {key: asdict(one) for key, one in table.names.items()},
        "bytes": table.staged_bytes,
        "live": list(table.oldest()),
    }


class Replay(RuleBasedStateMachine):
    """Any records that a broker puts, in any order: a table that is read from `begin` on is the same."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = KnownJournal()

    @rule(atomic_id=st.sampled_from(IDS), part=st.integers(0, 2), is_stored=st.booleans())
    def stage(self, atomic_id: str, part: int, is_stored: bool) -> None:
        joined = self.journal.table.participations.get(atomic_id)
        parsed, finished = parse_atomic_id(atomic_id), self.journal.table.finished
        is_fenced = "@a" in finished and finished["@a"].epoch > parsed.epoch
        is_ended = joined is not None and joined.commit is not None or self.journal.on_the_way(atomic_id)
        if finished.of(parsed) is None and not is_fenced and not is_ended:
            self.journal.put(staged(atomic_id, part), is_stored=is_stored)

    @rule(atomic_id=st.sampled_from(IDS), parts=st.lists(st.integers(0, 2), unique=True))
    def commit(self, atomic_id: str, parts: list[int]) -> None:
        joined = self.journal.table.participations.get(atomic_id)
        if joined is not None and joined.commit is None and not self.journal.on_the_way(atomic_id):
            self.journal.put(Committed(atomic_id, parts), is_stored=False)

    @rule(atomic_id=st.sampled_from(IDS), is_stored=st.booleans())
    def finish(self, atomic_id: str, is_stored: bool) -> None:
        if not self.journal.on_the_way(atomic_id):
            self.journal.put(Finished(atomic_id, _is_commit(atomic_id), 9), is_stored=is_stored)

    @rule(
        atomic_id=st.sampled_from(IDS),
        batch_id=st.integers(-1, 5),
        query_id=st.sampled_from("pq"),
        is_stored=st.booleans(),
    )
    def decide(self, atomic_id: str, batch_id: int, query_id: str, is_stored: bool) -> None:
        sink = {"sink_id": "s", "query_id": query_id, "batch_id": batch_id} if batch_id >= 0 else {}
        record = decided(atomic_id, is_commit=_is_commit(atomic_id), **sink)
        self.journal.put(record, is_stored=is_stored)

    @rule(atomic_id=st.sampled_from(IDS), is_stored=st.booleans())
    def end(self, atomic_id: str, is_stored: bool) -> None:
        decision = self.journal.table.decisions.get(atomic_id)
        if decision is not None:
            decision.waits_for.clear()
            self.journal.put(Ended(atomic_id), is_stored=is_stored)

    @rule(name=st.sampled_from(["x", "y"]))
    def claim(self, name: str) -> None:
        self.journal.put(NameClaimed(name, "broker-a"))

    @precondition(lambda self: self.journal.table.begin is not None)
    @rule(is_stored=st.booleans())
    def put_the_oldest_again(self, is_stored: bool) -> None:
        table = self.journal.table
        queue_offset, items = next(table.oldest())
        for item in items:
            kind, key, part = item
            joined = table.participations.get(key)
            if self.journal.on_the_way(key) or joined is not None and joined.commit is not None:
                return  # it is being ended, and then it is over
            record = table.record_again(item) if kind != "S" else self.journal._record(queue_offset)
            if isinstance(record, Staged):
                assert (record.atomic_id, record.part) == (key, part)
            self.journal.put(record, is_stored=False)
        if is_stored:
            self.journal.apply_all()

    @rule()
    def all_are_stored(self) -> None:
        self.journal.apply_all()

    @invariant()
    def a_replay_gives_the_same(self) -> None:
        journal = self.journal
        if journal.applied < len(journal.records) or not journal.records:
            return
        assert contents(journal.replayed(journal.begins[-1])) == contents(journal.table)
        begin = journal.table.begin
        assert contents(journal.replayed(len(journal.records) if begin is None else begin)) == contents(
            journal.table
        )

    @invariant()
    def nothing_is_forgotten(self) -> None:
        journal = self.journal
        if journal.applied < len(journal.records):
            return
        records = [journal._record(queue_offset) for queue_offset in range(len(journal.records))]
        # Those that were put again have no sink.
        decisions = [record for record in records if isinstance(record, Decided)]
        sinks = [(one.query_id, one.batch_id) for one in decisions if one.sink_id and one.is_commit]
        assert [(one.query_id, one.batch_id) for one in journal.table.sinks.values()] == sinks[-1:]
        finished = [record for record in records if isinstance(record, Finished)]
        for table, ended in ((journal.table.outcomes, decisions), (journal.table.finished, finished)):
            expected = {parse_atomic_id(one.atomic_id): one.is_commit for one in ended}
            newest = max((atomic_id.epoch for atomic_id in expected), default=0)
            known = {atomic_id: table.of(atomic_id) for atomic_id in expected if atomic_id.epoch == newest}
            assert known == {key: one for key, one in expected.items() if key.epoch == newest}


TestReplay = Replay.TestCase
TestReplay.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_part_that_comes_after_the_end_is_not_kept() -> None:
    journal = KnownJournal()
    journal.put(staged(IDS[0], 0))
    journal.put(Finished(IDS[0], True, 9))
    journal.put(staged(IDS[0], 0))
    assert not journal.table.participations


def test_a_part_that_is_staged_again_counts_once() -> None:
    journal = KnownJournal()
    journal.put(staged(IDS[0], 0))
    size_bytes = journal.table.staged_bytes
    journal.put(staged(IDS[0], 0))
    assert journal.table.staged_bytes == size_bytes
    assert journal.table.begin == 1


def test_a_part_that_an_earlier_version_staged_is_kept() -> None:
    """Its record does not say how many messages it has."""
    record = staged(IDS[0], 0, messages=3)
    fields = msgspec.msgpack.decode(encode_journal_record(record))
    assert decode_journal_record(msgspec.msgpack.encode(fields[:-1])) == record


def test_a_sink_does_not_go_back_when_an_old_decision_is_put_again() -> None:
    journal = KnownJournal()
    journal.put(decided(IDS[0], sink_id="s", query_id="q", batch_id=3))
    journal.put(decided(IDS[1], sink_id="s", query_id="q", batch_id=4))
    journal.put(journal.table.record_again(("D", IDS[0], 0)))
    assert journal.table.sinks["s"].batch_id == 4


def test_a_rollback_does_not_move_a_sink() -> None:
    journal = KnownJournal()
    journal.put(decided(IDS[0], is_commit=False, sink_id="s", query_id="q", batch_id=3))
    assert not journal.table.sinks


def test_outcomes_below_the_window_are_known_to_be_forgotten() -> None:
    journal = KnownJournal()
    for number in range(1, MAX_OPEN + 2):
        journal.put(Decided(f"@a:0:{number}", True, {}, 5))
    kept = journal.table.outcomes["@a"]
    assert kept.is_forgotten(1)
    assert kept.is_forgotten(0)
    assert not kept.is_forgotten(2)
    assert not kept.is_forgotten(MAX_OPEN + 5)
    assert journal.table.outcomes.of(AtomicId("@a", 0, 2)) is True


def test_unused_outcomes_expire_and_free_the_journal() -> None:
    journal = KnownJournal()
    journal.put(Decided("@a:0:1", True, {}, 5))
    journal.put(Finished("@a:0:1", True, 8))
    journal.table.expire(6)
    assert journal.table.begin == 1
    journal.table.expire(9)
    assert journal.table.begin is None
