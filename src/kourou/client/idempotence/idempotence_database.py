"""DbApiStore: keys of @idempotent in a table of the database that the handler itself works on.

Key and work are one transaction: both are there, or neither, whatever crashes when. It takes any driver
that follows DB-API 2 (PEP 249); two deliveries at once are kept apart by the table's primary key.

    CREATE TABLE kourou_idempotence (
        key_hash CHAR(64) PRIMARY KEY, message_key VARCHAR(255) NOT NULL, done_ms BIGINT NOT NULL)

The hash is what counts: databases differ in whether `A` and `a` are the same text, and messages do not.
Not here: stores for handlers whose work is elsewhere (idempotence_stores.py).
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
# PEP 249's ways to write parameters: what stands for column number n, named so.
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
        """End the transaction and keep it."""
        ...

    def rollback(self) -> Any:
        """End the transaction and undo it."""
        ...

    def close(self) -> Any:
        """Close the connection, or give it back to its pool."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class DbApiStore(Generic[ConnectionT]):
    """Keys beside the handler's own rows. The handler gets the connection, and leaves commit to the store.

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

    `connect` is called for each message and its connection closed afterwards, which for a pool means given
    back. It must not commit by itself. `paramstyle` is the driver's; it is looked up where it can be.
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
        """Create the table unless it is there. Who lacks the rights has it created as the head of
        this module shows."""
        self._execute_alone(
            f"CREATE TABLE IF NOT EXISTS {self._table} (key_hash CHAR(64) PRIMARY KEY, "
            "message_key VARCHAR(255) NOT NULL, done_ms BIGINT NOT NULL)"
        )

    def forget_older_than(self, seconds: float) -> None:
        """Delete the keys of work that was done longer ago: more than any message is kept for."""
        # A number of our own making needs no parameter, and parameters differ between drivers.
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
            # The first error is the cause: a connection that broke cannot be rolled back either.
            with contextlib.suppress(Exception):
                connection.rollback()
            raise
        finally:
            connection.close()

    def _insert(self, connection: ConnectionT, key: str) -> bool:
        """Put `key` into the transaction; False where it is there already."""
        paramstyle = self._paramstyle or _paramstyle_of(connection)
        _refuse_autocommit(connection)
        values = (_hash(key), _shown(key), int(self._now() * 1000))
        try:
            connection.cursor().execute(*insert_statement(self._table, paramstyle, values))
        except Exception as error:
            # Every driver has a class of this name, and none shares it with another. Some raise another one.
            if any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                return False
            if self._has(connection, key, paramstyle):
                return False
            error.add_note(f"Is the table {self._table} there? DbApiStore.create_table() creates it.")
            raise
        return True

    def _has(self, connection: ConnectionT, key: str, paramstyle: str) -> bool:
        """Whether the key is there, after a statement that failed; False if that cannot be asked either."""
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
    """The statement that puts a key into the table, and its parameters, in a driver's style.

    >>> insert_statement("t", "pyformat", ("h", "k", 1))[0]
    'INSERT INTO t (key_hash, message_key, done_ms) VALUES (%(key_hash)s, %(message_key)s, %(done_ms)s)'
    """
    markers = ", ".join(_MARKERS[paramstyle](number, name) for number, name in enumerate(_COLUMNS, 1))
    statement = f"INSERT INTO {table} ({', '.join(_COLUMNS)}) VALUES ({markers})"
    by_name = dict(zip(_COLUMNS, values, strict=True))
    return statement, by_name if paramstyle in _BY_NAME else values


def _paramstyle_of(connection: object) -> str:
    """What the driver's own package says: `sqlite3`, `psycopg2`, `mysql.connector` …"""
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
            "the connection commits each statement by itself, so key and work would not be one transaction; "
            "let connect() return one with autocommit off"
        )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _shown(key: str) -> str:
    return key.encode("ascii", "backslashreplace").decode()[:_SHOWN_CHARACTERS]
