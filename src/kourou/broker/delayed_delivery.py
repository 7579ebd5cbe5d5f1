"""DelayedDelivery: the delay levels and the timers of one broker, from its start to its stop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kourou.broker.delivered_records import find_delivered
from kourou.broker.schedule_service import ScheduleService

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_log = logging.getLogger(__name__)


class DelayedDelivery:
    """`recover`, then `start`; `save_at_stop` when no task runs any more."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._levels = ScheduleService(services)

    def recover(self) -> None:
        """Find out what was delivered before the broker was killed. Waits for the disk."""
        log = self._services.store.log
        noted = self._services.delay_offsets.noted_phy_offset
        begin = log.max_phy_offset if noted is None or not self._levels.is_pending else noted
        delivered = find_delivered(log, begin)
        self._levels.recover(delivered)

    def start(self) -> None:
        """Begin to deliver. A slave does not: its master's deliveries come with the log."""
        if self._services.config.broker_role != "SLAVE":
            self._levels.start()

    def save_at_stop(self) -> None:
        """Note how far everything is; waits for the disk."""
        self._levels.save_at_stop()
