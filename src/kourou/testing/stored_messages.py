"""The messages of a topic, read from brokers that run in this process."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from kourou.embed import Broker
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records

_AT_ONCE: Final = 1_000


def in_store_order(parts: Iterable[list[MessageExt]]) -> list[MessageExt]:
    """The messages of several brokers by store time; those of one broker keep their order."""
    return list(heapq.merge(*parts, key=lambda message: message.store_timestamp))


async def broker_messages(broker: Broker, topic: str) -> list[MessageExt]:
    """All messages of a topic at a broker, in the order in which it stored them. Called on its loop."""
    queue_ids = broker.services.store.queues.queue_ids(topic)
    found = [message for queue_id in queue_ids for message in await _queue_messages(broker, topic, queue_id)]
    return sorted(found, key=lambda message: message.phy_offset)


async def _queue_messages(broker: Broker, topic: str, queue_id: int) -> list[MessageExt]:
    services = broker.services
    queue = services.store.queues.get(topic, queue_id)
    messages: list[MessageExt] = []
    queue_offset = queue.min_queue_offset
    while queue_offset < queue.max_queue_offset:
        result = services.store.get_message(topic, queue_id, queue_offset, _AT_ONCE, wait=False)
        try:
            if not result.is_loaded:
                await services.disk.run(result.load)
            for buffer in result.buffers:
                messages += decode_records(bytes(buffer))
        finally:
            result.release()
        queue_offset = max(result.next_begin_offset, queue_offset + 1)
    for message in messages:
        message.broker_name = broker.config.broker_name or ""
        message.queue_max_offset = queue.max_queue_offset
    return messages
