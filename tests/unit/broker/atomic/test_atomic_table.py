"""The table of atomic publishes: what it knows after any history, and that the journal gives it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

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
    return Staged(atomic_id, part, "broker-a", "g", 0, 1_000, b"host", [StagedGroup("T", 0, 0, 1, entries)])


def decided(atomic_id: str, *, is_commit: bool = True, **more: Any) -> Decided:
    return Decided(atomic_id, is_commit, {"broker-a": [0]}, 7, **more)


class KnownJournal:
    """A table, and the records that it was made of."""

    def __init__(self) -> None:
        self.table = AtomicTable()
        self.records: list[bytes] = []

    def put(self, record: JournalRecord) -> None:
        self.records.append(encode_journal_record(record))
        self.table.apply(record, len(self.records) - 1, 1_000 * len(self.records))

    def replayed(self, begin: int) -> AtomicTable:
        table = AtomicTable()
        for queue_offset in range(begin, len(self.records)):
            record = decode_journal_record(self.records[queue_offset])
            table.apply(record, queue_offset, 1_000 * (queue_offset + 1))
        return table


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

    @rule(atomic_id=st.sampled_from(IDS), part=st.integers(0, 2), messages=st.integers(1, 3))
    def stage(self, atomic_id: str, part: int, messages: int) -> None:
        joined = self.journal.table.participations.get(atomic_id)
        parsed, finished = parse_atomic_id(atomic_id), self.journal.table.finished
        is_fenced = "@a" in finished and finished["@a"].epoch > parsed.epoch
        is_committed = joined is not None and joined.commit is not None
        if finished.of(parsed) is None and not is_fenced and not is_committed:
            self.journal.put(staged(atomic_id, part, messages))

    @rule(atomic_id=st.sampled_from(IDS), parts=st.lists(st.integers(0, 2), unique=True))
    def commit(self, atomic_id: str, parts: list[int]) -> None:
        joined = self.journal.table.participations.get(atomic_id)
        if joined is not None and joined.commit is None:
            self.journal.put(Committed(atomic_id, parts))

    @rule(atomic_id=st.sampled_from(IDS), is_commit=st.booleans())
    def finish(self, atomic_id: str, is_commit: bool) -> None:
        self.journal.put(Finished(atomic_id, is_commit, 9))

    @rule(atomic_id=st.sampled_from(IDS), is_commit=st.booleans(), batch_id=st.integers(-1, 5))
    def decide(self, atomic_id: str, is_commit: bool, batch_id: int) -> None:
        sink = {"sink_id": "s", "query_id": "q", "batch_id": batch_id} if batch_id >= 0 else {}
        self.journal.put(decided(atomic_id, is_commit=is_commit, **sink))

    @rule(atomic_id=st.sampled_from(IDS))
    def end(self, atomic_id: str) -> None:
        self.journal.put(Ended(atomic_id))

    @rule(name=st.sampled_from(["x", "y"]))
    def claim(self, name: str) -> None:
        self.journal.put(NameClaimed(name, "broker-a"))

    @precondition(lambda self: self.journal.table.begin is not None)
    @rule()
    def put_the_oldest_again(self) -> None:
        table = self.journal.table
        queue_offset, items = next(table.oldest())
        if any(key in table.participations and table.participations[key].commit for _, key, _ in items):
            return  # it is being published, and then it is over
        before = contents(table)
        for item in items:
            kind, key, part = item
            if kind == "S":
                record = decode_journal_record(self.journal.records[queue_offset])
                assert isinstance(record, Staged)
                assert (record.atomic_id, record.part) == (key, part)
            else:
                record = table.record_again(item)
            self.journal.put(record)
        assert table.begin is not None
        assert table.begin > queue_offset
        after = contents(table)
        assert after["bytes"] == before["bytes"]
        assert [sink["batch_id"] for sink in after["sinks"].values()] == [
            sink["batch_id"] for sink in before["sinks"].values()
        ]

    @invariant()
    def a_replay_from_the_begin_gives_the_same(self) -> None:
        begin = self.journal.table.begin
        replayed = self.journal.replayed(len(self.journal.records) if begin is None else begin)
        assert contents(replayed) == contents(self.journal.table)


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
