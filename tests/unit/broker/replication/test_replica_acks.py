"""ReplicaAcks: how many slaves have to acknowledge, and how far so many of them are."""

from __future__ import annotations

import random

import pytest

from kourou.broker.replication.replica_acks import AckRule, ReplicaAcks

GAP = 100
END = 1_000


def acks_of(rule: AckRule, *acks: int) -> ReplicaAcks:
    made = ReplicaAcks(rule)
    made.update(acks)
    return made


def test_one_slave_any_has_to_acknowledge() -> None:
    rule = AckRule(copies=2, max_gap_bytes=GAP, answers_at_once=True)
    assert acks_of(rule).mark(END) == -1 and not acks_of(rule).is_worth_waiting(END)
    behind = acks_of(rule, END - GAP)
    assert behind.mark(END) == END - GAP and not behind.is_enough(END) and not behind.is_worth_waiting(END)
    one_of_two = acks_of(rule, END - GAP, END - GAP + 1)
    assert one_of_two.mark(END) == END - GAP + 1 and one_of_two.is_worth_waiting(END)


def test_a_rule_without_slaves_waits_for_none() -> None:
    for acks in ((), (5,)):
        assert acks_of(AckRule(max_gap_bytes=GAP), *acks).mark(END) == END
        assert acks_of(AckRule(max_gap_bytes=GAP), *acks).is_enough(END)


def test_copies_may_be_lowered_to_those_in_sync() -> None:
    rule = AckRule(copies=3, min_copies=2, is_auto=True, max_gap_bytes=GAP)
    assert acks_of(rule, END - 1, END - 2).mark(END) == END - 2
    assert acks_of(rule, END - 1, 2).mark(END) == END - 1
    assert acks_of(rule, 1).mark(END) == 1 and not acks_of(rule, 1).is_enough(END)
    assert acks_of(rule).mark(END) == -1


@pytest.mark.parametrize("seed", range(20))
def test_enough_slaves_are_as_many_in_sync_as_needed(seed: int) -> None:
    some = random.Random(seed)
    for _ in range(50):
        rule = AckRule(
            copies=some.randint(1, 4),
            min_copies=some.randint(1, 3),
            is_auto=some.random() < 0.5,
            waits_for_all=some.random() < 0.3,
            max_gap_bytes=GAP,
        )
        acks = [END - some.choice((0, 1, GAP - 1, GAP, GAP + 1)) for _ in range(some.randint(0, 4))]
        in_sync = sum(END - ack < GAP for ack in acks)
        made = acks_of(rule, *acks)
        assert made.in_sync(END) == in_sync
        assert made.is_enough(END) == (in_sync >= rule.needed(in_sync)), (rule, acks)


@pytest.mark.parametrize(
    ("rule", "acks", "problem"),
    [
        (AckRule(copies=2, max_gap_bytes=GAP, answers_at_once=True), (), None),
        (AckRule(max_gap_bytes=GAP), (), None),
        (AckRule(copies=2, max_gap_bytes=GAP), (END,), None),
        (AckRule(copies=2, max_gap_bytes=GAP), (END - GAP,), "1 of 2 copies"),
        (AckRule(copies=3, max_gap_bytes=GAP), (END,), "2 of 3 copies"),
        (AckRule(copies=3, is_auto=True, max_gap_bytes=GAP), (), None),
        (AckRule(copies=3, is_auto=True, min_copies=2, max_gap_bytes=GAP), (), "1 of 2 copies"),
        (AckRule(copies=3, waits_for_all=True, min_copies=2, max_gap_bytes=GAP), (), "1 of 2 copies"),
    ],
)
def test_messages_are_rejected_by_the_rule_of_5x_only(
    rule: AckRule, acks: tuple[int, ...], problem: str | None
) -> None:
    found = acks_of(rule, *acks).problem(END)
    assert (found and found.partition(",")[0]) == problem
