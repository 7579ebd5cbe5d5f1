"""Records: a deduction and its undoing, each once, in whatever order they come.

Stock, a coupon and balance are taken for an order, and given back if the order is cancelled. Both write the
order's one record, whose primary key serialises them:

    take     INSERT (order_id, TAKEN); TAKEN is there: done already; RETURNED is there: refused
    undo     INSERT (order_id, RETURNED), or TAKEN becomes RETURNED; RETURNED is there: done already

So a cancellation that overtakes its order leaves a mark, and the order takes nothing.

A table of records has the columns `order_id text PRIMARY KEY`, `state`, `at`, and columns of its own, which
are null or have defaults in a record that begins as RETURNED.
"""

from __future__ import annotations

from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from webshop.errors import Code, refuse_if
from webshop.kit.database import Connection, Row
from webshop.kit.rows import insert_row


async def record_take(connection: Connection, table: str, order_id: str, **columns: Any) -> bool:
    """Record that an order takes something; False if it has done so before. RefusedError if it was cancelled,
    or has taken something else. If the transaction is rolled back, it was not taken."""
    if await insert_row(connection, table, order_id=order_id, state="TAKEN", **columns):
        return True
    stored = sql.SQL("SELECT * FROM {} WHERE order_id = %s").format(sql.Identifier(table))
    record = await (await connection.execute(stored, [order_id])).fetchone()
    is_taken = record is not None and record.state == "TAKEN"
    cancelled = f"order {order_id} was cancelled, and takes nothing any more; place a new one"
    refuse_if(not is_taken, Code.ORDER_CANCELLED, cancelled)
    given = {name: value.obj if isinstance(value, Jsonb) else value for name, value in columns.items()}
    is_same = all(getattr(record, name) == value for name, value in given.items())
    other = f"order {order_id} has taken something else; a repeated request has to be the same"
    refuse_if(not is_same, Code.ORDER_DIFFERS, other)
    return False


async def record_undo(connection: Connection, table: str, order_id: str) -> Row | None:
    """Record that an order gives back what it has taken. The record says what that is: nothing, its columns'
    defaults, if the order has taken nothing yet; None if it was given back before."""
    undo = sql.SQL(
        "INSERT INTO {0} (order_id, state) VALUES (%s, 'RETURNED') "
        "ON CONFLICT (order_id) DO UPDATE SET state = 'RETURNED', at = now() WHERE {0}.state = 'TAKEN' "
        "RETURNING *"
    ).format(sql.Identifier(table))
    return await (await connection.execute(undo, [order_id])).fetchone()
