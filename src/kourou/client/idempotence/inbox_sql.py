"""The SQL of an inbox: its tables, its statements, and what the errors of database drivers mean.

    CREATE TABLE kourou_idempotence (
        key_hash VARCHAR(64) PRIMARY KEY, message_key VARCHAR(255) NOT NULL, done_ms BIGINT NOT NULL)
    CREATE INDEX kourou_idempotence_done_ms ON kourou_idempotence (done_ms)
    CREATE TABLE kourou_idempotence_offsets (
        key_hash VARCHAR(64) PRIMARY KEY, consumer_group VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL,
        broker_name VARCHAR(255) NOT NULL, queue_id INTEGER NOT NULL, next_offset BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL)
    CREATE TABLE kourou_idempotence_schema (version INTEGER NOT NULL)

The hash is the key: some databases compare text without case. Every statement is one that PostgreSQL, MySQL,
MariaDB and SQLite understand alike; values are parameters, only the name of the table is part of the text.
Not here: the order of the statements (inbox.py).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kourou.protocol.bodies import MessageQueue

SCHEMA_VERSION: Final = 1
_SHOWN_CHARACTERS: Final = 255
_NAME: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)?([A-Za-z_][A-Za-z0-9_]*)")
# PostgreSQL cuts names after 63 characters; ours get endings such as `_offsets`.
_MAX_NAME_CHARACTERS: Final = 48
# SQLite once allowed 999 parameters in a statement; a row has three.
KEYS_PER_STATEMENT: Final = 300
SAVEPOINT: Final = "kourou_handler"

_PARAMETER: Final = re.compile(r":([a-z_0-9]+)")
# PEP 249's parameter styles: the marker of the parameter with a number and a name.
MARKERS: Final[dict[str, Callable[[int, str], str]]] = {
    "qmark": lambda number, name: "?",
    "numeric": lambda number, name: f":{number}",
    "named": lambda number, name: f":{name}",
    "format": lambda number, name: "%s",
    "pyformat": lambda number, name: f"%({name})s",
}
_BY_NAME: Final = ("named", "pyformat")

Parameters: TypeAlias = tuple[Any, ...] | dict[str, Any]


class Statement(NamedTuple):
    """A statement with parameters by name, as `:name`."""

    text: str
    values: dict[str, Any] = {}

    def in_style(self, paramstyle: str) -> tuple[str, Parameters]:
        """The same in a driver's style.

        >>> Statement("SELECT a FROM t WHERE b = :b AND c = :c", {"c": 1, "b": 2}).in_style("format")
        ('SELECT a FROM t WHERE b = %s AND c = %s', (2, 1))
        """
        names: list[str] = []

        def marker(match: re.Match[str]) -> str:
            names.append(match[1])
            return MARKERS[paramstyle](len(names), match[1])

        text = _PARAMETER.sub(marker, self.text)
        if paramstyle in _BY_NAME:
            return text, {name: self.values[name] for name in names}
        return text, tuple(self.values[name] for name in names)


class InboxSql:
    """The statements for one table and those beside it."""

    def __init__(self, table: str) -> None:
        found = _NAME.fullmatch(table) if isinstance(table, str) else None
        if found is None or len(found[1]) > _MAX_NAME_CHARACTERS:
            raise ValueError(
                f"table {table!r}: a name is at most {_MAX_NAME_CHARACTERS} letters, digits and _, "
                "maybe after a schema and a dot"
            )
        self.table = table
        self._index = f"{found[1]}_done_ms"
        self._offsets = f"{table}_offsets"
        self._schema = f"{table}_schema"

    # -- tables ----------------------------------------------------------------------------------

    def tables(self, *, is_mysql: bool) -> list[Statement]:
        """Create the tables that do not exist. MySQL may have engines without transactions."""
        ending = " ENGINE=InnoDB" if is_mysql else ""
        definitions = (
            f"{self.table} (key_hash VARCHAR(64) PRIMARY KEY, message_key VARCHAR(255) NOT NULL, "
            "done_ms BIGINT NOT NULL)",
            f"{self._offsets} (key_hash VARCHAR(64) PRIMARY KEY, consumer_group VARCHAR(255) NOT NULL, "
            "topic VARCHAR(255) NOT NULL, broker_name VARCHAR(255) NOT NULL, queue_id INTEGER NOT NULL, "
            "next_offset BIGINT NOT NULL, updated_ms BIGINT NOT NULL)",
            f"{self._schema} (version INTEGER NOT NULL)",
        )
        return [Statement(f"CREATE TABLE IF NOT EXISTS {each}{ending}") for each in definitions]

    def index(self) -> Statement:
        """Create the index by which old keys are found. MySQL has no IF NOT EXISTS here."""
        return Statement(f"CREATE INDEX {self._index} ON {self.table} (done_ms)")

    def version(self) -> Statement:
        return Statement(f"SELECT version FROM {self._schema}")

    def set_version(self) -> Statement:
        return Statement(
            f"INSERT INTO {self._schema} (version) VALUES (:version)", {"version": SCHEMA_VERSION}
        )

    # -- keys ------------------------------------------------------------------------------------

    def insert(self, keys: Sequence[str], done_ms: int) -> Iterator[Statement]:
        """Insert keys, in the order of their hashes, so that two batches cannot wait for each other."""
        for part in _parts(sorted((hash_of(key), _shown(key)) for key in keys)):
            rows = ", ".join(f"(:hash{number}, :key{number}, :done_ms)" for number in range(len(part)))
            values: dict[str, Any] = {"done_ms": done_ms}
            for number, (key_hash, shown) in enumerate(part):
                values |= {f"hash{number}": key_hash, f"key{number}": shown}
            yield Statement(
                f"INSERT INTO {self.table} (key_hash, message_key, done_ms) VALUES {rows}", values
            )

    def known(self, keys: Sequence[str]) -> Iterator[Statement]:
        """Select the hashes of those keys that exist."""
        for part in _parts(sorted(map(hash_of, keys))):
            names, values = _listed(part)
            yield Statement(f"SELECT key_hash FROM {self.table} WHERE key_hash IN ({names})", values)

    def old(self, before_ms: int, limit: int) -> Statement:
        """Select the hashes of the oldest keys."""
        return Statement(
            f"SELECT key_hash FROM {self.table} WHERE done_ms < :before_ms ORDER BY done_ms LIMIT {limit:d}",
            {"before_ms": before_ms},
        )

    def delete(self, hashes: Sequence[str], condition: str) -> Iterator[Statement]:
        """Delete keys, unless they were stored anew meanwhile; `condition` is one on `done_ms`, as `< 7`."""
        for part in _parts(sorted(hashes)):
            names, values = _listed(part)
            yield Statement(
                f"DELETE FROM {self.table} WHERE key_hash IN ({names}) AND done_ms {condition}", values
            )

    # -- offsets ---------------------------------------------------------------------------------

    def offset(self, key_hash: str) -> Statement:
        return Statement(
            f"SELECT next_offset FROM {self._offsets} WHERE key_hash = :key_hash", {"key_hash": key_hash}
        )

    def insert_offset(
        self, key_hash: str, group: str, queue: MessageQueue, next_offset: int, now_ms: int
    ) -> Statement:
        values = {
            "key_hash": key_hash,
            "consumer_group": group,
            "topic": queue.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "next_offset": next_offset,
            "updated_ms": now_ms,
        }
        markers = ", ".join(f":{name}" for name in values)
        return Statement(f"INSERT INTO {self._offsets} ({', '.join(values)}) VALUES ({markers})", values)

    def set_offset(self, key_hash: str, next_offset: int, now_ms: int, condition: str = "") -> Statement:
        """Set an offset if the present one meets the condition, such as `<= 7`."""
        return Statement(
            f"UPDATE {self._offsets} SET next_offset = :next_offset, updated_ms = :updated_ms "
            f"WHERE key_hash = :key_hash{condition and f' AND next_offset {condition}'}",
            {"key_hash": key_hash, "next_offset": next_offset, "updated_ms": now_ms},
        )


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), KEYS_PER_STATEMENT):
        yield items[start : start + KEYS_PER_STATEMENT]


def _listed(hashes: Sequence[str]) -> tuple[str, dict[str, Any]]:
    values = {f"hash{number}": each for number, each in enumerate(hashes)}
    return ", ".join(f":{name}" for name in values), values


def hash_of(key: str) -> str:
    """The primary key of a message key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def queue_hash(group: str, queue: MessageQueue) -> str:
    """The primary key of a group's offset in a queue."""
    return hash_of("\n".join((group, queue.topic, queue.broker_name, str(queue.queue_id))))


