"""payments: HTTP and messages.

POST /payments     {payment_id, order_id, user_id}: pay an order, once
GET  /payments     ?order_id=: the payments of an order, oldest first
POST /callbacks    of the provider, signed (webshop/callbacks.py)
shop-payments      PAYMENT_CREATED: charge the provider; after a kill too, since the message comes again
shop-orders        REFUND_DUE: the order was cancelled before its payment came; pay back, once
emits PAYMENT_CREATED, PAYMENT_PAID, PAYMENT_DECLINED, PAYMENT_REFUNDED
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from fastapi import Request
from pydantic import BaseModel, Field

from webshop.callbacks import SIGNATURE, Callback, verified_callback
from webshop.errors import Code, RefusedError, refuse_if
from webshop.events import Kind, OrderEvent, PaymentEvent, Topic
from webshop.kit.calls import path_of
from webshop.kit.database import Row
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.service import Service
from webshop.order import Order
from webshop.payments import domain, tables
from webshop.payments.domain import PaymentState
from webshop.settings import Way

service = Service("payments", tables=tables.TABLES, emits=True)
answered = service.later(tables.INSERT_CALLBACK)


_ID: Final = "^[A-Za-z0-9_-]{1,64}$"


class NewPayment(BaseModel):
    """A payment that a buyer begins."""

    payment_id: str = Field(pattern=_ID)
    order_id: str = Field(pattern=_ID)
    user_id: str


@service.app.post("/payments")
async def create_payment(new: NewPayment) -> dict[str, Any]:
    """Begin to pay an order; a repeated request gets the payment as it is now."""
    payment = await service.database.row(tables.ONE, new.payment_id)
    if payment is None:
        order = msgspec.convert(await service.calls.get("orders", path_of("orders", new.order_id)), Order)
        domain.check_order(order, new.user_id)
        payment = await _store(new, order)
    refuse_if(
        (payment.order_id, payment.user_id) != (new.order_id, new.user_id),
        Code.PAYMENT_DIFFERS,
        f"payment {new.payment_id} is of order {payment.order_id}; choose another payment_id",
    )
    return dict(payment._asdict())


async def _store(new: NewPayment, order: Order) -> Row:
    # If nothing is left to pay, there is nothing to charge.
    state = PaymentState.CREATED if order.amount_due else PaymentState.PAID
    async with service.unit() as unit:
        stored = await tables.insert(
            unit.connection,
            {**new.model_dump(), "amount": order.amount_due, "way": order.way, "state": state},
        )
        if stored:
            unit.emit(_event(stored))
    kill_point(KillPoint.PAYMENT_STORED)
    stored = stored or await service.database.row(tables.ONE, new.payment_id)
    if stored is None:
        raise RefusedError(
            Code.PAYMENT_EXISTS,
            f"order {new.order_id} has another payment that is open or paid; see GET /payments?order_id=",
        )
    return stored


@service.app.get("/payments")
async def list_payments(order_id: str) -> list[dict[str, Any]]:
    """The payments of an order."""
    return [row._asdict() for row in await service.database.rows(tables.OF_ORDER, order_id)]


@service.app.post("/callbacks")
async def receive_callback(request: Request) -> dict[str, Any]:
    """Store what the provider reports, with its event, and answer: all the rest follows from the event."""
    received_at, began = datetime.now(UTC), time.perf_counter()
    secret, signature = service.settings.provider_secret, request.headers.get(SIGNATURE)
    callback = verified_callback(secret, await request.body(), signature)
    kill_point(KillPoint.CALLBACK_RECEIVED)
    is_first = await _apply(callback)
    kill_point(KillPoint.CALLBACK_STORED)
    took_ms = (time.perf_counter() - began) * 1000
    answered.add(callback.payment_id, callback.callback_id, callback.kind, received_at, took_ms, is_first)
    return {"payment_id": callback.payment_id, "is_first": is_first}


async def _apply(callback: Callback) -> bool:
    """Change the payment, unless another callback has done so."""
    payment = await service.database.found(tables.ONE, callback.payment_id, Code.PAYMENT_UNKNOWN, "payment")
    new = domain.state_after(callback, state=payment.state, amount=payment.amount)
    if new is None:
        return False
    async with service.unit() as unit:
        changed = await tables.change(unit.connection, payment.payment_id, payment.state, new)
        if changed:
            unit.emit(_event(changed))
    return changed is not None


@service.consumes(Topic.PAYMENTS, Kind.PAYMENT_CREATED, in_transaction=False)
async def charge(event: PaymentEvent) -> None:
    """Charge the provider, for which a repeated request is the same charge."""
    callback = f"http://{service.settings.address('payments')}/callbacks"
    wanted = {"payment_id": event.payment_id, "amount": event.amount, "callback": callback}
    await service.calls.post("provider", "/charges", wanted)
    kill_point(KillPoint.CHARGE_SENT)


@service.consumes(Topic.ORDERS, Kind.REFUND_DUE, in_transaction=False)
async def refund(event: OrderEvent) -> None:
    """Pay back. REFUND_DUE is stored before the provider is called: no refund is without a trace."""
    assert event.payment_id is not None, "REFUND_DUE has a payment"
    payment_id, amount = event.payment_id, event.amount
    async with service.database.transaction() as connection:
        await tables.change(connection, payment_id, PaymentState.PAID, PaymentState.REFUND_DUE)
    kill_point(KillPoint.REFUND_STORED)
    if amount:
        await service.calls.post("provider", "/refunds", {"payment_id": payment_id, "amount": amount})
    kill_point(KillPoint.REFUND_SENT)
    async with service.unit() as unit:
        refunded = await tables.change(
            unit.connection, payment_id, PaymentState.REFUND_DUE, PaymentState.REFUNDED
        )
        if refunded:
            unit.emit(_event(refunded))


def _event(payment: Row) -> PaymentEvent:
    return PaymentEvent(
        kind=Kind[f"PAYMENT_{payment.state}"],
        order_id=payment.order_id,
        way=Way(payment.way),
        payment_id=payment.payment_id,
        user_id=payment.user_id,
        amount=payment.amount,
    )
