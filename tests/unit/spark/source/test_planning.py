"""Plans: nothing skipped, nothing twice, limits kept."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.bodies import MessageQueue
from kourou.spark.source.planning import QueueRange, limited_end, plan_tasks, ranges_between

QUEUES = [MessageQueue(topic, broker, number) for topic in "st" for broker in "ab" for number in range(3)]

spans = st.tuples(st.integers(0, 1_000), st.integers(0, 60))
tables = st.dictionaries(st.sampled_from(QUEUES), spans, max_size=len(QUEUES)).map(
    lambda found: (
        {queue: begin for queue, (begin, _) in found.items()},
        {queue: begin + rows for queue, (begin, rows) in found.items()},
    )
)
Tables = tuple[dict[MessageQueue, int], dict[MessageQueue, int]]


def offsets_of(ranges: list[QueueRange]) -> Counter[tuple[MessageQueue, int]]:
    return Counter((each.queue, offset) for each in ranges for offset in range(each.begin, each.end))


@given(tables, st.none() | st.integers(1, 40), st.integers(0, 50))
def test_tasks_read_every_offset_once_and_in_order(
    table: Tables, min_partitions: int | None, small_rows: int
) -> None:
    begin, end = table
    ranges = ranges_between(begin, end)
    tasks = plan_tasks(ranges, min_partitions, small_rows)
    read = [each for task in tasks for each in task]
    expected = {(queue, offset) for queue in end for offset in range(begin[queue], end[queue])}
    assert offsets_of(read) == Counter(expected)
    assert all(each.rows > 0 for each in read) and all(tasks)
    for queue in end:
        begins = [each.begin for each in read if each.queue == queue]
        assert begins == sorted(begins)


@given(tables, st.integers(1, 40))
def test_there_are_as_many_tasks_as_requested_where_there_are_rows(table: Tables, wanted: int) -> None:
    ranges = ranges_between(*table)
    tasks = plan_tasks(ranges, wanted)
    assert len(tasks) >= min(wanted, sum(each.rows for each in ranges))


@given(st.integers(1, 10_000), st.integers(2, 50))
def test_a_large_queue_is_split_evenly(rows: int, parts: int) -> None:
    tasks = plan_tasks([QueueRange(QUEUES[0], 7, 7 + rows)], parts)
    sizes = [task[0].rows for task in tasks]
    assert len(sizes) == min(parts, rows) and max(sizes) - min(sizes) <= 1


def test_large_queues_are_split_before_small_ones() -> None:
    tasks = plan_tasks([QueueRange(QUEUES[0], 0, 900), QueueRange(QUEUES[1], 0, 100)], 4)
    assert [(task[0].queue, task[0].rows) for task in tasks] == [
        (QUEUES[0], 300),
        (QUEUES[0], 300),
        (QUEUES[0], 300),
        (QUEUES[1], 100),
    ]


def test_small_ranges_share_a_task() -> None:
    ranges = [
        QueueRange(queue, 0, rows) for queue, rows in zip(QUEUES, (10, 20, 5_000, 30, 40), strict=False)
    ]
    assert [[each.rows for each in task] for task in plan_tasks(ranges)] == [[10, 20], [5_000], [30, 40]]


@given(tables, st.integers(1, 400))
def test_rows_are_limited_and_no_offset_goes_back(table: Tables, limit: int) -> None:
    begin, available = table
    end = limited_end(begin, available, max_rows=limit)
    rows = {queue: end[queue] - begin[queue] for queue in end}
    there = sum(available.values()) - sum(begin.values())
    assert all(begin[queue] <= end[queue] <= available[queue] for queue in available)
    assert sum(rows.values()) == min(limit, there)


@given(tables, st.integers(1, 100_000), st.floats(1, 5_000))
def test_bytes_are_limited_and_something_always_moves(table: Tables, limit: int, row_bytes: float) -> None:
    begin, available = table
    sizes = dict.fromkeys(available, row_bytes)
    end = limited_end(begin, available, max_bytes=limit, row_bytes=sizes)
    rows = sum(end[queue] - begin[queue] for queue in end)
    there = sum(available.values()) - sum(begin.values())
    assert rows * row_bytes <= limit + 1e-6 or rows == 1
    assert rows >= min(1, there)


@given(tables, st.integers(1, 50))
def test_batch_after_batch_reads_everything_once(table: Tables, limit: int) -> None:
    begin, available = table
    read: Counter[tuple[MessageQueue, int]] = Counter()
    at = dict(begin)
    while at != available:
        end = limited_end(at, available, max_rows=limit)
        read += offsets_of(ranges_between(at, end))
        at = end
    assert read == offsets_of(ranges_between(begin, available))


def test_each_queue_has_its_share() -> None:
    begin = dict.fromkeys(QUEUES[:3], 0)
    available = dict(zip(QUEUES, (1_000, 100, 10), strict=False))
    assert list(limited_end(begin, available, max_rows=111).values()) == [100, 10, 1]


def test_a_queue_without_a_begin_stays_where_it_is() -> None:
    assert limited_end({}, {QUEUES[0]: 9}) == {QUEUES[0]: 9}
    assert ranges_between({}, {QUEUES[0]: 9}) == []
