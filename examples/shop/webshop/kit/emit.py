"""Emitter: a change in the database and its events in one step, whatever dies in between.

    async with emitter.unit() as unit:
        order = await tables.confirm(unit.connection, order_id)   # compare and set: None if it was not NEW
        if order:
            unit.emit(order.event(Kind.ORDER_CONFIRMED))

The block's statements are one transaction. Its events are delivered if, and only if, the transaction is
committed. An exception in the block rolls back, and nothing is emitted. The event's own `way` says how:

    outbox         INSERT INTO outbox ── COMMIT ··· the relay sends the row (relay.py)
    transaction    half message ── INSERT INTO sent_transactions ── COMMIT ── "deliver the half message"
                   the process dies in between: the broker sends a check to any process of this service, which
                   looks whether the row is there

The check does not guess how long a transaction may take. It inserts the same row itself, as NEVER: the
primary key makes it wait for a transaction that is still open, and a transaction that comes too late fails.
So the answer is final, without a deadline.

Delayed messages cannot be half messages; they are reminders, which do no harm if what they remind of never
happened: the transaction way sends them before the commit.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, LiteralString, TypeAlias

from kourou import (
    AsyncProducer,
    AsyncTransactionProducer,
    ConsumeResult,
    MessageExt,
    TransactionState,
    idempotent,
)
from kourou.client import Transaction
from webshop.errors import AwayError
from webshop.events import Event, decode, encode, message_of
from webshop.kit.database import AWAY, Connection, Database
from webshop.kit.kill_points import kill_point_of
from webshop.settings import Settings, Way

_log = logging.getLogger(__name__)

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    shard      int NOT NULL,
    order_id   text NOT NULL,
    event_id   text NOT NULL,
    kind       text NOT NULL,
    body       bytea NOT NULL,
    delay_ms   int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS outbox_by_shard ON outbox (shard, id);
CREATE TABLE IF NOT EXISTS outbox_shards (shard int PRIMARY KEY);
INSERT INTO outbox_shards SELECT generate_series(0, 15) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS sent_transactions (
    id         text PRIMARY KEY,
    state      text NOT NULL CHECK (state IN ('DONE', 'NEVER')),
    checks     int NOT NULL DEFAULT 0,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
"""In the schema of each service that emits. The rows of an order are in one shard of the outbox; one relay at
a time sends those of a shard, and so keeps their order."""
_SHARDS: Final = 16
CHANNEL: Final = "outbox"
"""Of the notifications that wake up the relay."""
_CHECK_LOCK_TIMEOUT: Final = "500ms"
# A repeated send is stored once; a silent broker gets the first repeat after a second.
_SEND_TIMEOUT_MS: Final = 4_000
_ATTEMPT_TIMEOUT_MS: Final = 1_000
_FORGET_INTERVAL_S: Final = 3_600


class Unit:
    """A transaction of the database, and the events that are true if it is committed."""

    def __init__(self, connection: Connection, message: MessageExt | None = None) -> None:
        self.connection = connection
        self.message = message
        """The message that is consumed; None in a route."""
        self.events: list[tuple[Event, int]] = []

    def emit(self, event: Event, *, delay_s: float = 0) -> None:
        """Have the event delivered if this unit is committed, after a delay if there is one."""
        self.events.append((event, round(delay_s * 1000)))


Handler: TypeAlias = Callable[[Event, Unit], Awaitable[None]]
"""Handles an event that was consumed. The inbox, its statements and its events are one unit."""


class Emitter:
    """Emits the events of one service."""

    def __init__(self, service: str, settings: Settings, database: Database) -> None:
        self._service = service
        self._settings = settings
        self._database = database
        self._clients = AsyncExitStack()
        self._halves: AsyncTransactionProducer | None = None
        self._reminders: AsyncProducer | None = None

    async def start(self) -> None:
        """Connect to the broker; from now on this process answers the checks of its service."""
        async with AsyncExitStack() as clients:
            halves = AsyncTransactionProducer(
                f"shop-{self._service}-transactions",
                namesrv=self._settings.namesrv,
                check=self._check,
                check_concurrency=4,
                idempotent=True,
                send_timeout_ms=_SEND_TIMEOUT_MS,
                attempt_timeout_ms=_ATTEMPT_TIMEOUT_MS,
            )
            reminders = AsyncProducer(
                f"shop-{self._service}",
                namesrv=self._settings.namesrv,
                idempotent=True,
                send_timeout_ms=_SEND_TIMEOUT_MS,
                attempt_timeout_ms=_ATTEMPT_TIMEOUT_MS,
            )
            self._halves = await clients.enter_async_context(halves)
            self._reminders = await clients.enter_async_context(reminders)
            self._clients = clients.pop_all()

    async def forget_old(self) -> None:
        """Delete rows of `sent_transactions` that no check needs any more. Not at the start: a service that
        was away for days first answers the checks of what it left, which come every few seconds."""
        while True:
            await asyncio.sleep(_FORGET_INTERVAL_S)
            async with self._database.transaction() as connection:
                await connection.execute("DELETE FROM sent_transactions WHERE at < now() - interval '1 day'")

    async def stop(self) -> None:
        """Wait for open units, and disconnect."""
        await self._clients.aclose()

    # -- units -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def unit(self) -> AsyncIterator[Unit]:
        """A unit of work, committed at the end of the block."""
        async with self._database.transaction() as connection:
            unit = Unit(connection)
            yield unit
            self._kill_point("IN_WORK", unit)
            halves = await self._write(unit)
            try:
                self._kill_point("BEFORE_COMMIT", unit)
                await connection.commit()
            except BaseException:
                await halves.leave_to_check()
                raise
            self._kill_point("COMMITTED", unit)
        await halves.deliver()
        self._kill_point("EMITTED", unit)

    async def consume(self, message: MessageExt, handler: Handler, group: str) -> None:
        """Handle a message in a unit whose transaction is that of the inbox; a repeat is skipped."""
        attempts: list[_Halves] = []
        units: list[Unit] = []

        @idempotent(store=self._database.inbox, scope=group)
        async def once(message: MessageExt, connection: Connection) -> ConsumeResult:
            unit = Unit(connection, message)
            event = decode(message.body)
            await handler(event, unit)
            attempts.append(await self._write(unit))
            units.append(unit)
            kill_point_of(self._service, "HANDLED", event.kind)
            return ConsumeResult.SUCCESS

        result = None
        try:
            result = await once(message)
        finally:
            # The inbox repeats a transaction whose connection was lost. Only the last attempt can have been
            # committed for sure; the check finds out about the others.
            for attempt in attempts[:-1] if result else attempts:
                await attempt.leave_to_check()
        if attempts and result:
            self._kill_point("CONSUMED", units[-1])
            await attempts[-1].deliver()

    async def _write(self, unit: Unit) -> _Halves:
        """The last statements of a unit: its events, before the commit."""
        halves = _Halves()
        try:
            rows = []
            for event, delay_ms in unit.events:
                if event.way is Way.OUTBOX:
                    rows.append(_row(event, delay_ms))
                elif delay_ms:
                    await self._remind(event, delay_ms)
                else:
                    await halves.store(self._producer(), event)
                    self._kill_point("HALF_STORED", unit)
            if rows:
                await _insert_outbox(unit.connection, rows)
                self._kill_point("OUTBOX_WRITTEN", unit)
            if halves.ids:
                await _insert_sent(unit.connection, halves.ids)
        except BaseException:
            await halves.leave_to_check()
            raise
        return halves

    def _kill_point(self, step: str, unit: Unit) -> None:
        if unit.events:
            kill_point_of(self._service, step, unit.events[0][0].kind)

    async def _remind(self, event: Event, delay_ms: int) -> None:
        assert self._reminders is not None, "start() was not called"
        await self._reminders.send(message_of(event, delay_ms=delay_ms), sharding_key=event.order_id)

    def _producer(self) -> AsyncTransactionProducer:
        assert self._halves is not None, "start() was not called"
        return self._halves

    # -- checks ----------------------------------------------------------------------------------

    async def _check(self, message: MessageExt) -> TransactionState:
        """The broker's check of a half message: was its unit committed?"""
        try:
            async with self._database.transaction() as connection:
                await connection.execute(f"SET LOCAL lock_timeout = '{_CHECK_LOCK_TIMEOUT}'")
                found = await connection.execute(
                    "INSERT INTO sent_transactions (id, state, checks) VALUES (%s, 'NEVER', 1) "
                    "ON CONFLICT (id) DO UPDATE SET checks = sent_transactions.checks + 1 RETURNING state",
                    [message.msg_id],
                )
                row = await found.fetchone()
        except AWAY as error:
            # The transaction is still open, or the database is away: the broker sends the check again.
            _log.info("check of %s: not known yet: %s", message.msg_id, error)
            return TransactionState.UNKNOWN
        assert row is not None
        _log.info("check of %s: %s", message.msg_id, row.state)
        return TransactionState.COMMIT if row.state == "DONE" else TransactionState.ROLLBACK


