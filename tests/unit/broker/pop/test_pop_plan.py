"""Which queues a pop looks at, and when the retry topic comes first."""

from __future__ import annotations

import pytest

from kourou.broker.pop.pop_plan import PlannedQueue, RetryRules, plan_queues

V1, V2 = "%RETRY%G_T", "%RETRY%G+T"
RULES = RetryRules(20, False, True)


def plan(
    queue_id: int = -1,
    *,
    chance: int = 99,
    queues: int = 3,
    is_orderly: bool = False,
    rules: RetryRules = RULES,
    retries: tuple[str, ...] = (V1, V2),
) -> list[PlannedQueue]:
    counts = {"T": queues, **dict.fromkeys(retries, 1)}
    return plan_queues(
        "T",
        "G",
        queue_id,
        is_orderly=is_orderly,
        chance=chance,
        rules=rules,
        read_queues=lambda topic: counts.get(topic, 0),
    )


@pytest.mark.parametrize(("chance", "order"), [(99, [0, 1, 2]), (50, [2, 0, 1]), (20, [2, 0, 1])])
def test_all_queues_from_a_random_one_on(chance: int, order: list[int]) -> None:
    assert [step.queue_id for step in plan(chance=chance, retries=())] == order


def test_one_queue_and_the_retry_topic_behind_it() -> None:
    assert plan(2) == [PlannedQueue("T", 2, False), PlannedQueue(V1, 0, True)]


@pytest.mark.parametrize(("chance", "is_first"), [(0, True), (19, True), (20, False), (99, False)])
def test_the_retry_topic_comes_first_with_its_probability(chance: int, is_first: bool) -> None:
    steps = plan(chance=chance)
    assert steps[0 if is_first else -1] == PlannedQueue(V1, 0, True) and len(steps) == 4


@pytest.mark.parametrize(
    ("rules", "chance", "topic"),
    [
        (RetryRules(0, False, True), 2, V1),
        (RetryRules(0, True, True), 2, V1),
        (RetryRules(0, True, True), 3, V2),
        (RetryRules(0, True, False), 2, V2),
    ],
)
def test_a_pop_reads_one_of_the_names(rules: RetryRules, chance: int, topic: str) -> None:
    assert [step.topic for step in plan(rules=rules, chance=chance) if step.is_retry] == [topic]


def test_orderly_pop_has_no_retry_topic() -> None:
    assert not any(step.is_retry for step in plan(is_orderly=True, chance=0))


def test_a_topic_without_queues_to_read_has_none() -> None:
    assert plan(queues=0, retries=()) == []