def _shown(key: str) -> str:
    return key.encode("ascii", "backslashreplace").decode()[:_SHOWN_CHARACTERS]


# -- drivers -------------------------------------------------------------------------------------

_MYSQL_DRIVERS: Final = frozenset({"MySQLdb", "aiomysql", "asyncmy", "mariadb", "mysql", "pymysql"})


def paramstyle_of(connection: object) -> str:
    """The parameter style of the driver's package: `sqlite3`, `psycopg`, `mysql.connector` …"""
    module = type(connection).__module__
    while module:
        paramstyle = getattr(sys.modules.get(module), "paramstyle", None)
        if paramstyle in MARKERS:
            return str(paramstyle)
        module = module.rpartition(".")[0]
    raise ValueError(
        f"the parameter style of {type(connection).__module__}.{type(connection).__qualname__} is not known; "
        f"give the store paramstyle=..., one of {', '.join(MARKERS)}"
    )


def is_mysql_driver(connection: object) -> bool:
    """Whether a connection is one to MySQL or MariaDB."""
    return type(connection).__module__.partition(".")[0] in _MYSQL_DRIVERS


def refuse_autocommit(connection: object) -> None:
    """ValueError for a connection that commits each statement by itself."""
    # sqlite3 without an isolation level, the attribute of most drivers, and the method of MySQL's.
    is_alone = getattr(connection, "isolation_level", "") is None and hasattr(connection, "in_transaction")
    autocommit = getattr(connection, "autocommit", None)
    if callable(autocommit) and hasattr(connection, "get_autocommit"):
        autocommit = bool(connection.get_autocommit())
    if is_alone or autocommit is True:
        raise ValueError(
            "the connection is in autocommit mode, so key and work would not be one transaction; "
            "let connect() return a connection with autocommit off"
        )


