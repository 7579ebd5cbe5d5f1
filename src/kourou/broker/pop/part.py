"""InFlightPart: the messages in flight, from the start of a broker to its stop.

A slave keeps no table: it has the records of its master, and reads them when it is started as a master.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart

if TYPE_CHECKING:
    from kourou.broker.pop.ack_processor import AckProcessor
    from kourou.broker.pop.in_flight import MessagesInFlight
    from kourou.broker.pop.pop_recovery import PopRecovery
    from kourou.broker.pop.revive_reader import ReviveReader
    from kourou.broker.pop.revive_service import ReviveService
    from kourou.broker.settings import LiveConfig
    from kourou.transport.request import Processor
    from kourou.transport.tasks import TaskOwner


class InFlightPart(BrokerPart):
    """Messages in flight of one broker. `has_timers`: without them nothing is popped, and nothing revived."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        in_flight: MessagesInFlight,
        recovery: PopRecovery,
        reader: ReviveReader,
        revive: ReviveService,
        acks: AckProcessor,
        has_timers: bool,
    ) -> None:
        self._config = config
        self.in_flight = in_flight
        self._recovery = recovery
        self._reader = reader
        self._revive = revive
        self._acks = acks
        self._has_timers = has_timers
        self._is_recovered = False

    def processors(self) -> Mapping[int, Processor]:
        return self._acks.processors()

    def recover(self) -> None:
        if self._has_timers and not self._config.current.is_slave:
            self._recovery.recover()
            self._is_recovered = True

    async def start(self, tasks: TaskOwner) -> None:
        if self._is_recovered:
            self._reader.start(tasks)
            self._revive.start(tasks)

    async def stop(self, timeout_ms: int) -> None:
        if self._is_recovered:
            self._reader.commit()
