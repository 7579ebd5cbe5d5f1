"""The tables of points, and all of their SQL."""

from __future__ import annotations

from typing import Final, LiteralString

from webshop.kit.database import Connection
from webshop.kit.rows import insert_row

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS points (
    user_id text PRIMARY KEY,
    points bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS point_records (
    order_id text PRIMARY KEY,
    user_id text NOT NULL,
    points bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
"""


async def credit(connection: Connection, *, order_id: str, user_id: str, points: int) -> bool:
    """Credit an order's points, once: the record's primary key says whether they are new."""
    record = {"order_id": order_id, "user_id": user_id, "points": points}
    if not await insert_row(connection, "point_records", **record):
        return False
    await connection.execute(
        "INSERT INTO points (user_id, points) VALUES (%s, %s) "
        "ON CONFLICT (user_id) DO UPDATE SET points = points.points + excluded.points",
        (user_id, points),
    )
    return True


async def points_of_user(connection: Connection, user_id: str) -> int:
    """The points of a user; 0 for one without a paid order."""
    cursor = await connection.execute("SELECT points FROM points WHERE user_id = %s", (user_id,))
    row = await cursor.fetchone()
    return int(row[0]) if row else 0