# SQLSTATE: a connection that failed, a transaction that was rolled back, a server that stops, a lock.
_TRANSIENT_STATES: Final = ("08", "40", "57P0", "55P03")
# MySQL: lock wait timeout, deadlock, a row that has changed since it was read (MariaDB's snapshot isolation);
# server shutdown, connection killed, gone, lost, closed for inactivity.
_TRANSIENT_NUMBERS: Final = frozenset({1205, 1213, 1020, 1053, 1927, 2006, 2013, 2055, 4031})
_SQLITE_BUSY_OR_LOCKED: Final = (5, 6)


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed on another attempt: after a deadlock, a serialization failure,
    a busy database or a lost connection. A commit whose outcome is not known is one of these: the next
    attempt finds the key."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy's errors wrap those of the driver
    if isinstance(error, ConnectionError):
        return True  # not every driver catches the errors of its socket
    sqlite_code = getattr(error, "sqlite_errorcode", None)
    if sqlite_code is not None:
        return (sqlite_code & 0xFF) in _SQLITE_BUSY_OR_LOCKED
    if state := _sqlstate(error):
        return state.startswith(_TRANSIENT_STATES) or _number(error) in _TRANSIENT_NUMBERS
    number = _number(error)
    if number:
        return number in _TRANSIENT_NUMBERS
    # Without a code it does not come from the server: the connection to it failed.
    return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)


def _sqlstate(error: BaseException) -> str:
    for name in ("sqlstate", "pgcode"):  # psycopg, psycopg2
        if isinstance(state := getattr(error, name, None), str):
            return state
    fields = error.args[0] if error.args else None
    return str(fields.get("C", "")) if isinstance(fields, dict) else ""  # pg8000


def _number(error: BaseException) -> int:
    number = getattr(error, "errno", None) or (error.args[0] if error.args else None)
    return number if isinstance(number, int) else 0
