"""The tables of coupons, and the statements on them."""

from __future__ import annotations

from typing import Final, LiteralString

from webshop.coupons import domain
from webshop.kit.database import Connection
from webshop.kit.records import record_take, record_undo

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS coupons (
    coupon_id text PRIMARY KEY,
    user_id   text NOT NULL,
    value     bigint NOT NULL CHECK (value > 0),
    used_by   text
);
CREATE INDEX IF NOT EXISTS coupons_by_user ON coupons (user_id);
CREATE TABLE IF NOT EXISTS coupon_records (
    order_id  text PRIMARY KEY,
    coupon_id text,
    state     text NOT NULL CHECK (state IN ('TAKEN', 'RETURNED')),
    at        timestamptz NOT NULL DEFAULT now()
);
"""

OF_USER: Final[LiteralString] = (
    "SELECT coupon_id, user_id, value, used_by FROM coupons WHERE user_id = %s ORDER BY coupon_id"
)
ONE: Final[LiteralString] = "SELECT coupon_id, user_id, value, used_by FROM coupons WHERE coupon_id = %s"


async def take_coupon(connection: Connection, order_id: str, coupon_id: str, user_id: str) -> None:
    """Use a coupon for an order, once; RefusedError if it was cancelled, or the coupon is not usable."""
    if not await record_take(connection, "coupon_records", order_id, coupon_id=coupon_id):
        return
    found = await connection.execute(
        "SELECT user_id, used_by FROM coupons WHERE coupon_id = %s FOR NO KEY UPDATE", [coupon_id]
    )
    coupon = await found.fetchone()
    domain.check_usable(
        coupon_id,
        user_id,
        owner=coupon.user_id if coupon else None,
        used_by=coupon.used_by if coupon else None,
    )
    await connection.execute("UPDATE coupons SET used_by = %s WHERE coupon_id = %s", [order_id, coupon_id])


async def return_coupon(connection: Connection, order_id: str) -> None:
    """Make the coupon of an order unused, once."""
    if record := await record_undo(connection, "coupon_records", order_id):
        await connection.execute("UPDATE coupons SET used_by = NULL WHERE coupon_id = %s", [record.coupon_id])
