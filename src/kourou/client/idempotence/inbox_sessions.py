"""Sessions: a connection as inbox.py uses it, of DB-API or SQLAlchemy, blocking or async.

A driver knows how to execute a statement on a connection; a session connects, calls the handler, and ends the
transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable
from typing import Any, Protocol

from kourou.client.idempotence.inbox import Rows
from kourou.client.idempotence.inbox_sql import (
    MARKERS,
    Statement,
    is_mysql_driver,
    paramstyle_of,
    refuse_autocommit,
)
from kourou.errors import ClientError

Work = Callable[[Any, list[int]], Any]


class Driver(Protocol):
    """A kind of connection."""

    def check(self, connection: Any) -> None:
        """ValueError for a connection whose statements are not one transaction."""

    def execute(self, connection: Any, statement: Statement) -> Rows:
        """Execute on a blocking connection."""

    async def execute_async(self, connection: Any, statement: Statement) -> Rows:
        """Execute on an async one."""

    def flush(self, connection: Any) -> Any:
        """Execute statements that the handler left to the commit; maybe an awaitable."""

    def is_mysql(self, connection: Any) -> bool:
        """Whether it is one to MySQL or MariaDB."""


class DbApiDriver:
    """DB-API 2 (PEP 249), and async drivers with the same methods."""

    def __init__(self, paramstyle: str | None) -> None:
        if paramstyle not in (None, *MARKERS):
            raise ValueError(f"paramstyle {paramstyle!r} is not one of {', '.join(MARKERS)}")
        self._paramstyle = paramstyle

    def check(self, connection: Any) -> None:
        refuse_autocommit(connection)

    def execute(self, connection: Any, statement: Statement) -> Rows:
        cursor = connection.cursor()
        cursor.execute(*self._arguments(connection, statement))
        found = Rows(cursor.rowcount, cursor.fetchall() if cursor.description else ())
        cursor.close()
        return found

    async def execute_async(self, connection: Any, statement: Statement) -> Rows:
        cursor = await awaited(connection.cursor())
        await awaited(cursor.execute(*self._arguments(connection, statement)))
        found = Rows(cursor.rowcount, await awaited(cursor.fetchall()) if cursor.description else ())
        await awaited(cursor.close())
        return found

    def flush(self, connection: Any) -> Any:
        """Nothing to do."""

    def is_mysql(self, connection: Any) -> bool:
        return is_mysql_driver(connection)

    def _arguments(self, connection: Any, statement: Statement) -> tuple[Any, ...]:
        if not statement.values:
            return (statement.text,)
        return statement.in_style(self._paramstyle or paramstyle_of(connection))


class SqlAlchemyDriver:
    """Connections and ORM sessions of SQLAlchemy 2."""

    def __init__(self) -> None:
        try:
            from sqlalchemy import text
        except ImportError:
            raise ClientError("this store needs SQLAlchemy: pip install 'sqlalchemy>=2'") from None
        self._text = text

    def check(self, connection: Any) -> None:
        if hasattr(connection, "sync_session"):
            return  # its connection cannot be had without an await
        inner = connection.connection() if hasattr(connection, "get_bind") else connection
        refuse_autocommit(getattr(inner, "sync_connection", inner).connection.dbapi_connection)

    def execute(self, connection: Any, statement: Statement) -> Rows:
        return self._rows(connection.execute(self._text(statement.text), statement.values))

    async def execute_async(self, connection: Any, statement: Statement) -> Rows:
        return self._rows(await connection.execute(self._text(statement.text), statement.values))

    def _rows(self, result: Any) -> Rows:
        return Rows(-1, result.fetchall()) if result.returns_rows else Rows(result.rowcount)

    def flush(self, connection: Any) -> Any:
        # Objects of an ORM session; a connection has nothing to flush.
        return connection.flush() if hasattr(connection, "flush") else None

    def is_mysql(self, connection: Any) -> bool:
        bound = connection.get_bind() if hasattr(connection, "get_bind") else connection
        return bound.dialect.name in ("mysql", "mariadb")


class BlockingSession:
    """A session whose calls block."""

    def __init__(self, connect: Callable[[], Any], driver: Driver, work: Work | None) -> None:
        self._connect = connect
        self._driver = driver
        self._work = work
        self._connection: Any = None

    def open(self) -> None:
        self._connection = self._connect()
        self._driver.check(self._connection)

    def execute(self, statement: Statement) -> Rows:
        return self._driver.execute(self._connection, statement)

    def work(self, fresh: list[int]) -> Any:
        assert self._work is not None
        result = self._work(self._connection, fresh)
        self._driver.flush(self._connection)
        return result

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    @property
    def is_mysql(self) -> bool:
        return self._driver.is_mysql(self._connection)

    def abort(self) -> None:
        """Roll back and close, whatever has happened."""
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self.rollback()
            with contextlib.suppress(Exception):
                self.close()


class AsyncSession:
    """A session whose calls are awaited."""

    def __init__(self, connect: Callable[[], Any], driver: Driver, work: Work | None) -> None:
        self._connect = connect
        self._driver = driver
        self._work = work
        self._connection: Any = None

    async def open(self) -> None:
        # An async_sessionmaker returns its session at once.
        self._connection = await awaited(self._connect())
        self._driver.check(self._connection)

    async def execute(self, statement: Statement) -> Rows:
        return await self._driver.execute_async(self._connection, statement)

    async def work(self, fresh: list[int]) -> Any:
        assert self._work is not None
        result = await self._work(self._connection, fresh)
        await awaited(self._driver.flush(self._connection))
        return result

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await awaited(connection.close())

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def is_mysql(self) -> bool:
        return self._driver.is_mysql(self._connection)

    async def abort(self) -> None:
        """Roll back and close, whatever has happened."""
        if self._connection is not None:
            with contextlib.suppress(Exception):
                await self.rollback()
            with contextlib.suppress(Exception):
                await self.close()


async def awaited(value: Any) -> Any:
    """The result of a method that is async in some drivers only."""
    return await value if inspect.isawaitable(value) else value
