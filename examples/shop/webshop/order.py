"""Order: as the service orders stores it and answers it, and other services read it.

    NEW ──► CONFIRMED ──► PAID
     └──────────┴───────► CANCELLED

NEW is invisible to the buyer: stored, but nothing is taken for it. CONFIRMED: stock, coupon and balance are
taken. An order is cancelled if one of them is refused, if it is not paid in time, or by its buyer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from webshop.events import Item, OrderFields, time_text


class State(StrEnum):
    """Of an order."""

    NEW = "NEW"
    CONFIRMED = "CONFIRMED"
    PAID = "PAID"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a buyer wants, with the amounts that the buyer has seen; `balance` is to be paid by balance."""

    order_id: str
    user_id: str
    items: tuple[Item, ...]
    shipping: int
    total: int
    coupon_id: str | None = None
    balance: int = 0


@dataclass(frozen=True, kw_only=True)
class Order(OrderFields):
    """A row of orders."""

    state: State
    created_at: datetime
    reason: str | None = None
    """Of a cancelled one: the code of a refusal, NOT_PAID, or what its buyer said."""
    payment_id: str | None = None
    confirmed_at: datetime | None = None
    paid_at: datetime | None = None
    cancelled_at: datetime | None = None

    def is_reminded(self, at: str) -> bool:
        """Whether a reminder from `at` is of this order, not of an earlier attempt that was rolled back."""
        return time_text(self.created_at) <= at
