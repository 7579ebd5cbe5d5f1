"""Queue choice: in turn, away from the last broker, and past brokers that are avoided."""

from __future__ import annotations

from collections import Counter

import pytest

from kourou.client.producer.queue_choice import LatencyFaults, QueuePicker, avoided_for_ms
from kourou.protocol.bodies.message_queue import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]
ONE_BROKER = [MessageQueue("T", "a", number) for number in range(3)]


class Clock:
    """A clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# Java 5.x: the largest latency of the table that was reached gives the time.
@pytest.mark.parametrize(
    ("latency_ms", "avoided_ms"),
    [
        *((0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2_000), (1_799, 2_000), (1_800, 5_000)),
        *((2_999, 5_000), (3_000, 6_000), (5_000, 10_000), (14_999, 10_000), (15_000, 30_000)),
    ],
)
def test_the_table_of_5x(latency_ms: int, avoided_ms: int) -> None:
    assert avoided_for_ms(latency_ms) == avoided_ms


def test_an_unknown_broker_is_fine() -> None:
    faults = LatencyFaults(Clock())
    assert faults.is_available("a") and faults.is_reachable("a")


def test_a_slow_broker_is_avoided_for_its_time() -> None:
    clock = Clock()
    faults = LatencyFaults(clock)
    faults.update("a", 600, isolate=False)
    assert not faults.is_available("a")
    clock.now += 1.999
    assert not faults.is_available("a")
    clock.now += 0.002
    assert faults.is_available("a")


def test_a_failure_counts_as_ten_seconds_however_fast_it_came() -> None:
    clock = Clock()
    faults = LatencyFaults(clock)
    faults.update("a", 1, isolate=True)
    clock.now += 9.999
    assert not faults.is_available("a")
    clock.now += 0.002
    assert faults.is_available("a")


def test_a_time_to_avoid_is_only_ever_extended() -> None:
    clock = Clock()
    faults = LatencyFaults(clock)
    faults.update("a", 1, isolate=True)
    faults.update("a", 600, isolate=False)
    faults.update("a", 3, isolate=False)
    clock.now += 9
    assert not faults.is_available("a")


def test_unreachable_until_said_otherwise() -> None:
    clock = Clock()
    faults = LatencyFaults(clock)
    faults.update("a", 1, isolate=True, reachable=False)
    clock.now += 3_600
    assert faults.is_available("a") and not faults.is_reachable("a")
    assert faults.unreachable_brokers() == ["a"]
    faults.update("a", 1, isolate=False)
    assert faults.is_reachable("a") and faults.unreachable_brokers() == []
    faults.update("a", 1, isolate=True, reachable=False)
    faults.forget("a")
    assert faults.is_available("a") and faults.is_reachable("a")


@pytest.mark.parametrize("faults", [None, LatencyFaults(Clock())])
def test_queues_come_in_turn(faults: LatencyFaults | None) -> None:
    picker = QueuePicker(faults)
    picked = [picker.pick(QUEUES) for _ in range(12)]
    assert Counter(picked) == dict.fromkeys(QUEUES, 2)
    start = QUEUES.index(picked[0])
    assert picked[:6] == QUEUES[start:] + QUEUES[:start]


def test_each_topic_has_its_own_turn() -> None:
    picker = QueuePicker()
    others = [MessageQueue("U", "a", number) for number in range(2)]
    picked = [(picker.pick(QUEUES[:2]), picker.pick(others)) for _ in range(4)]
    assert Counter(queue for pair in picked for queue in pair) == dict.fromkeys(QUEUES[:2] + others, 2)


def test_the_start_is_random() -> None:
    assert len({QueuePicker().pick(QUEUES) for _ in range(200)}) == len(QUEUES)


@pytest.mark.parametrize("faults", [None, LatencyFaults(Clock())])
def test_a_retry_goes_to_another_broker_if_there_is_one(faults: LatencyFaults | None) -> None:
    picker = QueuePicker(faults)
    assert {picker.pick(QUEUES, "b").broker_name for _ in range(50)} == {"a", "c"}
    assert {picker.pick(ONE_BROKER, "a") for _ in range(50)} == set(ONE_BROKER)


def test_avoided_brokers_come_last() -> None:
    faults = LatencyFaults(Clock())
    picker = QueuePicker(faults)
    faults.update("a", 600, isolate=False)
    assert {picker.pick(QUEUES).broker_name for _ in range(50)} == {"b", "c"}
    assert {picker.pick(QUEUES, "b").broker_name for _ in range(50)} == {"c"}
    faults.update("b", 600, isolate=False)
    faults.update("c", 600, isolate=True, reachable=False)
    # None is available: reachable ones are next, then any.
    assert {picker.pick(QUEUES).broker_name for _ in range(50)} == {"a", "b"}
    assert {picker.pick(QUEUES, "a").broker_name for _ in range(50)} == {"b"}
    faults.update("a", 600, isolate=True, reachable=False)
    faults.update("b", 600, isolate=True, reachable=False)
    assert {picker.pick(QUEUES).broker_name for _ in range(50)} == {"a", "b", "c"}
