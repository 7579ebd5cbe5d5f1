"""Stores for @idempotent in the database that the handler itself works on.

Key and work are one transaction: both are stored, or neither, whenever a crash happens.

    DbApiStore             any DB-API 2 driver (PEP 249): sqlite3, psycopg, pg8000, PyMySQL …
    AsyncDbApiStore        the same for asyncio: psycopg's AsyncConnection, aiosqlite, aiomysql …
    SqlAlchemyStore        connections or ORM sessions of SQLAlchemy
    AsyncSqlAlchemyStore   its async ones

Not here: the statements and their order (inbox.py, inbox_sql.py), connections
(inbox_sessions.py), and stores for handlers whose work is not
in a database (idempotence_stores.py).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kourou.client.idempotence.idempotence_stores import DEFAULT_DONE_SECONDS
from kourou.client.idempotence.inbox import Inbox, Position, Steps
from kourou.client.idempotence.inbox_sessions import (
    AsyncSession,
    BlockingSession,
    DbApiDriver,
    Driver,
    SqlAlchemyDriver,
    awaited,
)
from kourou.protocol.bodies import MessageQueue

DEFAULT_TABLE: Final = "kourou_idempotence"

R = TypeVar("R")


class Connection(Protocol):
    """A connection or session that commits and rolls back: of DB-API or SQLAlchemy."""

    def commit(self) -> Any:
        """Commit the transaction."""

    def rollback(self) -> Any:
        """Roll back the transaction."""

    def close(self) -> Any:
        """Close the connection, or return it to its pool."""


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class _Store(Generic[ConnectionT]):
    """What all four have in common. `connect` is called for each transaction, and the connection closed
    afterwards, which returns a pooled one."""

    def __init__(
        self,
        connect: Callable[[], Any],
        driver: Driver,
        *,
        table: str,
        done_seconds: float | None,
        now: Callable[[], float],
    ) -> None:
        if not callable(connect):
            raise TypeError(
                f"connect must be a function that returns a connection, not {type(connect).__name__}: "
                "every transaction has its own"
            )
        self._connect = connect
        self._driver = driver
        self._inbox = Inbox(table, done_seconds, now)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(table={self._inbox.sql.table!r})"


class _BlockingStore(_Store[ConnectionT]):
    """The methods of stores whose connections block."""

    def create_tables(self) -> None:
        """Create the tables unless they exist. Without the permission, have them created by the statements at
        the head of inbox_sql.py, and insert the version, 1."""
        self._run(self._inbox.create_tables())

    def run_batch(
        self,
        keys: Sequence[str],
        work: Callable[[ConnectionT, list[int]], R],
        is_done: Callable[[R], bool],
        position: Position | None = None,
    ) -> R | None:
        """Call `work` with a connection and the indexes of those `keys` that are new, unless there are none.
        Commit its statements, the keys and the position together, or nothing if it is not done."""
        return self._run(self._inbox.consume(keys, position, is_done), work)  # type: ignore[no-any-return]

    def run_once(self, key: str, work: Callable[[ConnectionT], R], is_done: Callable[[R], bool]) -> R | None:
        """Call `work` with a connection unless `key` is there; commit both, or neither if it is not done."""
        return self.run_batch([key], lambda connection, _: work(connection), is_done)

    def forget_older_than(self, seconds: float) -> int:
        """Delete keys that were finished longer ago, and return their number. Stores do so by themselves
        after `done_seconds`."""
        return self._run(self._inbox.forget_older_than(seconds))  # type: ignore[no-any-return]

    def read_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset of a group in a queue that was stored with its handlers' transactions; None without."""
        return self._run(self._inbox.read_offset(group, queue))  # type: ignore[no-any-return]

    def store_offset(
        self, group: str, queue: MessageQueue, queue_offset: int, *, is_reset: bool = False
    ) -> None:
        """Store an offset without a handler. It moves forward only, unless `is_reset`."""
        self._run(self._inbox.store_offset(group, queue, queue_offset, is_reset=is_reset))

    def _run(self, steps: Steps, work: Callable[[ConnectionT, list[int]], Any] | None = None) -> Any:
        session = BlockingSession(self._connect, self._driver, work)
        try:
            step = next(steps)
            while True:
                try:
                    result = step(session)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value
        except BaseException:
            session.abort()
            raise


