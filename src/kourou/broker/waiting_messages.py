"""Where the oldest message lies that waits for its time: until then its record is not read by anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


def waiting_phy_offset(services: BrokerServices) -> int | None:
    """The first byte of its record, of delay levels and timers; None when nothing waits."""
    queues = services.store.queues
    found = []
    for queue_id in queues.queue_ids(RMQ_SYS_SCHEDULE_TOPIC):
        queue = queues.get(RMQ_SYS_SCHEDULE_TOPIC, queue_id)
        next_offset = services.delay_offsets.table.get(queue_id + 1, 0)
        unit = queue.unit(max(next_offset, queue.min_queue_offset))
        if unit is not None and unit.is_message:
            found.append(unit.phy_offset)
    timer = None if services.timers is None else services.timers.oldest_phy_offset()
    if timer is not None:
        found.append(timer)
    return min(found, default=None)
