"""Plans of faults: the same from the same seed, and from their printed form."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.failover.faults import KINDS, Plan, make_plan


def test_a_plan_is_what_its_seed_and_its_printed_form_say() -> None:
    plan = make_plan(seed=7, duration_s=600, lease_s=2, kinds=list(KINDS))
    assert plan == make_plan(seed=7, duration_s=600, lease_s=2, kinds=list(KINDS))
    assert plan != make_plan(seed=8, duration_s=600, lease_s=2, kinds=list(KINDS))
    assert Plan.parse(str(plan)) == plan


def test_a_plan_begins_with_what_has_to_come_first() -> None:
    first = ["kill-etcd", "handover", "kill-master"]
    steps = make_plan(seed=7, duration_s=600, lease_s=2, kinds=list(KINDS), first=first).steps
    assert [step.kind for step in steps[:3]] == first


def test_every_kind_has_its_turn_and_some_come_together() -> None:
    steps = make_plan(seed=1, duration_s=600, lease_s=2, kinds=list(KINDS)).steps
    assert {step.kind for step in steps} == KINDS.keys()
    assert any(after.at_s < before.at_s + before.lasts_s for before, after in pairwise(steps))
    assert all(step.at_s + step.lasts_s <= 600 for step in steps)


def test_a_kind_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="there is no fault 'flood'; there are kill-master, "):
        Plan.parse("1.00 flood 2.00 1")
