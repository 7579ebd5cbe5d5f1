"""The plan of a bulk read: whatever brokers answer, nothing is skipped and nothing comes twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.client.pull.queue_reader import FIRST_SLICE, MAX_SLICE, ReadPlan, Slice


@given(
    begin=st.integers(0, 50),
    length=st.integers(0, 60_000),
    limits=st.lists(st.integers(1, 20_000), min_size=1, max_size=20),
    in_flight=st.integers(1, 4),
    is_whole=st.booleans(),
)
def test_every_offset_is_given_once_and_in_order(
    begin: int, length: int, limits: list[int], in_flight: int, is_whole: bool
) -> None:
    plan = ReadPlan(begin, begin + length, is_whole=is_whole)
    asked: dict[int, Slice] = {}
    given_offsets: list[Slice] = []
    turns = 0
    while not plan.is_done:
        while plan.next_begin is not None and sum(each < plan.next_begin for each in asked) < in_flight:
            part = plan.ask()
            assert part.begin not in asked
            asked[part.begin] = part
        # Of a slice that is cut, what is left holds more than one of the new size only if that is a fraction
        # of the old one: 16,384 can be divided by five six times.
        assert len(asked) <= 7 * in_flight
        part = asked.pop(plan.position)
        # A broker gives as many as fit: at least one, at most those that it was asked for.
        next_offset = min(part.end, part.begin + limits[turns % len(limits)])
        plan.answered(part, next_offset)
        given_offsets.append(Slice(part.begin, next_offset))
        turns += 1
    ends = [begin, *(each.end for each in given_offsets)]
    assert [each.begin for each in given_offsets] == ends[:-1]
    assert ends[-1] == begin + length


def test_slices_grow_until_an_answer_is_cut_and_then_fit() -> None:
    plan = ReadPlan(0, 10_000_000)
    sizes = []
    for _ in range(60):
        part = plan.ask()
        sizes.append(part.end - part.begin)
        plan.answered(part, min(part.end, part.begin + 5_000))
    assert sizes[:3] == [FIRST_SLICE, 2 * FIRST_SLICE, 4 * FIRST_SLICE]
    cut = [size for size in sizes[10:] if size > 5_000]
    assert len(cut) < 20 and max(cut) < 5_300
    assert sum(sizes[10:]) / 50 > 4_000


def test_no_slice_is_larger_than_brokers_give() -> None:
    plan = ReadPlan(0, 10_000_000)
    for _ in range(20):
        part = plan.ask()
        assert part.end - part.begin <= MAX_SLICE
        plan.answered(part, part.end)
    assert part.end - part.begin == MAX_SLICE


def test_an_answer_that_goes_beyond_its_slice_is_taken_up_to_its_end() -> None:
    plan = ReadPlan(0, 5_000)
    first, second = plan.ask(), plan.ask()
    plan.answered(first, second.begin + 10)
    assert plan.position == second.begin


def test_nothing_to_read_is_done_at_once() -> None:
    assert ReadPlan(7, 7).is_done and ReadPlan(9, 7).is_done and ReadPlan(9, 7).next_begin is None
