"""The table of orders."""

from __future__ import annotations

from typing import Final, LiteralString

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS orders (
    order_id     text PRIMARY KEY,
    user_id      text NOT NULL,
    items        jsonb NOT NULL,
    goods_total  bigint NOT NULL,
    shipping     bigint NOT NULL,
    coupon_id    text,
    coupon_value bigint NOT NULL,
    balance_paid bigint NOT NULL,
    amount_due   bigint NOT NULL CHECK (amount_due >= 0),
    state        text NOT NULL CHECK (state IN ('NEW', 'CONFIRMED', 'PAID', 'CANCELLED')),
    reason       text,
    way          text NOT NULL,
    payment_id   text,
    created_at   timestamptz NOT NULL,
    confirmed_at timestamptz,
    paid_at      timestamptz,
    cancelled_at timestamptz,
    CHECK (goods_total + shipping = coupon_value + balance_paid + amount_due)
);
CREATE INDEX IF NOT EXISTS orders_by_user ON orders (user_id, created_at DESC);
"""

ONE: Final[LiteralString] = "SELECT * FROM orders WHERE order_id = %s"
NEWEST: Final[LiteralString] = (
    "SELECT * FROM orders WHERE (%s::text IS NULL OR user_id = %s) AND state <> 'NEW' "
    "ORDER BY created_at DESC, order_id LIMIT %s"
)
