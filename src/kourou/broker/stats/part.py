"""Statistics of a broker as a part: counted by the others, rolled up each second, shown to tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.part import BrokerPart, every
from kourou.broker.stats import stats_processor
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_TICK_S: Final = 1.0


class StatsPart(BrokerPart):
    """The statistics of one broker, and the watch over its clock, which they depend on."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def processors(self) -> Mapping[int, Processor]:
        return stats_processor.processors(self._services)

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_TICK_S, self._tick), "statistics")

    def _tick(self) -> None:
        services = self._services
        services.clock_watch.look()
        services.stats.tick(services.monotonic_ms(), wall_ms=services.now_ms())
