"""log: HTTP and messages.

GET /log/{order_id}    every event of an order with the place of its message, oldest first
all topics             every event

The log stores the place of each message. So its consumer differs from those of the other services: it gets
the messages of a queue in order and in batches, and keeps its offsets in the transaction that stores the
events. No message is skipped or stored twice, and no key has to be kept for it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final

from kourou import AsyncPushConsumer, MessageExt, idempotent
from kourou.client import ConsumeHookContext, ConsumerHook
from webshop.events import Topic, decode
from webshop.journal import tables
from webshop.journal.tables import LoggedEvent
from webshop.kit.database import Connection
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.service import Service

_log = logging.getLogger(__name__)

service = Service("log", tables=tables.TABLES)

_GROUP: Final = "shop-log"
_BATCH: Final = 64
# So that batches are not of one message each: a transaction costs more than its rows.
_PULL_INTERVAL_MS: Final = 250
_STOP_MS: Final = 2_000


@service.app.get("/log/{order_id}")
async def show_log(order_id: str) -> list[dict[str, Any]]:
    """The life of an order."""
    async with service.database.transaction() as connection:
        return await tables.events_of(connection, order_id)


@service.background
async def consume() -> None:
    """Store all events."""
    store = service.database.inbox

    @idempotent(store=store, scope=_GROUP, key=None)
    async def store_events(messages: list[MessageExt], connection: Connection) -> None:
        events = [event for message in messages if (event := logged(message))]
        await tables.insert_events(connection, events)
        kill_point(KillPoint.LOG_HANDLED)

    consumer = AsyncPushConsumer(
        _GROUP,
        namesrv=service.settings.namesrv,
        consume_from="first",
        orderly=True,
        offsets=store,
        batch_size=_BATCH,
        pull_interval_ms=_PULL_INTERVAL_MS,
        # The lock of a killed consumer is its own, when it comes back under its name.
        instance_name=_GROUP,
        hooks=[_KillPoints()],
        stop_timeout_ms=_STOP_MS,
    )
    async with consumer:
        for topic in Topic:
            await consumer.subscribe(topic, store_events)
        await consumer.wait()


class _KillPoints(ConsumerHook):
    def before_consume(self, context: ConsumeHookContext) -> None:
        kill_point(KillPoint.LOG_RECEIVED)

    def after_consume(self, context: ConsumeHookContext) -> None:
        kill_point(KillPoint.LOG_BEFORE_ACK)


def logged(message: MessageExt) -> LoggedEvent | None:
    """The event of a message, and where the message is; None for a message that is none of the shop's."""
    try:
        event = decode(message.body)
        at = datetime.fromisoformat(event.at)
    except ValueError as error:
        # An orderly consumer would stay at this message for ever.
        _log.warning("skipped, not an event: %s of %s: %s", message.msg_id, message.topic, error)
        return None
    return LoggedEvent(
        event_id=event.event_id,
        order_id=event.order_id,
        kind=event.kind,
        topic=message.topic,
        broker=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        msg_id=message.msg_id,
        at=at,
        stored_at=datetime.fromtimestamp(message.store_timestamp / 1000, UTC),
        way=event.way,
        body=message.body,
    )
