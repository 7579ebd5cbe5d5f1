"""DbApiStore: keys of @idempotent in a table of the database that the handler itself works on.

Key and work are one transaction: both are stored, or neither, whenever a crash happens. It works with any
DB-API 2 driver (PEP 249); the table's primary key serialises concurrent deliveries.

    CREATE TABLE kourou_idempotence (
        key_hash CHAR(64) PRIMARY KEY, message_key VARCHAR(255) NOT NULL, done_ms BIGINT NOT NULL)

The hash is the key: some databases compare text without case.
Not here: stores for handlers whose work is not in a database (idempotence_stores.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

_COLUMNS: Final = ("key_hash", "message_key", "done_ms")
_SHOWN_CHARACTERS: Final = 255
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# PEP 249's parameter styles: the marker of the column with a number and a name.
_MARKERS: Final[dict[str, Callable[[int, str], str]]] = {
    "qmark": lambda number, name: "?",
    "numeric": lambda number, name: f":{number}",
    "named": lambda number, name: f":{name}",
    "format": lambda number, name: "%s",
    "pyformat": lambda number, name: f"%({name})s",
}
_BY_NAME: Final = ("named", "pyformat")

R = TypeVar("R")
Parameters: TypeAlias = tuple[Any, ...] | dict[str, Any]


class Connection(Protocol):
    """A DB-API connection."""

    def cursor(self) -> Any:
        """A cursor, in the connection's transaction."""
        ...

    def commit(self) -> Any:
        """Commit the transaction."""
        ...

    def rollback(self) -> Any:
        """Roll back the transaction."""
        ...

    def close(self) -> Any:
        """Close the connection, or return it to its pool."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class DbApiStore(Generic[ConnectionT]):
    """Keys beside the handler's own rows. The handler gets the connection; the store commits.

    >>> import sqlite3, tempfile
    >>> from kourou import Message
    >>> from kourou.client.idempotence.idempotence import idempotent
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = DbApiStore(lambda: sqlite3.connect(f"{folder.name}/shop.db"))
    >>> store.create_table()
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

    `connect` is called for each message, and its connection closed afterwards, which returns a pooled one. It
    must not use autocommit. `paramstyle` is the driver's; it is detected if possible.
    """

    def __init__(
        self,
        connect: Callable[[], ConnectionT],
        *,
        table: str = "kourou_idempotence",
        paramstyle: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not _NAME.fullmatch(table):
            raise ValueError(
                f"table {table!r}: a name is letters, digits and _, maybe after a schema and a dot"
            )
        if paramstyle not in (None, *_MARKERS):
            raise ValueError(f"paramstyle {paramstyle!r} is not one of {', '.join(_MARKERS)}")
        self._connect = connect
        self._table = table
        self._paramstyle = paramstyle
        self._now = now

    def create_table(self) -> None:
        """Create the table unless it exists. Without the permission, have it created by the statement at the
        head of this module."""
        self._execute_alone(
            f"CREATE TABLE IF NOT EXISTS {self._table} (key_hash CHAR(64) PRIMARY KEY, "
            "message_key VARCHAR(255) NOT NULL, done_ms BIGINT NOT NULL)"
        )

    def forget_older_than(self, seconds: float) -> None:
        """Delete keys that were finished longer ago: choose more than the retention of messages."""
        # An integer needs no parameter, whose style differs between drivers.
        self._execute_alone(
            f"DELETE FROM {self._table} WHERE done_ms < {int((self._now() - seconds) * 1000)}"
        )

    def run_once(self, key: str, work: Callable[[ConnectionT], R], is_done: Callable[[R], bool]) -> R | None:
        """Call `work` with a connection unless `key` is there; commit both, or neither if it is not done."""
        connection = self._connect()
        try:
            if not self._insert(connection, key):
                connection.rollback()
                return None
            result = work(connection)
            if is_done(result):
                connection.commit()
            else:
                connection.rollback()
            return result
        except BaseException:
            # The first error is the cause: a broken connection cannot be rolled back either.
            with contextlib.suppress(Exception):
                connection.rollback()
            raise
        finally:
            connection.close()

    def _insert(self, connection: ConnectionT, key: str) -> bool:
        """Insert `key` in the transaction; False if it exists already."""
        paramstyle = self._paramstyle or _paramstyle_of(connection)
        _refuse_autocommit(connection)
        values = (_hash(key), _shown(key), int(self._now() * 1000))
        try:
            connection.cursor().execute(*insert_statement(self._table, paramstyle, values))
        except Exception as error:
            # Every driver has its own class of this name, and some raise others.
            if any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                return False
            if self._has(connection, key, paramstyle):
                return False
            error.add_note(f"Does the table {self._table} exist? DbApiStore.create_table() creates it.")
            raise
        return True

    def _has(self, connection: ConnectionT, key: str, paramstyle: str) -> bool:
        """Whether the key exists, after a failed statement; False if that query fails too."""
        marker = _MARKERS[paramstyle](1, _COLUMNS[0])
        parameters: Parameters = {_COLUMNS[0]: _hash(key)} if paramstyle in _BY_NAME else (_hash(key),)
        try:
            connection.rollback()
            cursor = connection.cursor()
            cursor.execute(f"SELECT 1 FROM {self._table} WHERE {_COLUMNS[0]} = {marker}", parameters)
            return cursor.fetchone() is not None
        except Exception:
            return False

    def _execute_alone(self, statement: str) -> None:
        connection = self._connect()
        try:
            connection.cursor().execute(statement)
            connection.commit()
        finally:
            connection.close()


def insert_statement(table: str, paramstyle: str, values: tuple[Any, ...]) -> tuple[str, Parameters]:
    """The statement that inserts a key, and its parameters, in a driver's style.

    >>> insert_statement("t", "pyformat", ("h", "k", 1))[0]
    'INSERT INTO t (key_hash, message_key, done_ms) VALUES (%(key_hash)s, %(message_key)s, %(done_ms)s)'
    """
    markers = ", ".join(_MARKERS[paramstyle](number, name) for number, name in enumerate(_COLUMNS, 1))
    statement = f"INSERT INTO {table} ({', '.join(_COLUMNS)}) VALUES ({markers})"
    by_name = dict(zip(_COLUMNS, values, strict=True))
    return statement, by_name if paramstyle in _BY_NAME else values


def _paramstyle_of(connection: object) -> str:
    """The parameter style of the driver's package: `sqlite3`, `psycopg2`, `mysql.connector` …"""
    module = type(connection).__module__
    while module:
        paramstyle = getattr(sys.modules.get(module), "paramstyle", None)
        if paramstyle in _MARKERS:
            return str(paramstyle)
        module = module.rpartition(".")[0]
    raise ValueError(
        f"the parameter style of {type(connection).__module__}.{type(connection).__qualname__} is not known; "
        f"give DbApiStore(paramstyle=...), one of {', '.join(_MARKERS)}"
    )


def _refuse_autocommit(connection: object) -> None:
    # sqlite3 without an isolation level, and the attribute that most other drivers have.
    is_alone = getattr(connection, "isolation_level", "") is None and hasattr(connection, "in_transaction")
    if is_alone or getattr(connection, "autocommit", None) is True:
        raise ValueError(
            "the connection is in autocommit mode, so key and work would not be one transaction; "
            "let connect() return a connection with autocommit off"
        )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _shown(key: str) -> str:
    return key.encode("ascii", "backslashreplace").decode()[:_SHOWN_CHARACTERS]
