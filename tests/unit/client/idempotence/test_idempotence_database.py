"""DbApiStore: key and work in one transaction, on the DB-API driver that Python brings."""

from __future__ import annotations

import sqlite3
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.client.idempotence.idempotence import idempotent
from kourou.client.idempotence.idempotence_database import DbApiStore
from kourou.client.idempotence.inbox_sql import Statement
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.handlers import handler_of
from kourou.errors import TransactionEndedError
from kourou.protocol.message import Message

ORDER = Message("Orders", b"{}", keys=["order-1"])


class Shop:
    """A database with the rows of a handler."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = DbApiStore(self.connect)
        self.store.create_tables()
        self.ask("CREATE TABLE charges (order_id TEXT)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=0.05)

    def ask(self, statement: str) -> list[Any]:
        connection = self.connect()
        with connection:
            rows = connection.execute(statement).fetchall()
        connection.close()
        return rows

    @property
    def charges(self) -> int:
        return int(self.ask("SELECT count(*) FROM charges")[0][0])

    @property
    def keys(self) -> list[str]:
        return [key for (key,) in self.ask("SELECT message_key FROM kourou_idempotence")]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def charging(
    shop: Shop, end: Callable[[], ConsumeResult | None]
) -> Callable[[Message], ConsumeResult | None]:
    @idempotent(store=shop.store, scope="billing")
    def charge(message: Message, connection: sqlite3.Connection) -> ConsumeResult | None:
        """Take the money."""
        connection.execute("INSERT INTO charges VALUES (?)", message.keys)
        return end()

    return charge


def failing() -> ConsumeResult | None:
    raise ValueError("no money")


def test_work_and_key_are_there_once(shop: Shop) -> None:
    charge = charging(shop, lambda: None)
    for _ in range(3):
        assert charge(ORDER) is None
    assert shop.charges == 1
    assert shop.keys == ["billing/Orders/order-1"]


def test_a_failure_undoes_both(shop: Shop) -> None:
    with pytest.raises(ValueError, match="no money"):
        charging(shop, failing)(ORDER)
    assert (shop.charges, shop.keys) == (0, [])
    charging(shop, lambda: None)(ORDER)
    assert shop.charges == 1


def test_later_undoes_both(shop: Shop) -> None:
    assert charging(shop, lambda: ConsumeResult.LATER)(ORDER) is ConsumeResult.LATER
    assert (shop.charges, shop.keys) == (0, [])
    assert charging(shop, lambda: ConsumeResult.SUCCESS)(ORDER) is ConsumeResult.SUCCESS
    assert shop.charges == 1


def test_a_crash_before_the_commit_leaves_neither(shop: Shop) -> None:
    connection = shop.connect()
    store = DbApiStore(lambda: connection)

    def crash(given: sqlite3.Connection) -> None:
        given.execute("INSERT INTO charges VALUES ('order-1')")
        given.close()  # as the end of the process does

    with pytest.raises(TransactionEndedError, match="closed database"):
        store.run_once("k", crash, lambda result: True)
    assert (shop.charges, shop.keys) == (0, [])


def test_two_deliveries_at_once_do_not_both_work(shop: Shop) -> None:
    def while_the_other_is_at_work() -> ConsumeResult | None:
        # The database keeps the second one out until the first has ended; it is delivered again.
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            charging(shop, failing)(ORDER)
        return None

    charging(shop, while_the_other_is_at_work)(ORDER)
    charging(shop, failing)(ORDER)
    assert shop.charges == 1


def test_the_handlers_own_integrity_error_is_its_own(shop: Shop) -> None:
    shop.ask("CREATE UNIQUE INDEX one_charge ON charges (order_id)")
    shop.ask("INSERT INTO charges VALUES ('order-1')")
    with pytest.raises(sqlite3.IntegrityError, match="charges.order_id"):
        charging(shop, lambda: None)(ORDER)
    assert shop.keys == []


def test_keys_that_differ_in_case_are_different(shop: Shop) -> None:
    charge = charging(shop, lambda: None)
    for key in ("a", "A", "ä", "a"):
        charge(Message("Orders", b"{}", keys=[key]))
    assert shop.charges == 3
    assert "billing/Orders/\\xe4" in shop.keys


def test_the_consumers_handler_takes_the_message_and_its_context(shop: Shop) -> None:
    charge = charging(shop, lambda: None)
    assert handler_of(charge).takes_context  # type: ignore[arg-type]
    assert (charge.__name__, charge.__doc__) == ("charge", "Take the money.")
    # As logs name it.
    assert handler_of(charge).name == "charging.<locals>.charge"  # type: ignore[arg-type]
    assert charge.__module__ == __name__


def test_async_handlers_are_refused(shop: Shop) -> None:
    async def charge(message: Message, connection: sqlite3.Connection) -> None: ...

    with pytest.raises(TypeError, match="charge is async, and DbApiStore blocks; .* use AsyncDbApiStore"):
        idempotent(store=shop.store)(charge)


def test_a_connection_that_commits_by_itself_is_refused(shop: Shop) -> None:
    store = DbApiStore(lambda: sqlite3.connect(shop.path, isolation_level=None))
    with pytest.raises(ValueError, match="is in autocommit mode"):
        store.run_once("k", lambda connection: None, lambda result: True)
    assert shop.keys == []


def test_old_keys_are_forgotten_when_asked(shop: Shop) -> None:
    now = 1_000.0
    store = DbApiStore(shop.connect, now=lambda: now)
    store.run_once("old", lambda connection: None, lambda result: True)
    now = 2_000.0
    store.run_once("new", lambda connection: None, lambda result: True)
    assert store.forget_older_than(500) == 1
    assert shop.keys == ["new"]


@pytest.mark.parametrize("paramstyle", ["qmark", "named"])
def test_parameter_styles_that_sqlite_knows(shop: Shop, paramstyle: str) -> None:
    store = DbApiStore(shop.connect, paramstyle=paramstyle)
    for _ in range(2):
        store.run_once("k", lambda connection: None, lambda result: True)
    assert shop.keys == ["k"]


@pytest.mark.parametrize(
    ("paramstyle", "text", "parameters"),
    [
        ("numeric", "a = :1 AND b = :2 OR a = :3", (1, 2, 1)),
        ("format", "a = %s AND b = %s OR a = %s", (1, 2, 1)),
        ("pyformat", "a = %(a)s AND b = %(b_0)s OR a = %(a)s", {"a": 1, "b_0": 2}),
    ],
)
def test_parameter_styles_of_other_drivers(paramstyle: str, text: str, parameters: object) -> None:
    statement = Statement("a = :a AND b = :b_0 OR a = :a", {"b_0": 2, "a": 1})
    assert statement.in_style(paramstyle) == (text, parameters)


class Pooled:
    """A connection in the wrapper of a pool, which hides the driver."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_driver_that_is_hidden_must_be_named(shop: Shop) -> None:
    store = DbApiStore(lambda: Pooled(shop.connect()))
    with pytest.raises(
        ValueError, match=r"parameter style of .*Pooled is not known; give the store paramstyle=..."
    ):
        store.run_once("k", lambda connection: None, lambda result: True)
    named = DbApiStore(lambda: Pooled(shop.connect()), paramstyle="qmark")
    named.run_once("k", lambda connection: None, lambda result: True)
    assert shop.keys == ["k"]


def test_a_driver_is_found_by_the_package_around_its_connection(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = types.ModuleType("vendor.driver")
    driver.paramstyle = "qmark"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vendor.driver", driver)
    connection_class = type("Connection", (Pooled,), {"__module__": "vendor.driver.connection"})
    store = DbApiStore(lambda: connection_class(shop.connect()))
    store.run_once("k", lambda connection: None, lambda result: True)
    assert shop.keys == ["k"]


def test_options_that_cannot_be_are_refused(shop: Shop) -> None:
    for name in ("a; DROP", "a..b", "a.", "1a", "a-b", "x" * 49, "", None):
        with pytest.raises(ValueError, match=f"table {name!r}: a name is at most 48 letters"):
            DbApiStore(shop.connect, table=name)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="done_seconds is 0; it must be above 0, or None to keep keys forever"
    ):
        DbApiStore(shop.connect, done_seconds=0)
    with pytest.raises(TypeError, match="connect must be a function that returns a connection, not str"):
        DbApiStore("shop.db")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="paramstyle 'qmarks' is not one of qmark, numeric"):
        DbApiStore(shop.connect, paramstyle="qmarks")
