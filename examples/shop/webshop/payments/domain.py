"""What a payment may become.

    CREATED ── PAID ──► PAID ── the order was cancelled ──► REFUND_DUE ── it was paid back ──► REFUNDED
       └── DECLINED ──► DECLINED, and the order may get another payment

A provider calls back several times, late, out of order and in parallel. So a callback is judged by the state
that the payment has when the callback comes: it changes the payment, or nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from webshop.callbacks import Callback, CallbackKind
from webshop.errors import Code, refuse_if
from webshop.order import Order, State


class PaymentState(StrEnum):
    """The states of a payment; the event of each is PAYMENT_ and its name."""

    CREATED = "CREATED"
    PAID = "PAID"
    DECLINED = "DECLINED"
    REFUND_DUE = "REFUND_DUE"
    REFUNDED = "REFUNDED"


# The states in which a result can have been reported.
_REPORTED: Final = {
    CallbackKind.PAID: (PaymentState.PAID, PaymentState.REFUND_DUE, PaymentState.REFUNDED),
    CallbackKind.DECLINED: (PaymentState.DECLINED,),
}


def state_after(callback: Callback, *, state: str, amount: int) -> PaymentState | None:
    """The new state of a payment; None if the callback changes nothing, such as a repeated or late one.

    RefusedError if it does not fit the payment: then provider and shop disagree, and money would be missing.
    """
    named, payment = f"callback {callback.callback_id}", f"payment {callback.payment_id}"
    refuse_if(
        callback.amount != amount,
        Code.WRONG_AMOUNT,
        f"{named} is about {callback.amount} cents, but {payment} is over {amount} cents; "
        "compare the charge with the payment",
    )
    if callback.kind is CallbackKind.PROCESSING or state in _REPORTED[callback.kind]:
        return None
    refuse_if(
        state != PaymentState.CREATED,
        Code.PAYMENT_DIFFERS,
        f"{named} reports {callback.kind}, but {payment} is {state}; compare the charge with the payment",
    )
    return PaymentState(callback.kind)


def check_order(order: Order, user_id: str) -> None:
    """RefusedError unless the order can be paid by this user."""
    named, state = f"order {order.order_id}", order.state
    refuse_if(order.user_id != user_id, Code.ORDER_UNKNOWN, f"user {user_id} has no {named}", status=404)
    refuse_if(state is State.PAID, Code.ORDER_PAID, f"{named} is paid already; nothing is left to pay")
    refuse_if(
        state is State.CANCELLED,
        Code.ORDER_CANCELLED,
        f"{named} is cancelled ({order.reason}); place a new order",
    )
    refuse_if(
        state is State.NEW, Code.ORDER_NOT_CONFIRMED, f"{named} is {state}; pay it when it is confirmed"
    )
