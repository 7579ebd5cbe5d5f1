"""The inbox: which errors are retried, what is refused, and offsets beside a consumer's own."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.client.idempotence import inbox
from kourou.client.idempotence.idempotence import idempotent
from kourou.client.idempotence.idempotence_database import AsyncDbApiStore, DbApiStore
from kourou.client.idempotence.idempotence_stores import MemoryStore
from kourou.client.idempotence.inbox_sql import is_transient
from kourou.client.push.consume_result import ConsumeContext
from kourou.client.push.consumer_offsets import DatabaseOffsets
from kourou.client.push.handlers import bound_handler
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.errors import ClientError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message

QUEUE = MessageQueue("Orders", "broker-a", 0)


def order(number: int) -> Message:
    return Message("Orders", b"{}", keys=[f"order-{number}"])


def named(
    name: str, *arguments: object, base: type[Exception] = Exception, **attributes: object
) -> Exception:
    """An error as a driver raises it."""
    error: Exception = type(name, (base,), {})(*arguments)
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (named("DeadlockDetected", sqlstate="40P01"), True),
        (named("SerializationFailure", pgcode="40001"), True),
        (named("AdminShutdown", sqlstate="57P01"), True),
        (named("LockNotAvailable", sqlstate="55P03"), True),
        (named("UniqueViolation", sqlstate="23505"), False),
        (named("DatabaseError", {"C": "40P01", "M": "deadlock detected"}), True),
        (named("DatabaseError", {"C": "42P01", "M": "no such table"}), False),
        (named("OperationalError", 1213, "Deadlock found"), True),
        (named("OperationalError", 2013, "Lost connection"), True),
        (named("OperationalError", 1045, "Access denied"), False),
        (named("InternalError", "1213 (40001): Deadlock", errno=1213, sqlstate="40001"), True),
        (named("DatabaseError", "1205 (HY000): Lock wait timeout", errno=1205, sqlstate="HY000"), True),
        (named("OperationalError", "server closed the connection unexpectedly", sqlstate=None), True),
        (named("InterfaceError", "network error"), True),
        (named("OperationalError", "database is locked", sqlite_errorcode=5), True),
        (named("OperationalError", "snapshot", sqlite_errorcode=517), True),
        (named("OperationalError", "no such table", sqlite_errorcode=1), False),
        (named("OperationalError", orig=named("OperationalError", 1213, "Deadlock")), True),
        (named("ProgrammingError", orig=named("UndefinedTable", sqlstate="42P01")), False),
        (ValueError("no money"), False),
        (ConnectionResetError(104, "Connection reset by peer"), True),
        (FileNotFoundError(2, "No such file or directory"), False),
    ],
    ids=str,
)
def test_which_errors_are_worth_another_attempt(error: Exception, expected: bool) -> None:
    assert is_transient(error) is expected


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> DbApiStore[sqlite3.Connection]:
    monkeypatch.setattr(inbox, "_PAUSES_S", (0.0, 0.0))
    made = DbApiStore(lambda: sqlite3.connect(path, timeout=0))
    made.create_tables()
    return made


class BrokenConnection(sqlite3.Connection):
    """One that is lost at a call, maybe after the call has had its effect."""

    failures: list[str] = []

    def commit(self) -> None:
        if self._is_lost("before commit"):
            raise named("OperationalError", "the connection is lost")
        super().commit()
        if self._is_lost("after commit"):
            raise named("OperationalError", "the connection is lost")

    def _is_lost(self, point: str) -> bool:
        return bool(self.failures) and self.failures[0] == point and bool(self.failures.pop(0))


@pytest.mark.parametrize("failures", [["before commit"], ["after commit"], ["before commit", "after commit"]])
def test_a_commit_whose_outcome_is_unknown(
    store: DbApiStore[sqlite3.Connection], path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    with contextlib.closing(sqlite3.connect(path)) as shop:
        shop.execute("CREATE TABLE charges (order_id TEXT)")
    monkeypatch.setattr(BrokenConnection, "failures", failures)
    broken = DbApiStore(lambda: sqlite3.connect(path, factory=BrokenConnection), paramstyle="qmark")

    @idempotent(store=broken, scope="billing")
    def charge(message: Message, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO charges VALUES (?)", message.keys)

    charge(order(1))
    assert failures == []
    with contextlib.closing(sqlite3.connect(path)) as shop:
        assert shop.execute("SELECT count(*) FROM charges").fetchone() == (1,)


def test_attempts_end(path: Path, store: DbApiStore[sqlite3.Connection]) -> None:
    attempts: list[int] = []
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            store.run_once("k", lambda connection: attempts.append(1), lambda result: True)
    assert attempts == []


def test_without_tables_the_error_says_so(tmp_path: Path) -> None:
    store = DbApiStore(lambda: sqlite3.connect(tmp_path / "empty.db"))
    with pytest.raises(sqlite3.OperationalError, match="no such table: kourou_idempotence") as caught:
        store.run_once("k", lambda connection: None, lambda result: True)
    assert caught.value.__notes__ == [
        "Do the tables of kourou_idempotence exist? create_tables() of the store creates them."
    ]


def test_expired_keys_do_not_fail_a_message(
    store: DbApiStore[sqlite3.Connection], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def drop(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE kourou_idempotence RENAME COLUMN done_ms TO gone")

    store.run_once("k", drop, lambda result: True)
    assert "kourou_idempotence: cannot delete expired keys" in caplog.text


# -- handlers ------------------------------------------------------------------------------------


def test_a_batch_in_a_transaction_cannot_succeed_in_part(store: DbApiStore[sqlite3.Connection]) -> None:
    context = ConsumeContext(QUEUE)

    @idempotent(store=store, scope="billing")
    def charge(messages: list[Message], connection: sqlite3.Connection, context: ConsumeContext) -> None:
        context.ack_index = 0
        if len(messages) == 1:
            raise ValueError("no money")

    for messages, error in ((2, TypeError), (1, ValueError)):
        with pytest.raises(error):
            charge([order(number) for number in range(messages)], context)
        # Else the consumer would take messages as consumed whose work was rolled back.
        assert context.ack_index is None


def test_handlers_that_do_not_fit_are_refused(store: DbApiStore[sqlite3.Connection]) -> None:
    def no_connection(message: Message) -> None: ...
    def too_many(message: Message, connection: Any, context: Any, more: Any) -> None: ...
    def blocking(message: Message, connection: Any) -> None: ...

    decorate: Any = idempotent(store=store)
    for handler in (no_connection, too_many):
        with pytest.raises(TypeError, match="must take the message and the connection"):
            decorate(handler)

    async def connect() -> Any: ...

    decorate_async: Any = idempotent(store=AsyncDbApiStore(connect))
    with pytest.raises(TypeError, match="blocking is a sync function, and AsyncDbApiStore is for async ones"):
        decorate_async(blocking)
    with pytest.raises(TypeError, match="key=None needs a store that keeps offsets"):
        idempotent(store=MemoryStore(), key=None)  # type: ignore[call-overload]


async def test_offsets_and_handlers_belong_together(
    store: DbApiStore[sqlite3.Connection], path: Path
) -> None:
    @idempotent(store=store, key=None)
    def charge(message: Message, connection: sqlite3.Connection) -> None: ...

    def other(message: Message) -> None: ...

    for keywords in ({}, {"orderly": True, "model": "broadcasting"}):
        with pytest.raises(ValueError, match="offsets=store needs orderly=True and clustering"):
            AsyncPushConsumer("billing", offsets=store, **keywords)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offsets is a store of kourou.client .* not 'shop.db'"):
        AsyncPushConsumer("billing", orderly=True, offsets="shop.db")  # type: ignore[arg-type]
    consumer = AsyncPushConsumer("billing", orderly=True, offsets=store)
    with pytest.raises(TypeError, match="other does not store the offsets of this consumer"):
        await consumer.subscribe("Orders", other)  # type: ignore[arg-type]
    elsewhere: Any = idempotent(store=DbApiStore(lambda: sqlite3.connect(path)))
    with pytest.raises(TypeError, match="does not store the offsets of this consumer"):
        await consumer.subscribe("Orders", elsewhere(lambda message, connection: None))
    await consumer.subscribe("Orders", charge)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match="charge has key=None: without keys, repeats are found by their offsets"
    ):
        await AsyncPushConsumer("billing", orderly=True).subscribe("Orders", charge)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has key=None"):
        charge(order(1))


# -- offsets of a consumer -----------------------------------------------------------------------


class Copy:
    """The broker's copy of the offsets."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}
        self.stored: dict[MessageQueue, int] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        return self.stored.get(queue)

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        self.offsets[queue] = consumer_offset

    def known(self, queue: MessageQueue) -> int | None:
        return self.offsets.get(queue)

    async def persist(self, queues: Iterator[MessageQueue]) -> None:
        self.stored |= {queue: self.offsets[queue] for queue in queues if queue in self.offsets}

    def forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)


