"""Where the oldest message lies that waits for its time: until then its record is not read by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from kourou.broker.delay.timer_messages import TimerMessages
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
    if services.timers is not None:
        found += _waiting_timers(services, services.timers)
    return min(found, default=None)


def _waiting_timers(services: BrokerServices, timers: TimerMessages) -> Iterator[int]:
    """The oldest one on the wheel, and the next one to be entered: all of them, while it is rebuilt."""
    on_wheel = timers.oldest_phy_offset()
    if on_wheel is not None:
        yield on_wheel
    queue = services.store.queues.find(TIMER_TOPIC, 0)
    unit = None if queue is None else queue.unit(max(timers.queue_offset, queue.min_queue_offset))
    if unit is not None and unit.is_message:
        yield unit.phy_offset
