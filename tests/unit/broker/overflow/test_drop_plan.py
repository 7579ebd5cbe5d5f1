"""Which messages a drop takes, when sends are rejected, and how long senders are to wait."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.broker.overflow.drop_plan import (
    MAX_WAIT_MS,
    MIN_WAIT_MS,
    Excess,
    Gate,
    QueueUnits,
    Size,
    WaitEstimate,
    excess,
    kept_age_ms,
    lowest_first,
    oldest_first,
    share_used,
)
from kourou.protocol.overflow_rule import OverflowPolicy, OverflowRule

RULE = OverflowRule(OverflowPolicy.DROP_OLDEST, messages=100, size_bytes=10_000, age_ms=60_000)


def units(queue_id: int, *places: int, begin: int = 0, size: int = 10) -> QueueUnits:
    return QueueUnits(queue_id, begin, np.array(places, np.int64), np.full(len(places), size, np.int64))


def test_a_backlog_at_its_limit_loses_nothing() -> None:
    assert excess(RULE, Size(100, 10_000, 60_000), 0) == Excess(0, 0)
    assert kept_age_ms(RULE, Size(100, 10_000, 60_000)) is None


def test_a_backlog_over_a_limit_is_taken_to_nine_tenths_of_it() -> None:
    assert excess(RULE, Size(101, 5, 5), 0) == Excess(11, 0)
    assert excess(RULE, Size(5, 10_001, 5), 0) == Excess(0, 1_001)
    assert kept_age_ms(RULE, Size(5, 5, 60_001)) == 54_000
    assert excess(RULE, Size(105, 5, 5), 40) == Excess(40, 0), "the larger one of two reasons"


def test_the_fullest_limit_counts() -> None:
    assert share_used(RULE, Size(50, 9_000, 30_000)) == pytest.approx(0.9)
    assert share_used(OverflowRule(OverflowPolicy.REJECT, messages=10), Size(20, 10**9, 10**9)) == 2.0


def test_the_oldest_of_all_queues_go_first() -> None:
    queues = [units(0, 100, 400, 500, begin=7), units(3, 200, 300, 600)]
    assert oldest_first(queues, Excess(messages=4), 1_000) == {0: 9, 3: 2}
    assert oldest_first(queues, Excess(messages=1), 1_000) == {0: 8}
    assert oldest_first(queues, Excess(messages=4), 2) == {0: 8, 3: 1}, "no more than a round takes"


def test_so_many_of_the_oldest_go_that_the_bytes_suffice() -> None:
    queues = [units(0, 100, 400), units(1, 200, 300)]
    assert oldest_first(queues, Excess(size_bytes=10), 1_000) == {0: 1}
    assert oldest_first(queues, Excess(size_bytes=11), 1_000) == {0: 1, 1: 1}
    assert oldest_first(queues, Excess(size_bytes=10_000), 1_000) == {0: 2, 1: 2}


def test_a_round_of_copies_is_bounded_in_bytes_but_takes_one() -> None:
    queues = [units(0, 100, 200, 300, size=1_000)]
    assert oldest_first(queues, Excess(messages=3), 256, max_bytes=2_500) == {0: 2}
    assert oldest_first(queues, Excess(messages=3), 256, max_bytes=10) == {0: 1}


def test_units_without_records_keep_the_order_of_their_queue() -> None:
    """A blank unit says place 0; it must not go before the messages in front of it."""
    assert oldest_first([units(0, 100, 0, 300), units(1, 50, 60)], Excess(messages=3), 99) == {0: 1, 1: 2}


def test_the_lowest_queues_go_first_and_high_ones_only_when_they_are_empty() -> None:
    queues = [units(2, 1, 2, 3), units(0, 500, 600), units(1, 10, begin=40)]
    assert lowest_first(queues, Excess(messages=1), 1_000) == {0: 1}
    assert lowest_first(queues, Excess(messages=3), 1_000) == {0: 2, 1: 41}
    assert lowest_first(queues, Excess(messages=4), 1_000) == {0: 2, 1: 41, 2: 1}
    assert lowest_first(queues, Excess(size_bytes=21), 1_000) == {0: 2, 1: 41}
    assert lowest_first(queues, Excess(messages=6), 2) == {0: 2}


@given(st.lists(st.lists(st.integers(1, 50), max_size=8), min_size=1, max_size=4), st.integers(0, 40))
def test_exactly_the_oldest_are_dropped(steps: list[list[int]], wanted: int) -> None:
    """Against sorting all messages."""
    queues, every = [], []
    for queue_id, gaps in enumerate(steps):
        places = [int(place) * 8 + queue_id for place in np.cumsum(gaps)] if gaps else []
        queues.append(units(queue_id, *places))
        every += [(place, queue_id) for place in places]
    floors = oldest_first(queues, Excess(messages=wanted), 1_000)
    expected: dict[int, int] = {}
    for _, queue_id in sorted(every)[:wanted]:
        expected[queue_id] = expected.get(queue_id, 0) + 1
    assert floors == expected


def test_sends_are_rejected_from_the_limit_on_until_nine_tenths() -> None:
    gate = Gate()
    changes = [
        (share, gate.update(share), gate.is_closed) for share in (0.99, 1.0, 0.95, 0.91, 0.9, 0.95, 1.2)
    ]
    assert changes == [
        (0.99, False, False),
        (1.0, True, True),
        (0.95, False, True),
        (0.91, False, True),
        (0.9, True, False),
        (0.95, False, False),
        (1.2, True, True),
    ]


def test_the_time_to_wait_follows_from_how_fast_the_backlog_shrinks() -> None:
    wait = WaitEstimate()
    wait.begin(1.0, now_ms=0)
    assert wait.wait_ms(1.0, 500) == 1_000, "nothing is known"
    assert wait.wait_ms(0.95, 500) == 500, "half of it took as long"
    assert wait.wait_ms(0.901, 500) == MIN_WAIT_MS
    assert wait.wait_ms(0.9999, 60_000) == MAX_WAIT_MS
    assert wait.wait_ms(1.5, 500) == 1_000, "it grows"
