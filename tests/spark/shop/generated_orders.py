"""A run of orders, by a seed: their events, and the rows that the services would have in the database.

The shop's rules are written a second time here, in plain Python: what Spark makes of the events is compared
with it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from webshop.events import Event, Item, Kind, OrderEvent, PaymentEvent
from webshop.money import shipping_of
from webshop.settings import Way

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LIVES = ("paid", "paid", "paid", "paid", "second-payment", "failed", "never-paid", "late")
OPENING_BALANCE = 5_000_00
DELIVERED = 10_000
Row = dict[str, Any]


@dataclass
class Order:
    """An order, and what became of it."""

    order_id: str
    user_id: str
    items: tuple[Item, ...]
    coupon: tuple[str, int] | None
    balance_paid: int
    way: Way
    life: str
    events: list[tuple[datetime, Event]] = field(default_factory=list)

    @property
    def goods_total(self) -> int:
        return sum(item.price * item.quantity for item in self.items)

    @property
    def coupon_value(self) -> int:
        return self.coupon[1] if self.coupon else 0

    @property
    def amount_due(self) -> int:
        total = self.goods_total + shipping_of(self.goods_total)
        return total - self.coupon_value - self.balance_paid

    @property
    def state(self) -> str:
        return "PAID" if self.life in ("paid", "second-payment") else "CANCELLED"

    @property
    def row(self) -> Row:
        """Columns that event and table share."""
        return {
            "order_id": self.order_id,
            "user_id": self.user_id,
            "goods_total": self.goods_total,
            "shipping": shipping_of(self.goods_total),
            "coupon_id": self.coupon[0] if self.coupon else None,
            "coupon_value": self.coupon_value,
            "balance_paid": self.balance_paid,
            "amount_due": self.amount_due,
            "way": self.way,
        }

    @property
    def reason(self) -> str | None:
        return {"failed": "OUT_OF_STOCK", "never-paid": "NOT_PAID", "late": "NOT_PAID"}.get(self.life)

    def payments(self) -> list[tuple[str, str]]:
        """Id and state of each."""
        states = {
            "paid": ["PAID"],
            "second-payment": ["DECLINED", "PAID"],
            "late": ["REFUNDED"],
            "never-paid": ["CREATED"],
            "failed": [],
        }[self.life]
        return [(f"{number}-{self.order_id}", state) for number, state in enumerate(states, 1)]


def make_orders(count: int, *, seed: int) -> list[Order]:
    """Orders of five users, ten seconds apart; every kind of life is among the first ones."""
    chance = random.Random(seed)
    orders = []
    for number in range(count):
        life = LIVES[number] if number < len(LIVES) else chance.choice(LIVES)
        goods = chance.sample(range(12), chance.randint(1, 3))
        items = tuple(
            Item(f"goods-{each}", chance.randint(1, 4), 99 + 1_250 * each) for each in sorted(goods)
        )
        order = Order(
            order_id=f"{number:032x}",
            user_id=f"user-{number % 5}",
            items=items,
            coupon=(f"coupon-{number}", 50) if chance.random() < 0.3 else None,
            balance_paid=chance.choice([0, 0, 1, 100, 1_049]),
            way=chance.choice(list(Way)),
            life=life,
        )
        _live(order, BEGIN + timedelta(seconds=10 * number), chance)
        orders.append(order)
    return orders


def events_of(orders: list[Order]) -> list[Event]:
    """All events in the order of their times; every seventh was sent twice."""
    found = sorted((pair for order in orders for pair in order.events), key=lambda pair: pair[0])
    events = [event for _, event in found]
    return [each for number, event in enumerate(events) for each in [event] * (2 if number % 7 == 0 else 1)]


def _live(order: Order, at: datetime, chance: random.Random) -> None:
    def ordered(kind: Kind, after_s: float, **more: Any) -> None:
        when = at + timedelta(seconds=after_s)
        fields = {**order.row, "items": order.items, "kind": kind, "at": _text(when), **more}
        order.events.append((when, OrderEvent(**fields, event_id=f"{kind}-{order.order_id}")))

    def payment(kind: Kind, payment_id: str, after_s: float) -> None:
        when = at + timedelta(seconds=after_s)
        event = PaymentEvent(
            kind=kind, order_id=order.order_id, way=order.way, event_id=f"{kind}-{payment_id}",
            at=_text(when), payment_id=payment_id, user_id=order.user_id, amount=order.amount_due,
        )  # fmt: skip
        order.events.append((when, event))

    ordered(Kind.ORDER_CREATED, 0)
    if order.life == "failed":
        ordered(Kind.ORDER_CANCELLED, 0.2, reason=order.reason)
        return
    ordered(Kind.ORDER_CONFIRMED, 0.1)
    after_s = 0.5
    for payment_id, state in order.payments():
        payment(Kind.PAYMENT_CREATED, payment_id, after_s)
        if state == "DECLINED":
            payment(Kind.PAYMENT_DECLINED, payment_id, after_s + 1)
        if state == "PAID":
            payment(Kind.PAYMENT_PAID, payment_id, after_s + 1)
            ordered(Kind.ORDER_PAID, after_s + chance.uniform(1.1, 40), payment_id=payment_id)
        if state == "REFUNDED":
            payment(Kind.PAYMENT_PAID, payment_id, 130.5)
            ordered(Kind.REFUND_DUE, 130.6, payment_id=payment_id, amount=order.amount_due)
            payment(Kind.PAYMENT_REFUNDED, payment_id, 131)
        after_s += 2
    if order.state == "CANCELLED":
        ordered(Kind.ORDER_CANCELLED, 120, reason=order.reason)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def database_rows(orders: list[Order]) -> dict[str, list[Row]]:
    """The rows of the services after these orders, by table."""
    kept = [order for order in orders if order.state == "PAID"]
    taken: Counter[str] = Counter()
    for order in kept:
        taken.update({item.goods_id: item.quantity for item in order.items})
    users = sorted({order.user_id for order in orders})
    paid = {user: [order for order in kept if order.user_id == user] for user in users}
    spent = {user: sum(order.amount_due for order in mine) for user, mine in paid.items()}
    points = {user: sum(order.amount_due // 100 for order in mine) for user, mine in paid.items()}
    return {
        "goods.goods": [
            {"goods_id": each, "name": each, "picture": "", "price": 1, "delivered": DELIVERED,
             "stock": DELIVERED - taken[each]}
            for each in (f"goods-{number}" for number in range(12))
        ],
        "goods.stock_records": [
            {"order_id": order.order_id, "state": _taken(order), "items": _json(order)} for order in orders
        ],
        "coupons.coupons": [
            {"coupon_id": order.coupon[0], "user_id": order.user_id, "value": order.coupon[1],
             "used_by": order.order_id if order in kept else None}
            for order in orders if order.coupon
        ],
        "coupons.coupon_records": [
            {"order_id": order.order_id, "coupon_id": order.coupon[0], "state": _taken(order)}
            for order in orders if order.coupon
        ],
        "users.users": [
            {"user_id": user, "name": user, "opening_balance": OPENING_BALANCE, "spent": spent[user],
             "balance": OPENING_BALANCE - sum(order.balance_paid for order in paid[user]),
             "level": "GOLD" if spent[user] >= 2000_00 else "SILVER" if spent[user] >= 500_00 else "BRONZE"}
            for user in users
        ],
        "users.balance_records": [
            {"order_id": order.order_id, "user_id": order.user_id, "amount": order.balance_paid,
             "state": _taken(order)}
            for order in orders if order.balance_paid
        ],
        "users.spent_records": [
            {"order_id": order.order_id, "user_id": order.user_id, "amount": order.amount_due}
            for order in kept
        ],
        "orders.orders": [
            {**order.row, "items": _json(order), "state": order.state, "reason": order.reason,
             "payment_id": order.payments()[-1][0] if order in kept else None, "created_at": BEGIN}
            for order in orders
        ],
        "payments.payments": [
            {"payment_id": payment_id, "order_id": order.order_id, "user_id": order.user_id,
             "amount": order.amount_due, "state": state, "way": order.way, "created_at": BEGIN}
            for order in orders for payment_id, state in order.payments()
        ],
        "points.points": [{"user_id": user, "points": each} for user, each in points.items() if paid[user]],
        "points.point_records": [
            {"order_id": order.order_id, "user_id": order.user_id, "points": order.amount_due // 100}
            for order in kept
        ],
    }  # fmt: skip


def _taken(order: Order) -> str:
    return "TAKEN" if order.state == "PAID" else "RETURNED"


def _json(order: Order) -> str:
    return json.dumps([asdict(item) for item in order.items])
