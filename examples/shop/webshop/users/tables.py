"""The tables of users, and the statements on them."""

from __future__ import annotations

from typing import Final, LiteralString

from webshop.kit.database import Connection
from webshop.kit.records import record_take, record_undo
from webshop.kit.rows import insert_row
from webshop.users import domain

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS users (
    user_id         text PRIMARY KEY,
    name            text NOT NULL,
    opening_balance bigint NOT NULL,
    balance         bigint NOT NULL CHECK (balance >= 0),
    spent           bigint NOT NULL DEFAULT 0,
    level           text NOT NULL DEFAULT 'BRONZE'
);
CREATE TABLE IF NOT EXISTS balance_records (
    order_id text PRIMARY KEY,
    user_id  text,
    amount   bigint NOT NULL DEFAULT 0,
    state    text NOT NULL CHECK (state IN ('TAKEN', 'RETURNED')),
    at       timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS spent_records (
    order_id text PRIMARY KEY,
    user_id  text NOT NULL,
    amount   bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);
"""

LIST: Final[LiteralString] = "SELECT user_id, name, balance, spent, level FROM users ORDER BY user_id"
ONE: Final[LiteralString] = "SELECT user_id, name, balance, spent, level FROM users WHERE user_id = %s"


async def take_balance(connection: Connection, order_id: str, user_id: str, amount: int) -> None:
    """Pay a part of an order by balance, once; RefusedError if it was cancelled, or there is not enough."""
    if not await record_take(connection, "balance_records", order_id, user_id=user_id, amount=amount):
        return
    found = await connection.execute(
        "SELECT balance FROM users WHERE user_id = %s FOR NO KEY UPDATE", [user_id]
    )
    user = await found.fetchone()
    domain.check_balance(user_id, amount, user.balance if user else None)
    await _add(connection, user_id, -amount)


async def return_balance(connection: Connection, order_id: str) -> None:
    """Pay back what an order has taken, once."""
    if record := await record_undo(connection, "balance_records", order_id):
        await _add(connection, record.user_id, record.amount)


async def _add(connection: Connection, user_id: str | None, amount: int) -> None:
    await connection.execute("UPDATE users SET balance = balance + %s WHERE user_id = %s", [amount, user_id])


async def add_spent(connection: Connection, order_id: str, user_id: str, amount: int) -> None:
    """Add what an order's payment was to what its user has spent, and set the level that gives."""
    if not await insert_row(connection, "spent_records", order_id=order_id, user_id=user_id, amount=amount):
        return  # it was added before
    updated = await connection.execute(
        "UPDATE users SET spent = spent + %s WHERE user_id = %s RETURNING spent", [amount, user_id]
    )
    if user := await updated.fetchone():
        await connection.execute(
            "UPDATE users SET level = %s WHERE user_id = %s", [domain.level_of(user.spent), user_id]
        )
