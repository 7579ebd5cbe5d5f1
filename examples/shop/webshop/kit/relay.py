"""The relay: sends what services have put into their outboxes. `python -m webshop.kit.relay`

    claim some shards    SELECT … FOR UPDATE SKIP LOCKED: several relays share them
    read their rows      those whose transaction cannot be overtaken any more, in the order of their ids
    send                 an order's rows one after the other, by an idempotent producer
    delete, commit       the shards are free

If the relay dies between the broker's acknowledgement and the commit, the next one sends the rows again: at
least once, and the inbox of a consumer recognises the event_id.

Ids are drawn before the commit: a row with a smaller id can become visible after one with a greater id was
sent. So a row is read only when all transactions that began to write before its own have ended:
`xid < pg_snapshot_xmin(pg_current_snapshot())`. A transaction that stays open holds all rows back; that is
logged, with its age.

A commit wakes the relay up by NOTIFY. Rows that are there but may not be read yet are looked at again soon.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress
from typing import Final

import psycopg
import uvloop
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from psycopg import sql
from psycopg.rows import namedtuple_row

from kourou import AsyncProducer
from kourou.errors import KourouError, SendFailedError
from webshop.events import message_from
from webshop.kit.database import AWAY, Connection, Row
from webshop.kit.emit import CHANNEL
from webshop.kit.kill_points import KillPoint, kill_point, use_folder
from webshop.kit.service import HttpServer
from webshop.settings import Settings

_log = logging.getLogger(__name__)

_ROWS_AT_ONCE: Final = 200
_FIRST_PAUSE_S: Final = 0.005
_MAX_PAUSE_S: Final = 0.2
_IDLE_S: Final = 1.0
_AWAY_PAUSE_S: Final = 0.5
_OLD_S: Final = 5.0
_SESSION: Final = "-c statement_timeout=10s -c idle_in_transaction_session_timeout=60s"

_XMIN: Final = "pg_snapshot_xmin(pg_current_snapshot())"
# Nor behind a row of its shard that may not be read yet: xids are drawn at a transaction's first write, ids
# later, so a greater id can have a smaller xid.
_SAFE: Final = sql.SQL(
    f"o.xid < {_XMIN} AND NOT EXISTS "
    f"(SELECT 1 FROM {{outbox}} u WHERE u.shard = o.shard AND u.id < o.id AND u.xid >= {_XMIN})"
)
_SCHEMAS: Final = "SELECT schemaname FROM pg_tables WHERE tablename = 'outbox_shards' ORDER BY schemaname"
_WAITING: Final = sql.SQL(
    "(SELECT {schema} AS schema, extract(epoch FROM clock_timestamp() - created_at) AS age_s FROM {outbox} "
    "ORDER BY id LIMIT 1)"
)
_CLAIM: Final = sql.SQL(
    "SELECT shard FROM {shards} WHERE shard IN "
    "(SELECT shard FROM {outbox} o WHERE {safe} ORDER BY id LIMIT {limit}) FOR UPDATE SKIP LOCKED"
)
# Another statement, so that it sees what the last owner of the shards has deleted. A delay counts from the
# commit, however late the row is sent.
_READ: Final = sql.SQL(
    "SELECT id, order_id, event_id, kind, body, CASE WHEN delay_ms > 0 THEN greatest(1, delay_ms - "
    "extract(epoch FROM clock_timestamp() - created_at) * 1000)::int ELSE 0 END AS delay_ms FROM {outbox} o "
    "WHERE shard = ANY(%s) AND {safe} ORDER BY id LIMIT {limit}"
)
_DELETE: Final = sql.SQL("DELETE FROM {outbox} WHERE id = ANY(%s)")
_OLDEST_TRANSACTION: Final = (
    "SELECT pid, state, extract(epoch FROM clock_timestamp() - xact_start) AS age_s FROM pg_stat_activity "
    "WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1"
)


class Relay:
    """Sends the rows of all outboxes of a database."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wake = asyncio.Event()
        self._last_warning = 0.0
        self.is_ready = False
        """Whether it is connected to the database and the broker, or was."""

    async def run(self) -> None:
        """Send until cancelled; waits for a database or a broker that is away."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="listen")
            tasks.create_task(self._keep_sending(), name="send")

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(
            self._settings.database, autocommit=True, row_factory=namedtuple_row, options=_SESSION
        )

    async def _listen(self) -> None:
        while True:
            with suppress(*AWAY):  # the sender logs it
                async with await self._connect() as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self._wake.set()
                    async for _ in connection.notifies():
                        self._wake.set()
            await asyncio.sleep(_AWAY_PAUSE_S)

    async def _keep_sending(self) -> None:
        while True:
            try:
                await self._send_until_away()
            except (*AWAY, KourouError) as error:
                _log.warning("the relay waits for the database or the broker: %s", error)
                await asyncio.sleep(_AWAY_PAUSE_S)

    async def _send_until_away(self) -> None:
        producer = AsyncProducer(
            "shop-relay",
            namesrv=self._settings.namesrv,
            idempotent=True,
            send_timeout_ms=5_000,
            attempt_timeout_ms=1_000,
        )
        async with await self._connect() as connection, producer:
            _log.info("the relay is ready")
            self.is_ready = True
            schemas: list[str] = []
            look_at = 0.0
            pause_s = _FIRST_PAUSE_S
            while True:
                # Services that start now, or later, have outboxes too.
                if time.monotonic() >= look_at:
                    schemas = [row.schemaname for row in await _rows(connection, _SCHEMAS)]
                    look_at = time.monotonic() + _IDLE_S
                self._wake.clear()
                waiting = await self._waiting(connection, schemas)
                sent = [await send_shards(connection, producer, each.schema) for each in waiting]
                if any(sent):
                    pause_s = _FIRST_PAUSE_S
                elif waiting:  # for open transactions to end, or for another relay
                    await self._pause(pause_s)
                    pause_s = min(pause_s * 2, _MAX_PAUSE_S)
                else:
                    await self._pause(_IDLE_S)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _waiting(self, connection: Connection, schemas: list[str]) -> list[Row]:
        """The outboxes that are not empty, and for how long their oldest rows have been waiting."""
        if not schemas:
            return []
        outboxes = {each: sql.Identifier(each, "outbox") for each in schemas}
        queries = [_WAITING.format(schema=sql.Literal(each), outbox=outboxes[each]) for each in schemas]
        waiting = await _rows(connection, sql.SQL(" UNION ALL ").join(queries))
        for each in waiting:
            if each.age_s > _OLD_S and time.monotonic() - self._last_warning > _OLD_S:
                self._last_warning = time.monotonic()
                await _warn(connection, each)
        return waiting


async def send_shards(connection: Connection, producer: AsyncProducer, schema: str) -> int:
    """Send the rows of some shards that may be sent, and delete them; how many."""
    outbox, shards = sql.Identifier(schema, "outbox"), sql.Identifier(schema, "outbox_shards")
    limit, safe = sql.Literal(_ROWS_AT_ONCE), _SAFE.format(outbox=outbox)
    async with connection.transaction():
        claim = _CLAIM.format(outbox=outbox, shards=shards, safe=safe, limit=limit)
        claimed = [row.shard for row in await _rows(connection, claim)]
        if not claimed:
            return 0
        kill_point(KillPoint.RELAY_CLAIMED)
        read = _READ.format(outbox=outbox, safe=safe, limit=limit)
        sent, failure = await _send(producer, await _rows(connection, read, claimed))
        kill_point(KillPoint.RELAY_SENT)
        await connection.execute(_DELETE.format(outbox=outbox), [sent])
        kill_point(KillPoint.RELAY_DELETED)
    kill_point(KillPoint.RELAY_COMMITTED)
    if failure is not None:
        raise failure
    return len(sent)


async def _send(producer: AsyncProducer, rows: list[Row]) -> tuple[list[int], Exception | None]:
    """Send rows, those of an order one after the other; the ids of those that are stored, and an error."""
    orders: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        orders[row.order_id].append(row)
    sent: list[int] = []

    async def send_order(order: list[Row]) -> None:
        for row in order:
            message = message_from(row.kind, row.event_id, row.order_id, row.body, delay_ms=row.delay_ms)
            try:
                await producer.send(message, sharding_key=row.order_id)
            except SendFailedError as error:
                if not error.may_be_stored:
                    raise
                await producer.send_again(error)  # stored once, also if the first attempt was
            sent.append(row.id)

    ends = await asyncio.gather(*map(send_order, orders.values()), return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            return sent, end
    return sent, None


async def _rows(connection: Connection, query: sql.Composed | str, *values: object) -> list[Row]:
    return await (await connection.execute(query, values or None)).fetchall()


async def _warn(connection: Connection, waiting: Row) -> None:
    """Name what holds the rows back."""
    open_ones = await _rows(connection, _OLDEST_TRANSACTION)
    oldest = open_ones[0] if open_ones else None
    _log.warning(
        "rows of %s.outbox wait, the oldest for %.0f s; the oldest open transaction: %s",
        waiting.schema,
        waiting.age_s,
        f"process {oldest.pid}, {oldest.state}, {oldest.age_s:.0f} s" if oldest else "none",
    )


async def run_relay(settings: Settings) -> None:
    """Be a relay until SIGTERM or Ctrl-C."""
    use_folder(settings.kill_points)
    relay = Relay(settings)
    running = asyncio.create_task(relay.run(), name="relay")
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, running.cancel)
    if "relay" in settings.services:  # further relays have no address
        running.add_done_callback(lambda _: setattr(server, "should_exit", True))
        server = HttpServer(_health_of(relay), settings.address("relay"))
        await server.serve()
    with suppress(asyncio.CancelledError):
        await running


def _health_of(relay: Relay) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"service": "relay"}, 200 if relay.is_ready else 503)

    return app


if __name__ == "__main__":
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    uvloop.run(run_relay(Settings.load()))
