"""Administration of the broker itself as a part: its configuration, its runtime info, its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.admin import config_processor
from kourou.broker.part import BrokerPart
from kourou.broker.storage.retention_service import RetentionService
from kourou.transport.request import Processor

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


class AdminPart(BrokerPart):
    """Answers tools."""

    def __init__(self, services: BrokerServices, retention: RetentionService) -> None:
        self._services = services
        self._retention = retention

    def processors(self) -> Mapping[int, Processor]:
        return config_processor.processors(self._services, self._retention)
