"""Events: the facts that services publish, and their JSON.

    shop-orders     OrderEvent     ORDER_CREATED ORDER_CONFIRMED ORDER_PAID ORDER_CANCELLED REFUND_DUE
    shop-timeouts   PaymentDue     PAYMENT_DUE, delivered after `pay_within_s`
    shop-payments   PaymentEvent   PAYMENT_CREATED PAYMENT_PAID PAYMENT_DECLINED PAYMENT_REFUNDED

A message: body = the event, tag = kind, keys = [event_id, order_id], sharding key = order_id, so that the
events of an order are in one queue. A consumer recognises a repeat by the event_id, which stays the same
however often the event is sent.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from kourou import Message
from webshop.settings import Way


class Topic(StrEnum):
    """The topics of the shop."""

    ORDERS = "shop-orders"
    TIMEOUTS = "shop-timeouts"
    PAYMENTS = "shop-payments"


class Kind(StrEnum):
    """What happened; the tag of the message."""

    ORDER_CREATED = "ORDER_CREATED"
    ORDER_CONFIRMED = "ORDER_CONFIRMED"
    ORDER_PAID = "ORDER_PAID"
    ORDER_CANCELLED = "ORDER_CANCELLED"
    REFUND_DUE = "REFUND_DUE"
    PAYMENT_DUE = "PAYMENT_DUE"
    PAYMENT_CREATED = "PAYMENT_CREATED"
    PAYMENT_PAID = "PAYMENT_PAID"
    PAYMENT_DECLINED = "PAYMENT_DECLINED"
    PAYMENT_REFUNDED = "PAYMENT_REFUNDED"

    @property
    def topic(self) -> Topic:
        """Where events of this kind go."""
        return _TOPICS[_TYPES[self]]


def new_id() -> str:
    """An id of an event, an order or a payment: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def time_text(time: datetime) -> str:
    """A time as events have it: UTC, with milliseconds.

    >>> time_text(datetime(2026, 11, 18, 9, 30, 0, 1999, tzinfo=UTC))
    '2026-11-18T09:30:00.001Z'
    """
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now_text() -> str:
    """The time now."""
    return time_text(datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Item:
    """Some pieces of one of the goods, at a price for each in cents."""

    goods_id: str
    quantity: int
    price: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events have."""

    kind: Kind
    order_id: str
    way: Way
    event_id: str = field(default_factory=new_id)
    at: str = field(default_factory=now_text)


@dataclass(frozen=True, kw_only=True)
class OrderFields:
    """What an order is for, and what is paid how, in cents: goods_total + shipping = coupon_value +
    balance_paid + amount_due."""

    order_id: str
    way: Way
    user_id: str
    items: tuple[Item, ...]
    goods_total: int
    shipping: int
    coupon_id: str | None
    coupon_value: int
    balance_paid: int
    amount_due: int


@dataclass(frozen=True, kw_only=True)
class OrderEvent(OrderFields, Event):
    """An order has a new state; it is in the event as a whole."""

    reason: str | None = None
    """Of ORDER_CANCELLED."""
    payment_id: str | None = None
    """Of ORDER_PAID, and of REFUND_DUE: the payment that came too late."""
    amount: int | None = None
    """Of REFUND_DUE: what is to be paid back."""

    @classmethod
    def of(cls, order: OrderFields, kind: Kind, **more: Any) -> OrderEvent:
        """What happened to an order; `more` is what is not part of the order."""
        return cls(
            kind=kind, **{each.name: getattr(order, each.name) for each in fields(OrderFields)}, **more
        )


@dataclass(frozen=True, kw_only=True)
class PaymentEvent(Event):
    """A payment has a new state."""

    payment_id: str
    user_id: str
    amount: int


@dataclass(frozen=True, kw_only=True)
class PaymentDue(Event):
    """The time to pay an order is over: a reminder, not a fact. The order may be paid, or not exist. `at` is
    when the order was created."""

    kind: Kind = Kind.PAYMENT_DUE

    def is_early(self, pay_within_s: float) -> bool:
        """Whether the order may still be committed: a transaction does not stay open for half a minute."""
        age_s = (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds()
        return age_s < pay_within_s + 30


_TYPES: Final[dict[Kind, type[Event]]] = {
    Kind.ORDER_CREATED: OrderEvent,
    Kind.ORDER_CONFIRMED: OrderEvent,
    Kind.ORDER_PAID: OrderEvent,
    Kind.ORDER_CANCELLED: OrderEvent,
    Kind.REFUND_DUE: OrderEvent,
    Kind.PAYMENT_DUE: PaymentDue,
    Kind.PAYMENT_CREATED: PaymentEvent,
    Kind.PAYMENT_PAID: PaymentEvent,
    Kind.PAYMENT_DECLINED: PaymentEvent,
    Kind.PAYMENT_REFUNDED: PaymentEvent,
}
_TOPICS: Final[dict[type[Event], Topic]] = {
    OrderEvent: Topic.ORDERS,
    PaymentDue: Topic.TIMEOUTS,
    PaymentEvent: Topic.PAYMENTS,
}


class _Head(msgspec.Struct):
    kind: Kind


_encoder: Final = msgspec.json.Encoder()
_head: Final = msgspec.json.Decoder(_Head)
_decoders: Final[dict[type[Event], msgspec.json.Decoder[Event]]] = {
    each: msgspec.json.Decoder(each) for each in _TOPICS
}


def encode(event: Event) -> bytes:
    """The body of the event's message."""
    return _encoder.encode(event)


def decode(body: bytes) -> Event:
    """The event of a body; ValueError (msgspec's) if it is none.

    >>> due = PaymentDue(kind=Kind.PAYMENT_DUE, order_id="7", way=Way.OUTBOX)
    >>> decode(encode(due)) == due
    True
    """
    return _decoders[_TYPES[_head.decode(body).kind]].decode(body)


def message_of(event: Event, *, delay_ms: int = 0) -> Message:
    """The message that carries an event. Send it with `sharding_key=event.order_id`."""
    return message_from(event.kind, event.event_id, event.order_id, encode(event), delay_ms=delay_ms)


def message_from(kind: str, event_id: str, order_id: str, body: bytes, *, delay_ms: int = 0) -> Message:
    """The same from the columns of the outbox."""
    return Message(
        Kind(kind).topic.value,  # the text: errors and logs show it
        body,
        tags=Kind(kind).value,
        keys=[event_id, order_id],
        delay_time_ms=delay_ms,
    )
