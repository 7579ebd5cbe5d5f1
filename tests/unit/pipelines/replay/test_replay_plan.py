"""Slices of a replay: every message in exactly one, in the order of its queue, whatever clocks did."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.protocol.bodies import MessageQueue
from kourou.spark.pipelines.replay.replay_plan import Bucket, Slice, plan_slices, target_queues

BUCKET_MS = 1_000
Stored = dict[MessageQueue, list[tuple[int, int]]]
"""Offset and time of each message of a queue."""


def queue(number: int, topic: str = "orders", broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, number)


def buckets_of(stored: Stored) -> list[Bucket]:
    groups: dict[tuple[MessageQueue, int], list[int]] = defaultdict(list)
    for each, messages in stored.items():
        for offset, at_ms in messages:
            groups[each, at_ms // BUCKET_MS].append(offset)
    return [
        Bucket(each, number * BUCKET_MS, len(offsets), min(offsets), max(offsets))
        for (each, number), offsets in groups.items()
    ]


def sent(part: Slice, stored: Stored) -> dict[MessageQueue, list[int]]:
    """What a slice means, as replay_rows.py asks Spark for it."""
    return {
        each: sorted(
            offset
            for offset, at_ms in stored[each]
            if part.begin_ms <= at_ms < part.end_ms and span.first <= offset <= span.last
        )
        for each, span in part.ranges.items()
    }


@given(st.integers(1, 3), st.integers(1, 60), st.integers(1, 20), st.booleans(), st.integers(0, 1 << 32))
@settings(max_examples=200, deadline=None)
def test_every_message_once_and_queues_in_order(
    queues: int, messages: int, slice_rows: int, clock_steps: bool, seed: int
) -> None:
    chance = random.Random(seed)
    stored: Stored = {}
    for number in range(queues):
        at_ms, offset, own = chance.randrange(5_000), chance.randrange(50), []
        for _ in range(messages):
            own.append((offset, max(0, at_ms)))
            offset += chance.choice((1, 1, 1, 5))
            at_ms += chance.randrange(-4_000, 4_000) if clock_steps else chance.randrange(900)
        stored[queue(number)] = own
    order: dict[MessageQueue, list[int]] = defaultdict(list)
    for part in plan_slices(buckets_of(stored), bucket_ms=BUCKET_MS, slice_rows=slice_rows):
        for each, offsets in sent(part, stored).items():
            order[each] += offsets
    assert dict(order) == {each: [offset for offset, _ in own] for each, own in stored.items()}


def test_slices_are_about_as_large_as_asked_for() -> None:
    stored = {queue(number): [(offset, offset * 10) for offset in range(10_000)] for number in range(4)}
    slices = list(plan_slices(buckets_of(stored), bucket_ms=BUCKET_MS, slice_rows=1_000))
    assert sum(part.rows for part in slices) == 40_000
    for part in slices:
        assert sum(len(offsets) for offsets in sent(part, stored).values()) <= 1_000
    assert len(slices) <= 80
    # Queues advance side by side.
    assert all(len(part.ranges) == 4 for part in slices)


def test_a_burst_within_a_bucket_is_cut_by_offsets() -> None:
    stored = {queue(0): [(offset, 5) for offset in range(1_000)]}
    slices = list(plan_slices(buckets_of(stored), bucket_ms=BUCKET_MS, slice_rows=100))
    assert [part.rows for part in slices] == [100] * 10
    assert [part.ranges[queue(0)].first for part in slices] == list(range(0, 1_000, 100))


def test_nothing_makes_no_slices() -> None:
    assert list(plan_slices([], bucket_ms=BUCKET_MS, slice_rows=10)) == []


def test_queues_go_to_the_same_ones_where_there_are_such() -> None:
    sources = [queue(0), queue(1), queue(5)]
    there = {"copy": [queue(0, "copy"), queue(1, "copy")]}
    found = target_queues(sources, there, "copy")
    assert found[queue(0)] == queue(0, "copy")
    assert found[queue(1)] == queue(1, "copy")
    assert found[queue(5)] in there["copy"]


def test_with_other_brokers_queues_are_dealt_out() -> None:
    sources = [queue(number) for number in range(4)]
    there = {"copy": [queue(number, "copy", "elsewhere") for number in range(2)]}
    found = target_queues(sources, there, "copy")
    assert [found[each].queue_id for each in sources] == [0, 1, 0, 1]


def test_each_topic_to_its_own_name() -> None:
    sources = [queue(0, "a"), queue(0, "b")]
    there = {"a": [queue(0, "a")], "b": [queue(0, "b")]}
    assert target_queues(sources, there, None) == {each: each for each in sources}
