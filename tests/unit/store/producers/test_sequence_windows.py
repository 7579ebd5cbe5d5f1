"""SequenceWindows against a plain set of sequences, in any order of arrival."""

from __future__ import annotations

import copy
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kourou.protocol.producer_sequence import MAX_SEQUENCE
from kourou.store.producers import sequence_windows
from kourou.store.producers.sequence_windows import (
    BLOCK_SLOTS,
    MARK_RANGE,
    SLOT_BYTES,
    WINDOW,
    SequenceWindows,
    Standing,
)

# Steps from the highest sequence: repeats, late ones, gaps, jumps over the whole window.
_STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.integers(-2 * WINDOW, 2), st.integers(-5, 5), st.just(1), st.sampled_from([WINDOW, 3 * WINDOW])
        ),
        st.booleans(),
    ),
    max_size=60,
)


class Model:
    """What a window should know."""

    def __init__(self) -> None:
        self.high = -1
        self.offsets: dict[int, int] = {}
        self.used_ms = 0

    def standing(self, sequence: int) -> Standing:
        if sequence <= self.high - WINDOW:
            return Standing.TOO_OLD
        return Standing.STORED if sequence in self.offsets else Standing.NEW


@settings(deadline=None)
@given(_STEPS)
def test_a_window_knows_what_was_stored(steps: list[tuple[int, bool]]) -> None:
    windows, model = SequenceWindows(), Model()
    slot, other = windows.add(), windows.add()
    for queue_offset, (step, is_kept) in enumerate(steps):
        sequence = max(0, model.high + step)
        assert windows.standing(slot, sequence) is model.standing(sequence)
        if model.standing(sequence) is Standing.NEW:
            windows.begin_run()
            windows.note(slot, sequence, queue_offset, queue_offset)
            if is_kept:
                windows.keep()
                model.high = max(model.high, sequence)
                model.offsets[sequence] = queue_offset
            else:
                windows.take_back()
        assert windows.high(slot) == model.high
    for sequence in range(max(0, model.high - WINDOW - 3), model.high + 3):
        assert windows.standing(slot, sequence) is model.standing(sequence)
    for sequence, queue_offset in model.offsets.items():
        begin = windows.search_from(slot, sequence)
        if sequence > model.high - WINDOW:
            assert begin is not None and begin <= queue_offset
    assert windows.high(other) == -1

    windows.note(slot, model.high + 1, 0, 0)  # not written yet: no part of a copy
    again = SequenceWindows()
    again.load(windows.written_blocks(), {slot, other})
    for sequence in range(max(0, model.high - WINDOW - 3), model.high + 3):
        assert again.standing(slot, sequence) is model.standing(sequence)


class Cycles:
    """Windows of two queues of a producer, and models of what they know: as written, and with what is noted
    since."""

    def __init__(self) -> None:
        self.windows = SequenceWindows()
        self.slots = [self.windows.add(), self.windows.add()]
        self.windows.slots["T"] = {queue_id: {"p:0": slot} for queue_id, slot in enumerate(self.slots)}
        self.written = [Model(), Model()]
        self.noted = copy.deepcopy(self.written)
        # Where the written records end, and where the next one goes.
        self.written_phy_offset = self.phy_offset = 0
        self.now_ms = 1

    def note_single(self, queue_id: int, step: int, *, is_put: bool) -> None:
        """A message that is `step` ahead of the next one; perhaps it is not put after all."""
        sequence = self.noted[queue_id].high + 1 + step
        value = f"p:0:{sequence}"
        assert self.windows.note_if_next(value, "T", queue_id, self.phy_offset, self.now_ms) is (step == 0)
        if step == 0 and is_put:
            self._put(queue_id, sequence, 1)
        elif step == 0:
            self.windows.undo_note()

    def note_run(self, queue_id: int, count: int, *, is_put: bool) -> None:
        self.windows.begin_run()
        undo_count = len(self.windows.undo)
        self.windows.note_next(self.slots[queue_id], count, self.phy_offset, self.now_ms)
        if is_put:
            self._put(queue_id, self.noted[queue_id].high + 1, count)
        else:
            self.windows.rewind(undo_count)

    def note_out_of_order(self, queue_id: int, step: int) -> None:
        model = self.noted[queue_id]
        sequence = max(0, model.high + step)
        assert self.windows.standing(self.slots[queue_id], sequence) is model.standing(sequence)
        if model.standing(sequence) is Standing.NEW:
            self.windows.note(self.slots[queue_id], sequence, self.phy_offset, self.now_ms)
            self._put(queue_id, sequence, 1)

    def _put(self, queue_id: int, sequence: int, count: int) -> None:
        model = self.noted[queue_id]
        model.offsets |= {sequence + i: self.phy_offset + i for i in range(count)}
        model.high = max(model.high, sequence + count - 1)
        model.used_ms = self.now_ms
        self.phy_offset += count

    def end_cycle(self, *, is_written: bool) -> None:
        if is_written:
            self.windows.keep()
            self.written = copy.deepcopy(self.noted)
            self.written_phy_offset = self.phy_offset
        else:
            self.windows.take_back()
            self.noted = copy.deepcopy(self.written)
            self.phy_offset = self.written_phy_offset
        self.now_ms += 1

    def check(self) -> None:
        copied = SequenceWindows()
        copied.load(self.windows.written_blocks(), set(self.slots))
        for windows, models in ((copied, self.written), (self.windows, self.noted)):
            for slot, model in zip(self.slots, models, strict=True):
                assert (windows.high(slot), windows.used_ms(slot)) == (model.high, model.used_ms)
                for sequence in range(max(0, model.high - WINDOW - 2), model.high + 3):
                    assert windows.standing(slot, sequence) is model.standing(sequence)
                    if model.standing(sequence) is Standing.STORED:
                        begin = windows.search_from(slot, sequence)
                        assert begin is not None and begin <= model.offsets[sequence]


