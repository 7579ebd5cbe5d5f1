"""What the operator's pages read from the schemas of all services. Nothing here changes anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import dict_row

WINDOW_S: Final = 600
"""The comparison is about the last ten minutes."""

_STATES: Final = "SELECT state, count(*) FROM orders.orders GROUP BY state"

# The delay message of the time limit is stored when it is due, so it says nothing about either way.
_WAYS: Final = """
    WITH recent AS (
        SELECT way, extract(epoch FROM stored_at - at) * 1000 AS stored_ms, repeats
        FROM log.events
        WHERE kind <> 'PAYMENT_DUE' AND at > now() - %(window)s * interval '1 second'
    )
    SELECT way, count(*) AS events, sum(repeats)::bigint AS repeats,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY stored_ms) AS stored_p50_ms,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY stored_ms) AS stored_p99_ms
    FROM recent GROUP BY way
"""
_ORDERS: Final = """
    SELECT way, count(*) AS orders FROM orders.orders
    WHERE created_at > now() - %(window)s * interval '1 second' GROUP BY way
"""
_CALLBACKS: Final = """
    SELECT way, percentile_cont(0.5) WITHIN GROUP (ORDER BY took_ms) AS callback_p50_ms,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY took_ms) AS callback_p99_ms
    FROM payments.callbacks JOIN payments.payments USING (payment_id)
    WHERE is_first AND received_at > now() - %(window)s * interval '1 second' GROUP BY way
"""
_CHECK_BACKS: Final = """
    SELECT 'transaction' AS way, sum(checks)::bigint AS check_backs
    FROM (TABLE orders.sent_transactions UNION ALL TABLE payments.sent_transactions) AS sent
    WHERE at > now() - %(window)s * interval '1 second'
"""
_WAITING: Final = """
    SELECT 'outbox' AS way, count(*) AS waiting
    FROM (SELECT id FROM orders.outbox UNION ALL SELECT id FROM payments.outbox) AS rows_waiting
"""
_CONNECT_S: Final = 2
_READ_S: Final = 4.0


@asynccontextmanager
async def reading(database: str, *, within_s: float = _READ_S) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection for one read of a page. A new one costs milliseconds, and works as soon as a database that
    was away is back."""
    async with asyncio.timeout(within_s):
        connection = await AsyncConnection.connect(database, autocommit=True, connect_timeout=_CONNECT_S)
        async with connection:
            yield connection


async def orders_by_state(connection: AsyncConnection[Any]) -> dict[str, int]:
    """How many orders are in each state."""
    cursor = await connection.execute(_STATES)
    return dict(await cursor.fetchall())


async def compared_ways(connection: AsyncConnection[Any]) -> dict[str, dict[str, Any]]:
    """The measures of each way, by its name."""
    ways: dict[str, dict[str, Any]] = {"transaction": {}, "outbox": {}}
    async with connection.cursor(row_factory=dict_row) as cursor:
        for query in (_ORDERS, _WAYS, _CALLBACKS, _CHECK_BACKS, _WAITING):
            await cursor.execute(query, {"window": WINDOW_S})
            for row in await cursor.fetchall():
                ways[row.pop("way")].update(row)
    return ways
