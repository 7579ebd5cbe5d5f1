"""Pulls and queries as a part of a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kourou.broker.part import BrokerPart, Handler, every, processors_of
from kourou.broker.pull.long_polling import PullRequestHoldService
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

_CHECK_HOLDS_S: Final = 5.0


class PullPart(BrokerPart):
    """Gives messages to consumers, and looks at pulls that wait for some."""

    def __init__(self, holds: PullRequestHoldService, handlers: Sequence[Handler]) -> None:
        self._holds = holds
        self._handlers = handlers

    def processors(self) -> Mapping[int, Processor]:
        return processors_of(self._handlers)

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_CHECK_HOLDS_S, self._holds.check), "check-held-pulls")
