"""Database: a service's own schema in PostgreSQL, by a pool of connections, and the inbox of its consumers.

A connection is in a transaction from its first statement to commit or rollback. Rows are named tuples:
`row.stock`. A database that is away, restarted or overloaded raises one of `AWAY`; the pool reconnects by
itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool

from kourou.client import AsyncDbApiStore
from webshop.errors import Code, RefusedError

Row: TypeAlias = Any
"""A named tuple of the columns."""
Connection: TypeAlias = psycopg.AsyncConnection[Row]

AWAY: Final = (
    psycopg.OperationalError,  # no connection, server stopped, deadlock, a timeout, no room in the pool
    psycopg.InterfaceError,  # the connection was closed meanwhile
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""Errors after which the same transaction may succeed."""

# A process that is stopped in a transaction (SIGSTOP, a debugger) would hold its locks for ever, and hold
# back the relay, which does not overtake open transactions.
_SESSION: Final = (
    "-c statement_timeout=10s -c lock_timeout=5s -c idle_in_transaction_session_timeout=10s "
    "-c search_path={schema} -c timezone=UTC"
)
_POOL_SIZE: Final = 10
_WAIT_S: Final = 5.0


class _PooledConnection(psycopg.AsyncConnection[Row]):
    """The inbox closes a connection when its transaction is over: that gives it back to the pool. The pool's
    own `close_returns` leaves out connections that are broken, and would count them as in use for ever."""

    async def close(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is None:
            await super().close()
        else:
            await pool.putconn(self)


class Database:
    """The schema of one service."""

    def __init__(self, url: str, schema: str, *, pool_size: int = _POOL_SIZE) -> None:
        self.schema = schema
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            connection_class=_PooledConnection,
            kwargs={"row_factory": namedtuple_row, "options": _SESSION.format(schema=schema)},
            min_size=1,
            max_size=pool_size,
            timeout=_WAIT_S,
            reconnect_timeout=_WAIT_S,  # then the next request begins anew, without a long pause
            open=False,
            name=schema,
        )
        self.inbox: AsyncDbApiStore[Connection] = AsyncDbApiStore(self._pool.getconn, paramstyle="pyformat")

    async def open(self, *tables: LiteralString) -> None:
        """Connect, and create the schema and the tables that do not exist; one of AWAY if that fails. May be
        called again then."""
        if self._pool.closed:
            await self._pool.open()
        # Not `wait`: it closes the pool for good if it takes too long.
        async with self.transaction() as connection:
            # Several processes may start at once: CREATE … IF NOT EXISTS alone would fail in all but one.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [self.schema])
            await connection.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema))
            )
            for statements in tables:
                await connection.execute(statements)
        await self.inbox.create_tables()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection of the pool. The end of the block commits; an exception rolls back."""
        async with self._pool.connection() as connection:
            yield connection

    async def rows(self, query: LiteralString, *values: Any) -> list[Row]:
        """The rows of one query."""
        async with self._pool.connection() as connection:
            await connection.set_autocommit(True)  # one round trip instead of three
            try:
                return await (await connection.execute(query, values)).fetchall()
            finally:
                await connection.set_autocommit(False)

    async def row(self, query: LiteralString, *values: Any) -> Row | None:
        """The first row of one query."""
        found = await self.rows(query, *values)
        return found[0] if found else None

    async def found(self, query: LiteralString, key: str, code: Code, what: str) -> Row:
        """The row of an id; RefusedError (404) if there is none."""
        row = await self.row(query, key)
        if row is None:
            raise RefusedError(code, f"there is no {what} {key!r}; see the list of them", status=404)
        return row

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()
