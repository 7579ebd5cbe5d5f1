"""OrderedPops against a plain model of one queue: a list of messages, each with its own end and state.

Whatever is popped, acknowledged, changed and saved: a queue is blocked exactly as long as a message of the
last pop is invisible, no message is passed over, and the file brings everything back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kourou.broker.pop.order_info import AckResult, OrderedPops, OrderKey, stored_table
from kourou.store.config_tables import ConsumerOrderInfoTable, dump_table, load_table

KEY = OrderKey("T", "G", 0)
START_MS = 1_000_000


@dataclass
class Taken:
    visible_ms: int
    is_acked: bool = False


@dataclass
class Model:
    """The last pop of the queue as a plain table, and how often each message was handed out."""

    committed: int = 0
    pop_time: int = 0
    attempt: str | None = None
    taken: dict[int, Taken] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)

    def is_blocked(self, now: int) -> bool:
        return any(not each.is_acked and each.visible_ms > now for each in self.taken.values())


class OrderedPopsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pops = OrderedPops()
        self.model = Model()
        self.now = START_MS

    def is_blocked(self, attempt: str | None) -> bool:
        entry, end_ms = self.pops.entry(KEY), self.pops.block_end_ms(KEY)
        is_repeat = entry is not None and entry.is_attempt(attempt)
        return not is_repeat and end_ms is not None and self.now < end_ms

    @rule(ms=st.integers(1, 200))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(
        attempt=st.sampled_from([None, "a", "b", "c"]),
        gaps=st.lists(st.integers(1, 3), min_size=1, max_size=5),
        invisible=st.integers(1, 150),
    )
    def pop(self, attempt: str | None, gaps: list[int], invisible: int) -> None:
        model = self.model
        is_repeat = attempt is not None and attempt == model.attempt
        blocked = self.is_blocked(attempt)
        assert blocked == (model.is_blocked(self.now) and not is_repeat)
        if blocked:
            return
        offsets = [model.committed + sum(gaps[:count]) - 1 for count in range(1, len(gaps) + 1)]
        self.now += 1  # two pops have different times
        counts = self.pops.pop(
            KEY,
            attempt_id=attempt,
            pop_time=self.now,
            invisible_time_ms=invisible,
            offsets=offsets,
            now_ms=self.now,
        )
        before = model.taken
        model.times = {
            offset: model.times.get(offset, 0) + (not is_repeat) if offset in before else 0
            for offset in offsets
        }
        assert [model.times[offset] for offset in offsets] == [
            counts.by_offset.get(("0", 0, offset), 0) for offset in offsets
        ]
        assert counts.by_queue == {("0", 0): min(model.times.values())}
        model.taken = {offset: Taken(self.now + invisible) for offset in offsets}
        model.pop_time, model.attempt = self.now, attempt

    @rule(queue_offset=st.integers(0, 60), is_of_this_pop=st.booleans())
    def ack(self, queue_offset: int, is_of_this_pop: bool) -> None:
        model = self.model
        pop_time = model.pop_time if is_of_this_pop else model.pop_time - 1
        done = self.pops.ack(KEY, queue_offset=queue_offset, pop_time=pop_time)
        taken = model.taken.get(queue_offset)
        if not is_of_this_pop or taken is None or taken.is_acked:
            assert done.result is not AckResult.DONE and done.next_offset is None
            return
        taken.is_acked = True
        left = [offset for offset, each in model.taken.items() if not each.is_acked]
        model.committed = min(left, default=max(model.taken) + 1)
        assert done.next_offset == model.committed

    @rule(queue_offset=st.integers(0, 60), ms=st.integers(0, 300))
    def change(self, queue_offset: int, ms: int) -> None:
        taken = self.model.taken.get(queue_offset)
        result = self.pops.change_invisible_time(
            KEY, queue_offset=queue_offset, pop_time=self.model.pop_time, visible_ms=self.now + ms
        )
        if taken is None or taken.is_acked:
            assert result is not AckResult.DONE
        else:
            assert result is AckResult.DONE
            taken.visible_ms = self.now + ms

    @rule()
    def restart(self) -> None:
        raw = dump_table(ConsumerOrderInfoTable(stored_table(self.pops.entries())))
        self.pops = OrderedPops()
        self.pops.load(load_table(raw, ConsumerOrderInfoTable).table)

    @invariant()
    def the_end_of_the_block_is_known(self) -> None:
        assert self.is_blocked(None) == self.model.is_blocked(self.now)
        unacked = sum(not each.is_acked for each in self.model.taken.values())
        assert self.pops.in_flight(KEY) == unacked


TestOrderedPops = OrderedPopsMachine.TestCase
TestOrderedPops.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
