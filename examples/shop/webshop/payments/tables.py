"""The tables of payments. A state changes by compare and set: of parallel callbacks one changes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, LiteralString

from webshop.kit.database import Connection, Row
from webshop.kit.rows import change_row
from webshop.payments.domain import PaymentState

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS payments (
    payment_id  text PRIMARY KEY,
    order_id    text NOT NULL,
    user_id     text NOT NULL,
    amount      bigint NOT NULL CHECK (amount >= 0),
    state       text NOT NULL,
    way         text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    paid_at     timestamptz,
    refunded_at timestamptz
);
CREATE INDEX IF NOT EXISTS payments_of_an_order ON payments (order_id, created_at);
CREATE UNIQUE INDEX IF NOT EXISTS one_payment_of_an_order ON payments (order_id)
    WHERE state IN ('CREATED', 'PAID');
CREATE TABLE IF NOT EXISTS callbacks (
    payment_id  text NOT NULL,
    callback_id text NOT NULL,
    kind        text NOT NULL,
    received_at timestamptz NOT NULL,
    took_ms     double precision NOT NULL,
    is_first    boolean NOT NULL
);
CREATE INDEX IF NOT EXISTS callbacks_by_time ON callbacks (received_at);
"""

ONE: Final[LiteralString] = "SELECT * FROM payments WHERE payment_id = %s"
OF_ORDER: Final[LiteralString] = "SELECT * FROM payments WHERE order_id = %s ORDER BY created_at, payment_id"
INSERT_CALLBACK: Final[LiteralString] = "INSERT INTO callbacks VALUES (%s, %s, %s, %s, %s, %s)"
_TIMES: Final = {PaymentState.PAID: "paid_at", PaymentState.REFUNDED: "refunded_at"}


async def insert(connection: Connection, payment: dict[str, Any]) -> Row | None:
    """Store a payment; None if it is there, or its order has another one that is open or paid."""
    inserted = await connection.execute(
        "INSERT INTO payments (payment_id, order_id, user_id, amount, state, way, paid_at) "
        "VALUES (%(payment_id)s, %(order_id)s, %(user_id)s, %(amount)s, %(state)s, %(way)s, "
        "CASE WHEN %(state)s = 'PAID' THEN now() END) ON CONFLICT DO NOTHING RETURNING *",
        payment,
    )
    return await inserted.fetchone()


async def change(connection: Connection, payment_id: str, old: str, new: PaymentState) -> Row | None:
    """One state becomes another; None if the payment was not in it."""
    times = {_TIMES[new]: datetime.now(UTC)} if new in _TIMES else {}
    return await change_row(connection, "payments", {"payment_id": payment_id}, [old], state=new, **times)
