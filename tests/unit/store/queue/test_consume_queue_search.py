"""Which message answers for a point in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.queue_time_search import BoundaryType, search_queue_offset
from tests.unit.store.consume_queue_kit import append, message, open_queues

TIMES = [100, 100, 100, 200, 200, 300, 500, 500, 500, 500, 700, 900]


def store_time(phy_offset: int) -> int:
    return TIMES[phy_offset // 10]


@pytest.fixture(params=[0, 7, 12], ids=["in memory", "both", "in files"])
def queue(tmp_path: Path, request: pytest.FixtureRequest) -> ConsumeQueue:
    queue = open_queues(tmp_path).get("orders", 0)
    append(queue, request.param)
    queue.flush()
    append(queue, len(TIMES) - request.param, first=request.param)
    return queue


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"),
    [
        (0, 0, 0),  # before the first
        (100, 0, 2),  # the first, three times
        (150, 3, 2),  # between two
        (200, 3, 4),
        (300, 5, 5),
        (499, 6, 5),
        (500, 6, 9),  # four equal, over a file's border
        (501, 10, 9),
        (900, 11, 11),  # the last
        (901, 12, 11),  # after the last
    ],
)
def test_lower_is_the_first_not_before_and_upper_the_last_not_after(
    queue: ConsumeQueue, timestamp_ms: int, lower: int, upper: int
) -> None:
    assert search_queue_offset(queue, timestamp_ms, store_time) == lower
    assert search_queue_offset(queue, timestamp_ms, store_time, BoundaryType.UPPER) == upper


def test_the_answer_lies_within_what_the_queue_still_has(queue: ConsumeQueue) -> None:
    queue.correct_min(40)
    assert search_queue_offset(queue, 0, store_time) == 4
    assert search_queue_offset(queue, 0, store_time, BoundaryType.UPPER) == 4
    assert search_queue_offset(queue, 10_000, store_time) == 12


def test_an_empty_queue_answers_its_end(tmp_path: Path) -> None:
    queue = open_queues(tmp_path).get("orders", 0)
    assert search_queue_offset(queue, 100, store_time) == 0
    assert search_queue_offset(queue, 100, store_time, BoundaryType.UPPER) == 0
    append(queue, 3)
    queue.correct_min(1000)
    assert search_queue_offset(queue, 100, store_time) == 3
    assert search_queue_offset(queue, 100, store_time, BoundaryType.UPPER) == 3


@pytest.mark.parametrize("unreadable", [{5}, {3, 4, 5}, {0, 1, 2}, {9, 10, 11}, set(range(12))])
def test_neighbours_answer_for_records_that_cannot_be_read(queue: ConsumeQueue, unreadable: set[int]) -> None:
    readable = [number for number in range(12) if number not in unreadable]

    def time_or_nothing(phy_offset: int) -> int:
        return -1 if phy_offset // 10 in unreadable else store_time(phy_offset)

    for timestamp_ms in (0, 100, 150, 200, 300, 400, 500, 600, 700, 900, 901):
        lower = [number for number in readable if TIMES[number] >= timestamp_ms]
        upper = [number for number in readable if TIMES[number] <= timestamp_ms]
        assert search_queue_offset(queue, timestamp_ms, time_or_nothing) == (lower[0] if lower else 12)
        found = search_queue_offset(queue, timestamp_ms, time_or_nothing, BoundaryType.UPPER)
        assert found == (upper[-1] if upper else 0)


def test_places_without_a_message_are_no_answer(tmp_path: Path) -> None:
    queue = open_queues(tmp_path).get("orders", 0)
    append(queue, 3)
    queue.put(9, *message(9))
    assert search_queue_offset(queue, 150, store_time) == 9
    assert search_queue_offset(queue, 150, store_time, BoundaryType.UPPER) == 2