def offsets_of(store: Any, copy: Copy) -> DatabaseOffsets:
    return DatabaseOffsets(store, copy, "billing")  # type: ignore[arg-type]


async def test_the_database_decides_and_the_broker_has_a_copy(store: DbApiStore[sqlite3.Connection]) -> None:
    copy = Copy()
    offsets = offsets_of(store, copy)
    copy.stored[QUEUE] = 3
    assert await offsets.read(QUEUE) == 3  # a group that moves to the database
    offsets.update(QUEUE, 5)
    await offsets.persist([QUEUE])
    assert (store.read_offset("billing", QUEUE), copy.stored[QUEUE]) == (5, 5)
    copy.stored[QUEUE] = 99
    assert await offsets.read(QUEUE) == 5


async def test_an_offset_that_others_have_passed_stays(store: DbApiStore[sqlite3.Connection]) -> None:
    offsets = offsets_of(store, Copy())
    store.store_offset("billing", QUEUE, 50)
    offsets.update(QUEUE, 7)
    await offsets.persist([QUEUE])
    assert await offsets.read(QUEUE) == 50
    offsets.reset(QUEUE, 7)
    await offsets.persist([QUEUE])
    assert await offsets.read(QUEUE) == 7


async def test_where_a_group_begins_is_stored_at_once(store: DbApiStore[sqlite3.Connection]) -> None:
    await offsets_of(store, Copy()).begin(QUEUE, 41)
    assert await offsets_of(store, Copy()).read(QUEUE) == 41


