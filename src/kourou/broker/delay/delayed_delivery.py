"""DelayedDelivery: the delay levels and the timers as a part of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.delay.deliveries import find_delivered
from kourou.broker.part import BrokerPart
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.delay.schedule_service import ScheduleService
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.delay.timer_processor import TimerProcessor
    from kourou.broker.delay.timer_service import TimerService
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.message_store import MessageStore


class DelayedDelivery(BrokerPart):
    """Delivers messages when their time has come. `timers` and `timer_service` are None where no message
    waits for a time of its own (`timerWheelEnable`)."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        store: MessageStore,
        log: CommitLog,
        disk: DiskThreads,
        delay_offsets: DelayOffsetManager,
        levels: ScheduleService,
        timers: TimerMessages | None,
        timer_service: TimerService | None,
        processor: TimerProcessor,
    ) -> None:
        self._config = config
        self._store = store
        self._log = log
        self._disk = disk
        self._delay_offsets = delay_offsets
        self._levels = levels
        self._timers = timers
        self.timer_service = timer_service
        self._processor = processor
        self._is_recovered = False

    def processors(self) -> Mapping[int, Processor]:
        return self._processor.processors()

    def recover(self) -> None:
        """Load the timers, and find out what was delivered before the broker was killed. Waits for the
        disk. A slave leaves all of it to the day it is made master."""
        if self._config.current.is_slave:
            return
        if self.timer_service is not None:
            self.timer_service.load()
        begin = self._begin()
        delivered = find_delivered(self._log, begin)
        self._levels.recover(delivered)
        if self.timer_service is not None:
            self.timer_service.recover(delivered, begin)
        self._is_recovered = True

    def _begin(self) -> int:
        """Where deliveries begin that are not recorded. Without a record there is nothing to be found: Apache
        has worked on the store since, and its deliveries do not say what they were made from."""
        timers, service = self._timers, self.timer_service
        notes = [self._delay_offsets.noted_phy_offset] if self._levels.is_pending else []
        if timers is not None and service is not None and service.is_pending:
            notes.append(service.first_phy_offset() if timers.is_rebuilt else timers.noted_phy_offset)
        return min((note for note in notes if note is not None), default=self._log.max_phy_offset)

    async def start(self, tasks: TaskOwner) -> None:
        """Begin to deliver. A slave does not: its master's deliveries come with the log."""
        if self._config.current.is_slave:
            return
        self._levels.start(tasks)
        if self.timer_service is not None:
            self.timer_service.start(tasks)

    async def stop(self, timeout_ms: int) -> None:
        await self._disk.run(self._save)

    def _save(self) -> None:
        """Record how far everything is; nothing when the log is not durable, or was not recovered."""
        self._store.flush()
        is_durable = self._is_recovered and not self._store.is_fenced
        if is_durable:
            self._levels.save_at_stop()
        if self.timer_service is not None:
            if is_durable:
                self.timer_service.save_at_stop()
            self.timer_service.close()
