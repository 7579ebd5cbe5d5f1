"""Topics, subscription groups and consumer offsets as a part of a broker: loaded, written, administered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart
from kourou.broker.tables import group_processor, offset_processor, reset_offset, topic_processor
from kourou.broker.tables.config_writer import ConfigWriter
from kourou.broker.tables.orphan_queues import adopt_orphans
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


class TablesPart(BrokerPart):
    """The tables of one broker."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._writer = ConfigWriter(services)

    def processors(self) -> Mapping[int, Processor]:
        services = self._services
        return {
            **topic_processor.processors(services),
            **group_processor.processors(services),
            **offset_processor.processors(services),
            **reset_offset.processors(services),
        }

    def recover(self) -> None:
        services = self._services
        for table in (services.topics, services.groups, services.offsets, services.delay_offsets):
            table.load()
        adopt_orphans(services.store.queues, services.topics)

    async def start(self, tasks: TaskOwner) -> None:
        self._writer.start()

    async def stop(self, timeout_ms: int) -> None:
        await self._services.disk.run(self._writer.write_all)
