"""Which queues a pop looks at, and when the retry topic comes first."""

from __future__ import annotations

import pytest

from kourou.broker.pop.pop_plan import PlannedQueue, PriorityRules, RetryRules, plan_queues

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


# -- by priority --------------------------------------------------------------------------------------


def by_priority(
    chance: int,
    *,
    retries: int = 3,
    factor: int = 100,
    first_chances: int = 0,
    is_ascending: bool = True,
    is_orderly: bool = False,
    queue_id: int = -1,
) -> str:
    """The queues in their order; those of the retry topic with a mark."""
    counts = {"T": 3, V1: retries}
    steps = plan_queues(
        "T",
        "G",
        queue_id,
        is_orderly=is_orderly,
        chance=chance,
        rules=RULES,
        read_queues=lambda topic: counts.get(topic, 0),
        priorities=PriorityRules(factor, first_chances, is_ascending),
    )
    return " ".join(f"{step.queue_id}{'r' * step.is_retry}" for step in steps)


@pytest.mark.parametrize("chance", [20, 50, 99])
def test_retries_of_a_priority_are_beside_its_other_messages(chance: int) -> None:
    assert by_priority(chance) == "2 2r 1 1r 0 0r"
    assert by_priority(chance, is_ascending=False) == "0 0r 1 1r 2 2r"


def test_of_equal_priority_retries_come_first_as_in_any_topic() -> None:
    assert by_priority(19) == "2r 2 1r 1 0r 0"


def test_with_their_own_probability_all_retries_come_first() -> None:
    """As RocketMQ 5.5.0 has it with popFromRetryProbabilityForPriority."""
    assert by_priority(49, first_chances=50) == "2r 1r 0r 2 1 0"
    assert by_priority(50, first_chances=50) == "2 2r 1 1r 0 0r"


def test_a_retry_topic_with_one_queue_is_read_last() -> None:
    """It has messages of all priorities: RocketMQ 5.5.0 has stored them so."""
    assert by_priority(3, retries=1) == "2 1 0 0r"
    assert by_priority(3, retries=1, is_ascending=False) == "0 1 2 0r"
    assert by_priority(3, retries=0) == "2 1 0"


def test_of_a_topic_with_fewer_queues_than_before_all_retries_are_read() -> None:
    assert by_priority(99, retries=4) == "3r 2 2r 1 1r 0 0r"


@pytest.mark.parametrize(
    ("chance", "expected"), [(87, "2 2r 1 1r 0 0r"), (88, "0 2 1 0r 2r 1r"), (98, "1 0 2 1r 0r 2r")]
)
def test_the_factor_leaves_a_share_for_any_order(chance: int, expected: str) -> None:
    assert by_priority(chance, factor=88) == expected


def test_orderly_pops_do_not_know_priorities() -> None:
    assert by_priority(1, is_orderly=True) == "1 2 0"


def test_one_queue_and_the_retries_by_priority() -> None:
    assert by_priority(99, queue_id=1) == "2r 1 1r 0r"
