"""DelayedDelivery: the delay levels and the timers as a part of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.delay import timer_processor
from kourou.broker.delay.delivered_records import find_delivered
from kourou.broker.delay.schedule_service import ScheduleService
from kourou.broker.delay.timer_messages import TimerMessages
from kourou.broker.delay.timer_service import TimerService
from kourou.broker.part import BrokerPart
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


class DelayedDelivery(BrokerPart):
    """Delivers messages when their time has come."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._levels = ScheduleService(services)
        self._timers: TimerService | None = None
        self._is_recovered = False

    def processors(self) -> Mapping[int, Processor]:
        return timer_processor.processors(self._services)

    def recover(self) -> None:
        """Load the timers, and find out what was delivered before the broker was killed. Waits for the
        disk."""
        services = self._services
        if services.config.timer_wheel_enable:
            self._load_timers()
        begin = self._begin()
        delivered = find_delivered(services.store.log, begin)
        self._levels.recover(delivered)
        if self._timers is not None:
            self._timers.recover(delivered, begin)
        self._is_recovered = True

    def _load_timers(self) -> None:
        services = self._services
        root, log, now_ms = services.store.config.root, services.store.log, services.now_ms()
        services.timers = TimerMessages(services.files, root, services.config, log, now_ms)
        self._timers = TimerService(services, services.timers)
        services.timers.load(now_ms, services.topics.table, has_messages=self._timers.is_pending)

    def _begin(self) -> int:
        """Where deliveries begin that are not noted. Without a note there is nothing to be found: Apache
        has worked on the store since, and its deliveries do not say what they were made from."""
        services = self._services
        notes = [services.delay_offsets.noted_phy_offset] if self._levels.is_pending else []
        if services.timers is not None and self._timers is not None and self._timers.is_pending:
            is_rebuilt = services.timers.is_rebuilt
            notes.append(self._timers.first_phy_offset() if is_rebuilt else services.timers.noted_phy_offset)
        return min((note for note in notes if note is not None), default=services.store.log.max_phy_offset)

    async def start(self, tasks: TaskOwner) -> None:
        """Begin to deliver. A slave does not: its master's deliveries come with the log."""
        if self._services.config.broker_role == "SLAVE":
            return
        self._levels.start()
        if self._timers is not None:
            self._timers.start()

    async def stop(self, timeout_ms: int) -> None:
        await self._services.disk.run(self._save)

    def _save(self) -> None:
        """Record how far everything is; nothing when the log is not durable, or was not recovered."""
        self._services.store.flush()
        is_durable = self._is_recovered and not self._services.store.appender.is_fenced
        if is_durable:
            self._levels.save_at_stop()
        if self._timers is not None:
            if is_durable:
                self._timers.save_at_stop()
            self._timers.close()
