"""Pulls and queries as a part of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.part import BrokerPart, every
from kourou.broker.pull import query_message_processor
from kourou.broker.pull.pull_message_processor import PullMessageProcessor
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_CHECK_HOLDS_S: Final = 5.0


class PullPart(BrokerPart):
    """Gives messages to consumers, and looks at those that wait for some."""

    def __init__(self, services: BrokerServices, pulls: PullMessageProcessor) -> None:
        self._services = services
        self._pulls = pulls

    def processors(self) -> Mapping[int, Processor]:
        return {**self._pulls.processors(), **query_message_processor.processors(self._services)}

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_CHECK_HOLDS_S, self._services.holds.check), "check-held-pulls")