async def test_a_database_that_is_away(
    store: DbApiStore[sqlite3.Connection], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copy = Copy()
    offsets = offsets_of(store, copy)
    store.store_offset("billing", QUEUE, 50)
    offsets.reset(QUEUE, 7)

    def away() -> sqlite3.Connection:
        raise sqlite3.OperationalError("the database is away")

    with monkeypatch.context() as broken:
        broken.setattr(store, "_connect", away)
        await offsets.persist([QUEUE])
        assert "group billing: cannot store the offset of Orders/broker-a/0, retrying" in caplog.text
        with pytest.raises(ClientError, match="its offset cannot be read from the database: .* is away"):
            await offsets.read(QUEUE)
    # The reset is not lost.
    offsets.forget(QUEUE)
    assert await offsets.read(QUEUE) == 7


def test_a_bound_handler_stores_offsets_for_its_group(store: DbApiStore[sqlite3.Connection]) -> None:
    @idempotent(store=store, key=None)
    def charge(messages: list[Message], connection: sqlite3.Connection) -> None: ...

    class Delivered(Message):
        queue_offset = 8

    bound: Callable[..., Any] = bound_handler(charge, store, "billing")  # type: ignore[arg-type]
    assert bound_handler(charge, store, "billing") is bound  # type: ignore[arg-type]
    bound([Delivered("Orders", b"{}")], ConsumeContext(QUEUE))
    assert store.read_offset("billing", QUEUE) == 9
    assert store.read_offset("shipping", QUEUE) is None
