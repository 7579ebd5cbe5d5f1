"""What callbacks do to payments, and which requests are refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from webshop.callbacks import Callback, CallbackKind, sign, verified_callback
from webshop.errors import Code, RefusedError
from webshop.order import Order, State
from webshop.payments.domain import PaymentState, check_order, state_after
from webshop.points.domain import points_of
from webshop.settings import Way

_CALLBACK = Callback("c1", "p1", CallbackKind.PAID, 1250)
_BODY = _CALLBACK.encode()
_ORDER = Order(
    order_id="o1",
    user_id="u1",
    items=(),
    goods_total=0,
    shipping=1000,
    coupon_id=None,
    coupon_value=0,
    balance_paid=0,
    amount_due=1000,
    way=Way.OUTBOX,
    state=State.CONFIRMED,
    created_at=datetime.now(UTC),
)


def test_a_callback_survives_its_encoding() -> None:
    assert verified_callback("secret", _BODY, sign("secret", _BODY)) == _CALLBACK


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "truncated"),
        (b"[]", "object"),
        (b'{"callback_id": "c1"}', "payment_id"),
        (json.dumps({**json.loads(_BODY), "amount": "1250"}).encode(), "amount"),
        (json.dumps({**json.loads(_BODY), "amount": 12.5}).encode(), "amount"),
        (json.dumps({**json.loads(_BODY), "kind": "LOST"}).encode(), "LOST"),
    ],
)
def test_a_callback_that_is_not_understood_is_refused(body: bytes, named: str) -> None:
    with pytest.raises(RefusedError, match=named) as refused:
        verified_callback("secret", body, sign("secret", body))
    assert refused.value.status == 400


def test_a_signature_is_of_this_body_and_this_secret() -> None:
    signed = sign("secret", _BODY)
    for secret, body, given in [
        ("secret", _BODY + b" ", signed),
        ("another", _BODY, signed),
        ("secret", _BODY, None),
        ("secret", _BODY, ""),
        ("secret", _BODY, signed.upper() + "\u00e9"),
    ]:
        with pytest.raises(RefusedError, match="X-Signature") as refused:
            verified_callback(secret, body, given)
        assert refused.value.status == 401


def test_callbacks_in_any_order_and_number_end_in_the_same_state() -> None:
    """Whatever comes first, repeatedly or late: the result is what the provider reported."""
    for result in (CallbackKind.PAID, CallbackKind.DECLINED):
        kinds = [CallbackKind.PROCESSING, result, result]
        for order in itertools.permutations(kinds):
            state, changes = PaymentState.CREATED, 0
            for number, kind in enumerate(order):
                new = state_after(Callback(f"c{number}", "p1", kind, 5), state=state, amount=5)
                changes += new is not None
                state = new or state
            assert (state, changes) == (PaymentState(result), 1)


@pytest.mark.parametrize("state", [PaymentState.REFUND_DUE, PaymentState.REFUNDED])
def test_a_late_report_does_not_undo_a_refund(state: PaymentState) -> None:
    assert state_after(Callback("c1", "p1", CallbackKind.PAID, 5), state=state, amount=5) is None


@pytest.mark.parametrize(
    ("state", "kind"),
    [(PaymentState.DECLINED, CallbackKind.PAID)]
    + [(state, CallbackKind.DECLINED) for state in ("PAID", "REFUND_DUE", "REFUNDED")],
)
def test_a_report_that_contradicts_the_state_is_refused(state: str, kind: CallbackKind) -> None:
    with pytest.raises(RefusedError, match=f"reports {kind}, but payment p1 is {state}"):
        state_after(Callback("c1", "p1", kind, 5), state=PaymentState(state), amount=5)


def test_a_wrong_amount_is_refused_and_both_are_named() -> None:
    with pytest.raises(RefusedError, match="1250 cents.* 1249 cents"):
        state_after(_CALLBACK, state=PaymentState.CREATED, amount=1249)


def test_only_a_confirmed_order_of_the_user_can_be_paid() -> None:
    check_order(_ORDER, "u1")
    for state, user_id, code in [
        (State.CONFIRMED, "u2", Code.ORDER_UNKNOWN),
        (State.NEW, "u1", Code.ORDER_NOT_CONFIRMED),
        (State.PAID, "u1", Code.ORDER_PAID),
        (State.CANCELLED, "u1", Code.ORDER_CANCELLED),
    ]:
        with pytest.raises(RefusedError) as refused:
            check_order(replace(_ORDER, state=state), user_id)
        assert refused.value.code is code


@pytest.mark.parametrize(("amount_due", "points"), [(0, 0), (99, 0), (100, 1), (12_345, 123)])
def test_a_point_for_each_full_unit(amount_due: int, points: int) -> None:
    assert points_of(amount_due) == points
