"""The table of the log: every event with the place of its message, and all of its SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, LiteralString

from psycopg.rows import dict_row

from webshop.kit.database import Connection

TABLES: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS events (
    event_id text PRIMARY KEY,
    order_id text NOT NULL,
    kind text NOT NULL,
    topic text NOT NULL,
    broker text NOT NULL,
    queue_id int NOT NULL,
    queue_offset bigint NOT NULL,
    msg_id text NOT NULL,
    at timestamptz NOT NULL,
    stored_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    way text NOT NULL,
    body jsonb NOT NULL,
    repeats int NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS events_of_an_order ON events (order_id);
CREATE INDEX IF NOT EXISTS events_by_time ON events (at);
"""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event and where its message is."""

    event_id: str
    order_id: str
    kind: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    msg_id: str
    at: datetime
    stored_at: datetime
    way: str
    body: bytes


async def insert_events(connection: Connection, events: Sequence[LoggedEvent]) -> None:
    """Store events. One that is there under another offset was sent twice, and is counted."""
    await connection.cursor().executemany(
        "INSERT INTO events (event_id, order_id, kind, topic, broker, queue_id, queue_offset, msg_id, "
        "at, stored_at, way, body) VALUES (%(event_id)s, %(order_id)s, %(kind)s, %(topic)s, %(broker)s, "
        "%(queue_id)s, %(queue_offset)s, %(msg_id)s, %(at)s, %(stored_at)s, %(way)s, %(body)s::jsonb) "
        "ON CONFLICT (event_id) DO UPDATE SET repeats = events.repeats + 1 "
        "WHERE (events.broker, events.queue_id, events.queue_offset) "
        "<> (excluded.broker, excluded.queue_id, excluded.queue_offset)",
        [asdict(event) | {"body": event.body.decode()} for event in events],
    )


async def events_of(connection: Connection, order_id: str) -> list[dict[str, Any]]:
    """The life of an order, oldest event first."""
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(
        "SELECT * FROM events WHERE order_id = %s ORDER BY at, stored_at, event_id", (order_id,)
    )
    return await cursor.fetchall()
