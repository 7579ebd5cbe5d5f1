"""Which halves have ended: by ends, copies, failures and what is read at a start."""

from __future__ import annotations

import random

from kourou.broker.transactions.half_message_states import ENDED, ENDING, OPEN, HalfMessageStates


def end(table: HalfMessageStates, queue_offset: int, op_queue_offset: int) -> None:
    table.begin(queue_offset)
    table.stored(queue_offset, op_queue_offset)


def move(table: HalfMessageStates, queue_offset: int, copy: int, op_queue_offset: int) -> None:
    table.begin(queue_offset, copy_queue_offset=copy)
    table.stored(queue_offset, op_queue_offset)


def test_a_half_is_open_until_its_op_record_is_stored() -> None:
    table = HalfMessageStates()
    assert table.state(3) == OPEN
    table.begin(3)
    assert table.state(3) == ENDING
    table.stored(3, 0)
    assert table.state(3) == ENDED
    assert table.state(2) == OPEN


def test_an_end_that_cannot_be_stored_leaves_the_half_open() -> None:
    table = HalfMessageStates()
    table.begin(3)
    table.failed(3)
    assert table.state(3) == OPEN
    end(table, 3, 0)
    assert table.state(3) == ENDED


def test_old_offsets_lead_to_the_newest_copy_until_that_ends() -> None:
    table = HalfMessageStates()
    move(table, 5, 9, 0)
    move(table, 9, 14, 1)
    assert [table.current(offset) for offset in (5, 9, 14)] == [14, 14, 14]
    end(table, 14, 2)
    assert [table.state(table.current(offset)) for offset in (5, 9, 14)] == [ENDED] * 3
    assert not table._moved and not table._origins


def test_a_copy_that_cannot_be_stored_was_never_made() -> None:
    table = HalfMessageStates()
    move(table, 5, 9, 0)
    table.begin(9, copy_queue_offset=14)
    table.begin(14)
    table.failed(9)
    table.failed(14)
    assert (table.current(5), table.state(9), table.state(14)) == (9, OPEN, OPEN)
    end(table, 9, 1)
    assert not table._moved and not table._origins


def test_what_is_settled_is_forgotten_and_counts_as_ended() -> None:
    table = HalfMessageStates()
    for half, op in ((0, 0), (2, 1), (1, 2), (4, 3)):
        end(table, half, op)
    table.advance(10)
    assert (table.half_queue_offset, table.op_queue_offset, len(table)) == (3, 3, 2)
    assert [table.state(offset) for offset in range(6)] == [ENDED, ENDED, ENDED, OPEN, ENDED, OPEN]
    assert (table.next_open(0), table.next_open(4), table.next_open(9)) == (3, 5, 9)


def test_an_op_record_stays_as_long_as_one_of_its_halves_matters() -> None:
    table = HalfMessageStates()
    table.load(0, [0, 3])
    table.load(1, [1])
    table.advance(10)
    assert (table.half_queue_offset, table.op_queue_offset) == (2, 0)
    end(table, 2, 2)
    table.advance(10)
    assert (table.half_queue_offset, table.op_queue_offset) == (4, 3)


def test_progress_never_passes_the_end_of_the_queue() -> None:
    table = HalfMessageStates()
    end(table, 0, 0)
    end(table, 1, 1)
    table.advance(1)
    assert table.half_queue_offset == 1


def test_halves_that_are_gone_from_the_log_are_skipped() -> None:
    table = HalfMessageStates()
    table.skip(0)
    assert table.state(0) == ENDED
    table.advance(100, min_queue_offset=7)
    assert table.half_queue_offset == 7
    assert (table.state(6), table.state(7)) == (ENDED, OPEN)


def test_what_is_read_at_a_start_may_reach_below_the_progress() -> None:
    table = HalfMessageStates(10, 4)
    table.load(4, [3, 11])
    table.load(5, [])
    table.load(6, [12], copy=15)
    assert [table.state(offset) for offset in (3, 10, 11, 12, 15)] == [ENDED, OPEN, ENDED, ENDED, OPEN]
    assert table.current(12) == 15


def test_as_a_plain_model_over_random_lives() -> None:
    for seed in range(30):
        _compare(random.Random(seed))


def _compare(chance: random.Random) -> None:
    """Transactions by their first offset; the model knows each one's newest place and whether it ended."""
    table = HalfMessageStates()
    newest: dict[int, int] = {}
    over: set[int] = set()
    next_half = next_op = 0
    for _ in range(200):
        deed = chance.choice(["send", "send", "end", "move", "fail", "advance"])
        if deed == "send":
            newest[next_half] = next_half
            next_half += 1
            continue
        if deed == "advance":
            table.advance(next_half)
        elif alive := sorted(set(newest) - over):
            first = chance.choice(alive)
            place = newest[first]
            copy = next_half if deed == "move" or (deed == "fail" and chance.random() < 0.5) else None
            table.begin(place, copy_queue_offset=copy)
            if deed == "fail":
                table.failed(place)
                continue
            table.stored(place, next_op)
            next_op += 1
            if copy is None:
                over.add(first)
            else:
                newest[first], next_half = copy, next_half + 1
        for first, place in newest.items():
            assert table.state(table.current(first)) == (ENDED if first in over else OPEN)
            if first not in over and first >= table.half_queue_offset:
                assert table.current(first) == place
    open_places = {newest[first] for first in newest if first not in over}
    assert {offset for offset in range(next_half) if table.state(offset) == OPEN} == open_places
    table.advance(next_half)
    assert table.half_queue_offset == min(open_places, default=next_half)
