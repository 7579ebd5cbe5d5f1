"""orders: HTTP and messages.

POST /orders                    place an order, or go on with it after a lost answer
GET  /orders/{order_id}
GET  /orders?user_id=&limit=    the newest, of one user or of all
POST /orders/{order_id}/cancel  {reason}
shop-timeouts   PAYMENT_DUE     cancel what is not paid
shop-payments   PAYMENT_PAID    PAID; or REFUND_DUE if the order was cancelled meanwhile
emits ORDER_CREATED, PAYMENT_DUE, ORDER_CONFIRMED, ORDER_CANCELLED, ORDER_PAID, REFUND_DUE
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from fastapi import Body

from webshop.errors import Code, ShopError, refuse_if
from webshop.events import Kind, OrderEvent, PaymentDue, PaymentEvent, Topic, new_id, time_text
from webshop.kit.calls import path_of
from webshop.kit.emit import Unit
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.rows import change_row, columns_of, find_record, insert_row, record_of
from webshop.kit.service import Service
from webshop.order import Order, Request, State
from webshop.orders import domain, tables

_TAKE_WITHIN_S = 10.0
_AGAIN_S = 2.0
_OPEN = (State.NEW, State.CONFIRMED)

service = Service("orders", tables=tables.TABLES, emits=True)


@service.app.post("/orders")
async def place(request: Request) -> Order:
    """Place an order. The answer is the order: CONFIRMED, or its state if the request is a repeated one."""
    row = await service.database.row(tables.ONE, request.order_id)
    order = record_of(Order, row) if row else await _store_new(await _checked(request))
    other = f"there is another order with the id {request.order_id}; choose a new id"
    refuse_if(not domain.is_of(order, request), Code.ORDER_DIFFERS, other)
    return await _take_and_confirm(order) if order.state is State.NEW else order


async def _checked(request: Request) -> Order:
    """Five checks, and the pre-order up to its seventh step."""
    domain.check_given(request)
    get, coupon = service.calls.get, {"value": 0}
    goods, user = await asyncio.gather(
        get("goods", "/goods", ids=",".join({item.goods_id for item in request.items})),
        get("users", path_of("users", request.user_id)),
    )
    if request.coupon_id is not None:
        coupon = await get("coupons", path_of("coupons", request.coupon_id), unused_by=request.user_id)
    prices, stock = ({each["goods_id"]: each[name] for each in goods} for name in ("price", "stock"))
    domain.check_goods(request, prices, stock)
    order = domain.pre_order(
        request,
        user_balance=user["balance"],
        coupon_value=coupon["value"],
        way=service.settings.way_of(request.order_id),
        now=datetime.now(UTC),
    )
    kill_point(KillPoint.ORDER_CHECKED)
    return order


async def _store_new(order: Order) -> Order:
    """The eighth step. From here on the order ends PAID or CANCELLED, whatever happens: PAYMENT_DUE comes."""
    async with service.unit() as unit:
        is_new = await insert_row(unit.connection, "orders", **columns_of(order))
        if is_new:
            unit.emit(OrderEvent.of(order, Kind.ORDER_CREATED))
            due = PaymentDue(order_id=order.order_id, way=order.way, at=time_text(order.created_at))
            unit.emit(due, delay_s=service.settings.pay_within_s)
    kill_point(KillPoint.ORDER_STORED)
    return order if is_new else await one_order(order.order_id)  # that of a concurrent request


async def _take_and_confirm(order: Order) -> Order:
    """Three deductions, then CONFIRMED. If one is refused, or its service does not come back, CANCELLED: the
    services undo what was taken."""
    try:
        await _take(order)
    except ShopError as error:
        async with service.unit() as unit:
            await _change(unit, order.order_id, Kind.ORDER_CANCELLED, State.NEW, reason=error.code)
        order = await one_order(order.order_id)
        if order.state is State.CANCELLED:
            raise
        return order  # a concurrent request has confirmed it
    async with service.unit() as unit:
        confirmed = await _change(unit, order.order_id, Kind.ORDER_CONFIRMED, State.NEW)
    kill_point(KillPoint.ORDER_CONFIRMED)
    return confirmed or await one_order(order.order_id)


async def _take(order: Order) -> None:
    """Every deduction is made once for an order, however often it is requested."""
    use = {"coupon_id": order.coupon_id, "user_id": order.user_id}
    pay = {"user_id": order.user_id, "amount": order.balance_paid}
    items = {"items": [asdict(item) for item in order.items]}
    for is_needed, other, path, body, point in (
        (True, "goods", "stock", items, KillPoint.STOCK_TAKEN),
        (order.coupon_id is not None, "coupons", "uses", use, KillPoint.COUPON_TAKEN),
        (order.balance_paid > 0, "users", "balance", pay, KillPoint.BALANCE_TAKEN),
    ):
        if is_needed:
            await service.calls.post(other, path_of(path, order.order_id), body, within_s=_TAKE_WITHIN_S)
            kill_point(point)


async def _change(unit: Unit, order_id: str, kind: Kind, *states: State, **columns: Any) -> Order | None:
    """Change an order that is in one of these states, and emit that; None if it is in none of them."""
    state = State(kind.removeprefix("ORDER_"))
    columns |= {"state": state, f"{state.lower()}_at": datetime.now(UTC)}
    row = await change_row(unit.connection, "orders", {"order_id": order_id}, states, **columns)
    order = record_of(Order, row) if row else None
    if order:
        unit.emit(OrderEvent.of(order, kind, reason=order.reason, payment_id=order.payment_id))
    return order


@service.app.get("/orders/{order_id}")
async def one_order(order_id: str) -> Order:
    """One order."""
    return record_of(Order, await service.database.found(tables.ONE, order_id, Code.ORDER_UNKNOWN, "order"))


@service.app.get("/orders")
async def newest_orders(user_id: str | None = None, limit: int = 50) -> list[Order]:
    """The newest orders, of a user or of all; NEW ones are invisible."""
    rows = await service.database.rows(tables.NEWEST, user_id, user_id, max(1, min(limit, 1_000)))
    return [record_of(Order, row) for row in rows]


@service.app.post("/orders/{order_id}/cancel")
async def cancel(order_id: str, reason: str = Body(embed=True)) -> Order:
    """Cancel an order that is not paid; one that was cancelled before stays as it is."""
    async with service.unit() as unit:
        cancelled = await _change(unit, order_id, Kind.ORDER_CANCELLED, *_OPEN, reason=reason)
    order = cancelled or await one_order(order_id)
    refuse_if(order.state is State.PAID, Code.ORDER_PAID, f"order {order_id} is paid; it cannot be cancelled")
    return order


@service.consumes(Topic.TIMEOUTS, Kind.PAYMENT_DUE)
async def payment_due(event: PaymentDue, unit: Unit) -> None:
    """The time to pay is over. The reminder may come before its order is committed: then once more."""
    order = await find_record(unit.connection, Order, tables.ONE, event.order_id)
    if order is None and event.is_early(service.settings.pay_within_s):
        unit.emit(replace(event, event_id=new_id()), delay_s=_AGAIN_S)
    elif order is not None and order.is_reminded(event.at):
        await _change(unit, event.order_id, Kind.ORDER_CANCELLED, *_OPEN, reason="NOT_PAID")


@service.consumes(Topic.PAYMENTS, Kind.PAYMENT_PAID)
async def payment_paid(event: PaymentEvent, unit: Unit) -> None:
    """The order is paid, unless it was cancelled or paid before: then the money goes back."""
    if await _change(unit, event.order_id, Kind.ORDER_PAID, State.CONFIRMED, payment_id=event.payment_id):
        return
    order = await find_record(unit.connection, Order, tables.ONE, event.order_id)
    is_final = order is not None and order.state in (State.PAID, State.CANCELLED)
    refuse_if(not is_final, Code.ORDER_NOT_CONFIRMED, f"order {event.order_id} is paid too early")
    if order and order.payment_id != event.payment_id:
        unit.emit(OrderEvent.of(order, Kind.REFUND_DUE, payment_id=event.payment_id, amount=event.amount))
