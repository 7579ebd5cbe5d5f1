"""CheckPointTable against plain sets: what is unacked, where records wait, what is due."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kourou.broker.pop.check_points import CheckPoint, CheckPointTable
from kourou.protocol.pop.revive_records import CheckPointBody


class CheckPointMachine(RuleBasedStateMachine):
    """One table; the model has what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.table = CheckPointTable("broker-a")
        self.now_ms = 0
        self.next_phy_offset = 1
        self.open: dict[tuple[str, str, int, int, int], CheckPoint] = {}
        self.unacked: dict[CheckPoint, set[int]] = {}
        self.records: dict[CheckPoint, set[int]] = {}
        self.places: dict[CheckPoint, int] = {}
        self.waiting: set[CheckPoint] = set()
        self.settled: set[int] = set()
        self.last_read = -1

    def phy_offset(self) -> int:
        self.next_phy_offset += 1
        return self.next_phy_offset

    def any_open(self, data: st.DataObject) -> CheckPoint:
        return data.draw(st.sampled_from(list(self.open.values())))

    @rule(
        topic=st.sampled_from(["T", "%RETRY%G_T"]),
        group=st.sampled_from(["G", "H"]),
        queue_id=st.integers(0, 1),
        start=st.integers(0, 5),
        pop_time=st.integers(0, 2),
        gaps=st.lists(st.integers(1, 3), min_size=1, max_size=32),
        delay_ms=st.integers(0, 1_000),
    )
    def pop(
        self, topic: str, group: str, queue_id: int, start: int, pop_time: int, gaps: list[int], delay_ms: int
    ) -> None:
        differences = [sum(gaps[:index]) for index in range(len(gaps))]
        record = CheckPointBody(
            start_offset=start,
            pop_time=pop_time,
            invisible_time=delay_ms,
            count=len(gaps),
            queue_id=queue_id,
            topic=topic,
            group=group,
            offset_differences=differences,
        )
        phy_offset, key = self.phy_offset(), (topic, group, queue_id, start, pop_time)
        added = self.table.add(
            record, revive_queue_id=0, due_ms=self.now_ms + delay_ms, phy_offset=phy_offset
        )
        assert (added is None) == (key in self.open)
        if added is not None:
            self.open[key] = added
            self.unacked[added] = {start + difference for difference in differences}
            self.records[added] = {phy_offset}
            self.waiting.add(added)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), stored=st.booleans())
    def ack(self, data: st.DataObject, stored: bool) -> None:
        check_point = self.any_open(data)
        offsets = data.draw(st.sets(st.integers(0, 110), max_size=40), "offsets")
        if data.draw(st.booleans(), "all"):
            offsets |= self.unacked[check_point]
        phy_offset = self.phy_offset() if stored else None
        acked = self.table.finish(check_point, check_point.bits_of(offsets), phy_offset)
        assert acked == len(offsets & self.unacked[check_point])
        self.unacked[check_point] -= offsets
        if phy_offset is not None:
            self.records[check_point].add(phy_offset)
        if not self.unacked[check_point]:
            self.open = {key: each for key, each in self.open.items() if each is not check_point}
            self.waiting.discard(check_point)
            if check_point not in self.places:
                self.settled |= self.records[check_point]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        check_point = self.any_open(data)
        self.last_read += 1
        self.table.place(check_point, self.last_read)
        self.table.read(0, self.last_read)
        self.places.setdefault(check_point, self.last_read)

    @rule()
    def read_an_ack(self) -> None:
        self.last_read += 1
        self.table.read(0, self.last_read)

    @rule(advance_ms=st.integers(0, 500), limit=st.integers(1, 4), again_ms=st.none() | st.integers(0, 300))
    def revive(self, advance_ms: int, limit: int, again_ms: int | None) -> None:
        self.now_ms += advance_ms
        taken = self.table.take_due(self.now_ms, limit)
        over = [each for each in self.waiting if (each.due_ms // 100 + 1) * 100 <= self.now_ms]
        assert len(taken) == min(limit, len(over)) and set(taken) <= set(over)
        buckets = [check_point.due_ms // 100 for check_point in taken]
        assert buckets == sorted(buckets)
        self.waiting -= set(taken)
        for check_point in taken if again_ms is not None else ():
            assert again_ms is not None
            self.table.postpone(check_point, self.now_ms + again_ms)
            self.waiting.add(check_point)

    @rule(phy_offset=st.integers(0, 60))
    def deliver(self, phy_offset: int) -> None:
        assert self.table.is_settled(phy_offset) == (phy_offset in self.settled)
        self.table.forget_settled([phy_offset])
        self.settled.discard(phy_offset)

    @invariant()
    def numbers(self) -> None:
        assert len(self.table) == len(self.open)
        counts: dict[tuple[str, str, int], int] = {}
        for key, check_point in self.open.items():
            counts[key[:3]] = counts.get(key[:3], 0) + len(self.unacked[check_point])
            assert set(check_point.offsets_of(check_point.unacked)) == self.unacked[check_point]
        for (topic, group, queue_id), count in counts.items():
            assert self.table.count(topic, group, queue_id) == count
        assert self.table.message_count == sum(counts.values()) == sum(n for *_, n in self.table.counts())
        assert self.table.settled_count == len(self.settled)

    @invariant()
    def progress(self) -> None:
        places = [self.places[each] for each in self.open.values() if each in self.places]
        assert self.table.progress(0) == (min(places) - 1 if places else self.last_read)


def test_the_table_is_what_plain_dicts_say() -> None:
    run_state_machine_as_test(
        CheckPointMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )
