"""Rows: a table's rows as dataclasses, and the two statements by which services change them.

A row has an id that its creator chose: inserting it again changes nothing. A row with states changes by
compare and set, in one statement: of several requests that come together, one succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

import msgspec
from psycopg import sql
from psycopg.types.json import Jsonb

from webshop.kit.database import Connection, Row

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def record_of(kind: type[T], row: Row) -> T:
    """The dataclass of a row: enums, and items in JSON, become what the class says."""
    return msgspec.convert(row._asdict(), kind)


def columns_of(record: DataclassInstance) -> dict[str, Any]:
    """The columns of a dataclass; tuples and lists become JSON."""
    return {
        name: Jsonb(value) if isinstance(value, tuple | list) else value
        for name, value in asdict(record).items()
    }


async def find_record(connection: Connection, kind: type[T], query: LiteralString, key: str) -> T | None:
    """The dataclass of one row, as this transaction sees it."""
    row = await (await connection.execute(query, [key])).fetchone()
    return record_of(kind, row) if row else None


async def insert_row(connection: Connection, table: str, **columns: Any) -> bool:
    """Insert a row; False if there is one with its id."""
    insert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
    )
    return (await connection.execute(insert, list(columns.values()))).rowcount == 1


async def change_row(
    connection: Connection, table: str, key: dict[str, str], states: Iterable[str], **columns: Any
) -> Row | None:
    """Set columns of the row with this key, such as {"order_id": "7"}, if it is in one of these states; the
    changed row, or None if it is in none of them."""
    (name, value), *_ = key.items()
    update = sql.SQL("UPDATE {} SET {} WHERE {} = %s AND state = ANY(%s) RETURNING *").format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(each)) for each in columns),
        sql.Identifier(name),
    )
    values = [*columns.values(), value, list(states)]
    return await (await connection.execute(update, values)).fetchone()