class _AsyncStore(_Store[ConnectionT]):
    """The same methods for asyncio."""

    async def create_tables(self) -> None:
        """Create the tables unless they exist."""
        await self._run(self._inbox.create_tables())

    async def run_batch(
        self,
        keys: Sequence[str],
        work: Callable[[ConnectionT, list[int]], Awaitable[R]],
        is_done: Callable[[R], bool],
        position: Position | None = None,
    ) -> R | None:
        """Await `work` with a connection and the indexes of those `keys` that are new, unless there are none.
        Commit its statements, the keys and the position together, or nothing if it is not done."""
        return await self._run(self._inbox.consume(keys, position, is_done), work)  # type: ignore[no-any-return]

    async def forget_older_than(self, seconds: float) -> int:
        """Delete keys that were finished longer ago, and return their number."""
        return await self._run(self._inbox.forget_older_than(seconds))  # type: ignore[no-any-return]

    async def read_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset of a group in a queue that was stored with its handlers' transactions; None without."""
        return await self._run(self._inbox.read_offset(group, queue))  # type: ignore[no-any-return]

    async def store_offset(
        self, group: str, queue: MessageQueue, queue_offset: int, *, is_reset: bool = False
    ) -> None:
        """Store an offset without a handler. It moves forward only, unless `is_reset`."""
        await self._run(self._inbox.store_offset(group, queue, queue_offset, is_reset=is_reset))

    async def _run(
        self, steps: Steps, work: Callable[[ConnectionT, list[int]], Awaitable[Any]] | None = None
    ) -> Any:
        session = AsyncSession(self._connect, self._driver, work)
        try:
            step = next(steps)
            while True:
                try:
                    result = await awaited(step(session))
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value
        except BaseException:
            await session.abort()
            raise


class DbApiStore(_BlockingStore[ConnectionT]):
    """Keys beside the handler's own rows. The handler gets the connection; the store commits.

    >>> import sqlite3, tempfile
    >>> from kourou import Message
    >>> from kourou.client.idempotence.idempotence import idempotent
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = DbApiStore(lambda: sqlite3.connect(f"{folder.name}/shop.db"))
    >>> store.create_tables()
    >>> shop = sqlite3.connect(f"{folder.name}/shop.db")
    >>> _ = shop.execute("CREATE TABLE charges (order_id TEXT)")
    >>> @idempotent(store=store, scope="billing")
    ... def charge(message, connection):
    ...     connection.execute("INSERT INTO charges VALUES (?)", message.keys)
    >>> for _ in range(3):
    ...     charge(Message("Orders", b"{}", keys=["order-1"]))
    >>> shop.execute("SELECT count(*) FROM charges").fetchone()
    (1,)
    >>> shop.close()
    >>> folder.cleanup()

    `connect` is called for each transaction, and its connection closed afterwards, which returns a pooled
    one. It must not use autocommit. `paramstyle` is the driver's; it is detected if possible. Keys are
    deleted after `done_seconds`, unless it is None: a repeat that comes later is handled again.
    """

    def __init__(
        self,
        connect: Callable[[], ConnectionT],
        *,
        table: str = DEFAULT_TABLE,
        paramstyle: str | None = None,
        done_seconds: float | None = DEFAULT_DONE_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connect, DbApiDriver(paramstyle), table=table, done_seconds=done_seconds, now=now)


class AsyncDbApiStore(_AsyncStore[ConnectionT]):
    """A DbApiStore for async handlers and drivers: `connect` returns an awaitable of a connection.

    store = AsyncDbApiStore(lambda: psycopg.AsyncConnection.connect("dbname=shop"))
    await store.create_tables()

    @idempotent(store=store, scope="billing")
    async def charge(message: MessageExt, connection: psycopg.AsyncConnection) -> None:
        await connection.execute("INSERT INTO charges VALUES (%s)", [message.keys[0]])
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[ConnectionT]],
        *,
        table: str = DEFAULT_TABLE,
        paramstyle: str | None = None,
        done_seconds: float | None = DEFAULT_DONE_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connect, DbApiDriver(paramstyle), table=table, done_seconds=done_seconds, now=now)


class SqlAlchemyStore(_BlockingStore[ConnectionT]):
    """Keys by SQLAlchemy 2. `connect` is `engine.connect`, or a `sessionmaker` if handlers get ORM sessions.

    store = SqlAlchemyStore(sessionmaker(create_engine("postgresql+psycopg://shop@localhost/shop")))

    @idempotent(store=store, scope="billing")
    def charge(message: MessageExt, session: Session) -> None:
        session.add(Charge(order_id=message.keys[0]))
    """

    def __init__(
        self,
        connect: Callable[[], ConnectionT],
        *,
        table: str = DEFAULT_TABLE,
        done_seconds: float | None = DEFAULT_DONE_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connect, SqlAlchemyDriver(), table=table, done_seconds=done_seconds, now=now)


class AsyncSqlAlchemyStore(_AsyncStore[ConnectionT]):
    """The same for async handlers: `connect` is `async_engine.connect`, or an `async_sessionmaker`."""

    def __init__(
        self,
        connect: Callable[[], ConnectionT],
        *,
        table: str = DEFAULT_TABLE,
        done_seconds: float | None = DEFAULT_DONE_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connect, SqlAlchemyDriver(), table=table, done_seconds=done_seconds, now=now)
