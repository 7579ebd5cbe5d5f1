"""What the simulated buyers do: most buy, some pay with coupons or their balance, and some make trouble.

The plan of an order follows from the seed and the number of the order alone. A process of buyers that was
killed repeats its orders with the same ids, which the shop recognises.
Not here: the requests themselves (buyer.py).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from webshop.money import shipping_of


class Intent(StrEnum):
    """What a buyer is up to with an order."""

    BUY = "BUY"
    COUPON = "COUPON"
    BALANCE = "BALANCE"
    COUPON_AND_BALANCE = "COUPON_AND_BALANCE"
    REPEAT_REQUESTS = "REPEAT_REQUESTS"
    """The answers are lost: every request is sent again, some at the same time."""
    NEVER_PAY = "NEVER_PAY"
    PAY_THEN_CANCEL = "PAY_THEN_CANCEL"
    """The payment arrives when the order may be cancelled already."""
    PAY_LATE = "PAY_LATE"
    """Pays when the time to pay is nearly over."""
    COUPON_TWICE = "COUPON_TWICE"
    """Two orders with the same coupon at the same time: one of them must fail."""
    WRONG_PRICE = "WRONG_PRICE"
    WRONG_TOTAL = "WRONG_TOTAL"
    TOO_MANY = "TOO_MANY"
    """More than there is in stock."""
    TOO_MUCH_BALANCE = "TOO_MUCH_BALANCE"


_WEIGHTS: Final = {
    Intent.BUY: 50,
    Intent.COUPON: 8,
    Intent.BALANCE: 8,
    Intent.COUPON_AND_BALANCE: 4,
    Intent.REPEAT_REQUESTS: 8,
    Intent.NEVER_PAY: 3,
    Intent.PAY_THEN_CANCEL: 4,
    Intent.PAY_LATE: 2,
    Intent.COUPON_TWICE: 3,
    Intent.WRONG_PRICE: 2,
    Intent.WRONG_TOTAL: 2,
    Intent.TOO_MANY: 3,
    Intent.TOO_MUCH_BALANCE: 3,
}
WITH_COUPON: Final = frozenset({Intent.COUPON, Intent.COUPON_AND_BALANCE, Intent.COUPON_TWICE})
WITH_BALANCE: Final = frozenset({Intent.BALANCE, Intent.COUPON_AND_BALANCE})


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """What a buyer does, as far as it does not depend on what the shop has."""

    seed: int
    number: int
    intent: Intent

    @property
    def order_id(self) -> str:
        """The id of the order."""
        return self.an_id("order")

    def an_id(self, what: str) -> str:
        """32 hex digits that nothing else of the plan has."""
        return hashlib.sha256(f"{self.seed}/{self.number}/{what}".encode()).hexdigest()[:32]

    def chance(self, what: str) -> random.Random:
        """Random numbers for one decision."""
        return random.Random(f"{self.seed}/{self.number}/{what}")


def planned_order(seed: int, number: int) -> PlannedOrder:
    """The order of this number."""
    chance = random.Random(f"{seed}/{number}/intent")
    [intent] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    return PlannedOrder(seed, number, intent)


def order_request(
    planned: PlannedOrder,
    *,
    goods: Sequence[dict[str, Any]],
    user: dict[str, Any],
    coupons: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """The body of POST /orders, from what the shop shows to this user; `coupons` are the unused ones."""
    chance = planned.chance("request")
    for_sale = [each for each in goods if each["stock"]] or list(goods)
    chosen = chance.sample(for_sale, k=min(len(for_sale), chance.choice([1, 1, 2, 3])))
    items = [
        {"goods_id": each["goods_id"], "quantity": chance.choice([1, 1, 1, 2, 3]), "price": each["price"]}
        for each in chosen
    ]
    if planned.intent is Intent.TOO_MANY:
        items[0]["quantity"] = chosen[0]["stock"] + 1
    if planned.intent is Intent.WRONG_PRICE:
        items[0]["price"] += 1
    goods_total = sum(item["price"] * item["quantity"] for item in items)
    shipping = shipping_of(goods_total)
    total = goods_total + shipping
    coupon = chance.choice(list(coupons)) if coupons and planned.intent in WITH_COUPON else None
    rest = max(0, total - (coupon["value"] if coupon else 0))
    balance = min(user["balance"], rest) if planned.intent in WITH_BALANCE else 0
    if planned.intent is Intent.TOO_MUCH_BALANCE:
        balance = user["balance"] + 1
    return {
        "order_id": planned.order_id,
        "user_id": user["user_id"],
        "items": items,
        "shipping": shipping,
        "total": total - 1 if planned.intent is Intent.WRONG_TOTAL else total,
        "coupon_id": coupon["coupon_id"] if coupon else None,
        "balance": balance,
    }