_QUEUE = st.integers(0, 1)
_NOTES = st.lists(
    st.one_of(
        st.tuples(st.just("single"), _QUEUE, st.sampled_from([0, 0, 0, 0, 1, -1]), st.booleans()),
        st.tuples(st.just("run"), _QUEUE, st.sampled_from([1, 2, 63, 64, 65, 500, WINDOW]), st.booleans()),
        st.tuples(st.just("any"), _QUEUE, st.integers(-WINDOW, 3), st.none()),
        st.tuples(st.just("end"), st.none(), st.none(), st.booleans()),
        st.tuples(st.just("check"), st.none(), st.none(), st.none()),
    ),
    max_size=40,
)


_PUT_0, _PUT_1, _REFUSED_0 = ("single", 0, 0, True), ("single", 1, 0, True), ("single", 0, 0, False)
_WRITTEN, _FAILED = ("end", 0, 0, True), ("end", 0, 0, False)


@settings(deadline=None)
# Of two cycles of one span the second fails, or the next begins with a message that is refused; a message
# lies before the place that it had in a cycle that failed.
@example([_PUT_0, _WRITTEN, _PUT_0, _FAILED], 2)
@example([_PUT_0, _WRITTEN, _PUT_0, _WRITTEN, _REFUSED_0, _WRITTEN], 2)
@example([_PUT_1, _PUT_0, _FAILED, _PUT_0, _PUT_0], 2)
@given(_NOTES, st.sampled_from([1, 1_024]))
def test_a_window_knows_what_was_noted_in_runs(
    notes: list[tuple[str, int, int, bool]], max_spans: int
) -> None:
    with patch.object(sequence_windows, "_MAX_SPANS", max_spans):
        note_all(notes)


def note_all(notes: list[tuple[str, int, int, bool]]) -> None:
    cycles = Cycles()
    for kind, queue_id, number, is_fine in notes:
        if kind == "single":
            cycles.note_single(queue_id, number, is_put=is_fine)
        elif kind == "run":
            cycles.note_run(queue_id, number, is_put=is_fine)
        elif kind == "any":
            cycles.note_out_of_order(queue_id, number)
        elif kind == "end":
            cycles.end_cycle(is_written=is_fine)
        else:
            cycles.check()
    cycles.check()
    cycles.end_cycle(is_written=True)
    cycles.check()


def test_the_last_possible_sequence() -> None:
    windows = SequenceWindows()
    slot = windows.add()
    windows.slots["T"] = {0: {"p:0": slot}}
    windows.note(slot, MAX_SEQUENCE - 2, 0, 0)
    noted = [windows.note_if_next(f"p:0:{MAX_SEQUENCE + i}", "T", 0, 0, 0) for i in (-1, 0, 1)]
    assert noted == [True, True, False]


def test_a_search_begins_at_the_first_message_of_the_range_that_was_stored() -> None:
    windows = SequenceWindows()
    slot = windows.add()
    for queue_offset, sequence in enumerate([3, 1, 2, MARK_RANGE, 0]):
        windows.note(slot, sequence, 100 + queue_offset, 0)
    assert [windows.search_from(slot, sequence) for sequence in (0, 3, MARK_RANGE)] == [100, 100, 103]
    assert windows.search_from(slot, 5 * MARK_RANGE) is None


def test_slots_are_used_again_and_empty() -> None:
    windows = SequenceWindows()
    slots = [windows.add() for _ in range(BLOCK_SLOTS + 1)]
    assert sorted(slots) == list(range(BLOCK_SLOTS + 1)) and len(windows.blocks) == 2
    windows.note(slots[0], 7, 1, 1)
    windows.remove(slots[0])
    assert windows.add() == slots[0]
    assert windows.high(slots[0]) == -1 and windows.standing(slots[0], 7) is Standing.NEW


@settings(deadline=None)
@given(st.lists(st.integers(0, 3 * WINDOW), max_size=40), st.lists(st.integers(0, 3 * WINDOW), max_size=40))
def test_two_copies_of_a_window_are_merged(mine: list[int], theirs: list[int]) -> None:
    windows, merged = SequenceWindows(), SequenceWindows()
    slots = [windows.add(), windows.add(), merged.add()]
    for phy_offset, sequence in enumerate(mine):
        windows.note_written(slots[0], sequence, phy_offset, 0)
    for phy_offset, sequence in enumerate(theirs):
        windows.note_written(slots[1], sequence, phy_offset, 0)
    high = max([*mine, *theirs], default=-1)
    for slot in slots[:2]:
        window = bytes(windows.blocks[0][slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        merged.merge(slots[2], window)
    assert merged.high(slots[2]) == high
    known = {one for one in mine if one > max(mine) - WINDOW} | {
        one for one in theirs if one > max(theirs) - WINDOW
    }
    for sequence in range(max(0, high - WINDOW + 1), high + 1):
        # What one copy had forgotten already, another need not know.
        if sequence in known:
            assert merged.standing(slots[2], sequence) is Standing.STORED
        elif sequence not in {*mine, *theirs}:
            assert merged.standing(slots[2], sequence) is Standing.NEW
