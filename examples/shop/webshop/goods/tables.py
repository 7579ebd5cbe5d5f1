"""The tables of goods, and the statements on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final, LiteralString

from psycopg.types.json import Jsonb

from webshop.events import Item
from webshop.kit.database import Connection
from webshop.kit.records import record_take, record_undo
from webshop.stock import check_stock, quantities

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS goods (
    goods_id  text PRIMARY KEY,
    name      text NOT NULL,
    picture   text NOT NULL,
    price     bigint NOT NULL CHECK (price > 0),
    delivered int NOT NULL,
    stock     int NOT NULL CHECK (stock >= 0)
);
CREATE TABLE IF NOT EXISTS stock_records (
    order_id text PRIMARY KEY,
    state    text NOT NULL CHECK (state IN ('TAKEN', 'RETURNED')),
    items    jsonb NOT NULL DEFAULT '[]',
    at       timestamptz NOT NULL DEFAULT now()
);
"""

_SELECT: Final[LiteralString] = "SELECT goods_id, name, picture, price, stock FROM goods"
LIST: Final[LiteralString] = f"{_SELECT} ORDER BY name"
SOME: Final[LiteralString] = f"{_SELECT} WHERE goods_id = ANY(%s) ORDER BY name"
ONE: Final[LiteralString] = f"{_SELECT} WHERE goods_id = %s"


async def take_stock(connection: Connection, order_id: str, items: Sequence[Item]) -> None:
    """Take an order's stock, once; RefusedError if it was cancelled, or there is not enough."""
    taken = Jsonb([asdict(item) for item in items])
    if not await record_take(connection, "stock_records", order_id, items=taken):
        return
    wanted = quantities(items)
    found = await connection.execute(
        "SELECT goods_id, stock FROM goods WHERE goods_id = ANY(%s) ORDER BY goods_id FOR NO KEY UPDATE",
        [list(wanted)],
    )
    check_stock(items, {row.goods_id: row.stock for row in await found.fetchall()})
    await _add(connection, {goods_id: -quantity for goods_id, quantity in wanted.items()})


async def return_stock(connection: Connection, order_id: str) -> None:
    """Give back what an order has taken, once."""
    if record := await record_undo(connection, "stock_records", order_id):
        await _add(connection, quantities(Item(**item) for item in record.items))


async def _add(connection: Connection, pieces: Mapping[str, int]) -> None:
    for goods_id, quantity in pieces.items():
        await connection.execute(
            "UPDATE goods SET stock = stock + %s WHERE goods_id = %s", [quantity, goods_id]
        )