class _Halves:
    """The half messages of one unit."""

    def __init__(self) -> None:
        self._blocks = AsyncExitStack()
        self._open: list[Transaction] = []

    @property
    def ids(self) -> list[str]:
        return [each.msg_id for each in self._open]

    async def store(self, producer: AsyncTransactionProducer, event: Event) -> None:
        block = producer.transaction(message_of(event), sharding_key=event.order_id)
        self._open.append(await self._blocks.enter_async_context(block))

    async def deliver(self) -> None:
        """The unit is committed. If the broker is away now, its check finds that later."""
        await self._blocks.aclose()

    async def leave_to_check(self) -> None:
        """Whether the unit was committed is not known, or it was not."""
        for each in self._open:
            each.unknown()
        await self._blocks.aclose()


def _row(event: Event, delay_ms: int) -> tuple[int, str, str, str, bytes, int]:
    shard = zlib.crc32(event.order_id.encode()) // 2 % _SHARDS
    return (shard, event.order_id, event.event_id, event.kind, encode(event), delay_ms)


async def _insert_outbox(connection: Connection, rows: list[tuple[int, str, str, str, bytes, int]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    await connection.execute(
        "WITH new AS (INSERT INTO outbox (shard, order_id, event_id, kind, body, delay_ms) SELECT * FROM "
        "unnest(%s::int[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::int[]) RETURNING 1) "
        "SELECT pg_notify(%s, '')",
        [*columns, CHANNEL],
    )


async def _insert_sent(connection: Connection, ids: list[str]) -> None:
    inserted = await connection.execute(
        "INSERT INTO sent_transactions (id, state) SELECT unnest(%s::text[]), 'DONE' ON CONFLICT DO NOTHING",
        [ids],
    )
    if inserted.rowcount != len(ids):
        raise AwayError(
            "the broker's check came before the work was done, and has dropped its message; try again"
        )
