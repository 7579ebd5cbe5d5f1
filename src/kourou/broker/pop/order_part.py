"""OrderPart: orderly POP from the start of a broker to its stop.

A slave serves no pops. It reads the journal, which its log has from the master, each time it copies the
master's other tables.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kourou.broker.part import BrokerPart
from kourou.errors import KourouError
from kourou.store.steps import run_steps

if TYPE_CHECKING:
    from kourou.broker.pop.order_journal import OrderJournal
    from kourou.broker.pop.orders import OrderService
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_CLEAN_S: Final = 60.0


class OrderPart(BrokerPart):
    """Orderly POP of one broker."""

    def __init__(
        self, *, config: LiveConfig, journal: OrderJournal, service: OrderService, disk: DiskThreads
    ) -> None:
        self._config = config
        self._journal = journal
        self.service = service
        self._disk = disk

    def recover(self) -> None:
        if self._config.current.is_slave:
            return
        table = self._journal.table
        lacks_place = table.place is None
        run_steps(self._journal.read_steps())
        if lacks_place:  # a kill would leave a file that does not count what is put from now on
            table.persist()

    async def start(self, tasks: TaskOwner) -> None:
        if not self._config.current.is_slave:
            self.service.start()
            tasks.start(self._clean(), "clean-order-info")

    async def _clean(self) -> None:
        while True:
            # Not at once: a kill may have lost a new group, which its members make again.
            await asyncio.sleep(_CLEAN_S)
            self.service.clean()

    async def stop(self, timeout_ms: int) -> None:
        self.service.stop()

    async def follow(self, master_address: str) -> None:
        """On a slave: bring the table up to the end of the journal, before offsets are copied from the
        master, which may be newer."""
        try:
            await self._disk.run_steps(self._journal.read_steps())
        except (KourouError, OSError) as error:
            _log.warning("what orderly POP has handed out is not copied, retrying: %s", error)
