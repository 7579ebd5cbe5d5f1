"""SequenceWindows against a plain set of sequences, in any order of arrival."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

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
