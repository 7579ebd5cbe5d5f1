"""One shop on every kind of store: a handler that writes rows, by each database and driver."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kourou import ConsumeContext, Message, MessageQueue, idempotent
from kourou.client import AsyncDbApiStore, AsyncSqlAlchemyStore, DbApiStore, SqlAlchemyStore
from kourou.client.push.handlers import bound_handler
from tests.needed import need_module

KINDS = {
    "sqlite": ("sqlite3", "core", "orm", "aiosqlite", "async core", "async orm"),
    "postgresql": ("pg8000", "psycopg", "core", "orm", "psycopg async", "async orm"),
    "mariadb": ("pymysql", "core", "orm"),
}
DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
# To prepare for TLS takes PyMySQL longer than all the rest.
CONNECT_ARGUMENTS: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": 20},
    "postgresql": {},
    "mariadb": {"ssl_disabled": True},
}
_numbers = itertools.count(1)
QUEUE = MessageQueue("Orders", "broker-a", 0)


@dataclass
class Place:
    """Where a database is."""

    database: str
    path: Path
    port: int = 0

    @property
    def is_postgresql(self) -> bool:
        return self.database == "postgresql"

    def connect(self) -> Any:
        """A blocking connection, by a driver that is not under test."""
        if self.database == "sqlite":
            return need_module("sqlite3").connect(self.path, timeout=20)
        if self.is_postgresql:
            return need_module("psycopg").connect(self.dsn)
        return need_module("pymysql").connect(
            host="127.0.0.1", port=self.port, user="root", database="shop", **CONNECT_ARGUMENTS["mariadb"]
        )

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=shop dbname=postgres"

    def url(self, *, is_async: bool) -> str:
        if self.database == "sqlite":
            return f"sqlite{'+aiosqlite' if is_async else ''}:///{self.path}"
        account = "shop@127.0.0.1" if self.is_postgresql else "root@127.0.0.1"
        name = "postgres" if self.is_postgresql else "shop"
        return f"{DIALECTS[self.database]}://{account}:{self.port}/{name}"

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            connection.commit()
        return rows


@dataclass
class Shop:
    """The table of a handler, and a store, by one driver."""

    place: Place
    kind: str
    name: str = field(default_factory=lambda: f"shop{next(_numbers)}")
    options: dict[str, Any] = field(default_factory=dict)
    engine_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._disposals: list[Callable[[], Any]] = []
        self.loop = asyncio.new_event_loop()
        self.store = self.make_store(table=f"{self.name}_keys", **self.options)
        self.run(self.store.create_tables())
        self.place.query(f"CREATE TABLE {self.name}_charges (order_id VARCHAR(50))")

    @property
    def is_async(self) -> bool:
        return "async" in self.kind or self.kind == "aiosqlite"

    def make_store(self, **options: Any) -> Any:
        """A store of this kind."""
        place = self.place
        if "core" in self.kind or "orm" in self.kind:
            return self._sqlalchemy_store(options)
        if self.kind == "pg8000":
            dbapi = need_module("pg8000.dbapi")
            return DbApiStore(
                lambda: dbapi.connect(user="shop", host="127.0.0.1", port=place.port, database="postgres"),
                **options,
            )
        if self.kind == "psycopg async":
            psycopg = need_module("psycopg")
            return AsyncDbApiStore(lambda: psycopg.AsyncConnection.connect(place.dsn), **options)
        if self.kind == "aiosqlite":
            aiosqlite = need_module("aiosqlite")
            return AsyncDbApiStore(lambda: aiosqlite.connect(place.path, timeout=20), **options)
        return DbApiStore(place.connect, **options)

    def _sqlalchemy_store(self, options: dict[str, Any]) -> Any:
        need_module("sqlalchemy")
        from sqlalchemy import create_engine
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
        from sqlalchemy.orm import sessionmaker

        arguments = CONNECT_ARGUMENTS[self.place.database]
        if self.is_async:
            async_engine = create_async_engine(self.place.url(is_async=True), connect_args=arguments)
            self._disposals.append(async_engine.dispose)
            connect = async_sessionmaker(async_engine) if "orm" in self.kind else async_engine.connect
            return AsyncSqlAlchemyStore(connect, **options)
        engine = create_engine(self.place.url(is_async=False), connect_args=arguments, **self.engine_options)
        self._disposals.append(engine.dispose)
        return SqlAlchemyStore(sessionmaker(engine) if "orm" in self.kind else engine.connect, **options)

    # -- the handler -----------------------------------------------------------------------------

    def handler(
        self, then: Callable[[Any], Any] = lambda connection: None, **options: Any
    ) -> Callable[..., Any]:
        """Charges for each message, or list of them, and calls `then` with the connection."""
        decorate: Any = idempotent(store=self.store, scope="billing", **options)

        def charge(message: Any, connection: Any) -> Any:
            for each in message if isinstance(message, list) else [message]:
                self.execute(connection, self.insert(each.keys[0]))
            return then(connection)

        async def charge_async(message: Any, connection: Any) -> Any:
            for each in message if isinstance(message, list) else [message]:
                await self.execute(connection, self.insert(each.keys[0]))
            result = then(connection)
            return await result if inspect.isawaitable(result) else result

        return decorate(charge_async if self.is_async else charge)  # type: ignore[no-any-return]

    def insert(self, order: str) -> str:
        return f"INSERT INTO {self.name}_charges VALUES ('{order}')"

    def execute(self, connection: Any, statement: str) -> Any:
        """Execute by the kind's own means; an awaitable if it is async."""
        if "core" in self.kind or "orm" in self.kind:
            from sqlalchemy import text

            return connection.execute(text(statement))
        return connection.execute(statement) if self.is_async else connection.cursor().execute(statement)

    def deliver(self, handler: Callable[..., Any], message: Any, first_offset: int | None = None) -> Any:
        """Call the handler as a consumer does; with an offset, as one that keeps its offsets in the store."""
        if first_offset is None:
            return self.run(handler(message))
        batch = message if isinstance(message, list) else [message]
        for number, each in enumerate(batch):
            each.queue_offset = first_offset + number
        bound: Any = bound_handler(handler, self.store, "billing")
        return self.run(bound(message, ConsumeContext(QUEUE)))

    def run(self, result: Any) -> Any:
        """Wait for an async result."""
        return self.loop.run_until_complete(result) if inspect.iscoroutine(result) else result

    @property
    def charged(self) -> list[str]:
        rows = self.place.query(f"SELECT order_id FROM {self.name}_charges ORDER BY order_id")
        return [order for (order,) in rows]

    @property
    def keys(self) -> int:
        return int(self.place.query(f"SELECT count(*) FROM {self.name}_keys")[0][0])

    def close(self) -> None:
        """Leave no connection open."""
        for dispose in self._disposals:
            self.run(dispose())
        self.loop.close()


class Order(Message):
    """A message that knows its place, as a delivered one does."""

    queue_offset: int = 0


def order(number: int) -> Order:
    return Order("Orders", b"{}", keys=[f"order-{number}"])


def orders(*numbers: int) -> list[Order]:
    return [order(number) for number in numbers]
