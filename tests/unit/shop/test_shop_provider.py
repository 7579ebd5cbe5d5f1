"""The plan of the simulated payment provider."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from webshop.callbacks import CallbackKind
from webshop.provider.domain import Behaviour, planned_callbacks, result_of

_PAYMENTS = [f"{number:032x}" for number in range(1_000)]


def test_a_charge_ends_the_same_way_each_time() -> None:
    """A killed provider, or a repeated request, must not decide otherwise."""
    behaviour = Behaviour(decline_rate=0.5)
    for payment_id in _PAYMENTS[:50]:
        plan = planned_callbacks(payment_id, behaviour)
        assert plan == planned_callbacks(payment_id, behaviour)
        assert {kind for kind, _ in plan} == {CallbackKind.PROCESSING, result_of(payment_id, behaviour)}
        assert len(plan) == 2 + behaviour.repeats


def test_the_rate_of_declined_charges() -> None:
    for rate in (0.0, 0.3, 1.0):
        ends = Counter(result_of(payment_id, Behaviour(decline_rate=rate)) for payment_id in _PAYMENTS)
        assert ends[CallbackKind.DECLINED] / len(_PAYMENTS) == pytest.approx(rate, abs=0.05)


def test_callbacks_come_late_repeatedly_out_of_order_and_together() -> None:
    behaviour = Behaviour(delay_ms=100, repeats=2)
    plans = [[ms for _, ms in planned_callbacks(payment, behaviour)] for payment in _PAYMENTS[:200]]
    assert all(ms >= 100 for _, *results in plans for ms in results)
    assert any(processing > result for processing, result, *_ in plans)
    assert any(processing < result for processing, result, *_ in plans)
    assert any(result == repeat for _, result, repeat, _ in plans)


def test_the_behaviour_changes_by_field() -> None:
    changed = Behaviour().changed({"delay_ms": 0, "decline_rate": 1, "is_paused": True})
    assert changed == Behaviour(delay_ms=0, decline_rate=1, is_paused=True)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"speed": 1}, "speed is unknown"),
        ({"delay_ms": -1}, ">= 0.*delay_ms"),
        ({"delay_ms": True}, "bool.*delay_ms"),
        ({"repeats": "2"}, "str.*repeats"),
        ({"repeats": 21}, "<= 20.*repeats"),
        ({"decline_rate": 1.5}, "<= 1.*decline_rate"),
        ({"is_paused": 1}, "int.*is_paused"),
    ],
)
def test_a_wrong_behaviour_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Behaviour().changed(changes)
