"""AtomicPart: atomic publishes from the start of a broker to its stop. And LIST_KOUROU_ATOMIC.

A slave derives nothing: it has the journal of its master, and reads it when it is started as a master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.atomic.answers import check_master
from kourou.broker.atomic.coordinator import AtomicCoordinator
from kourou.broker.atomic.journal import Journal
from kourou.broker.atomic.participant import AtomicParticipant
from kourou.broker.part import BrokerPart, processors_of
from kourou.errors import StorageError
from kourou.protocol.bodies.atomic_list import AtomicList
from kourou.protocol.codes import RequestCode
from kourou.transport.request import Processor, Request
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.settings import LiveConfig

_log = logging.getLogger(__name__)

_QUERY_S: Final = 1.0
_UPKEEP_S: Final = 10.0
_MS_PER_HOUR: Final = 3_600_000
_LONGEST_AGE_MS: Final = 12 * _MS_PER_HOUR
_SHORTEST_AGE_MS: Final = 60_000
# No repeat comes so late: a publish is decided within a day.
_OUTCOMES_KEPT_MS: Final = 7 * 24 * _MS_PER_HOUR


class AtomicPart(BrokerPart):
    """Atomic publishes of one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        journal: Journal,
        coordinator: AtomicCoordinator,
        participant: AtomicParticipant,
        admission: Admission,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._journal = journal
        self._coordinator = coordinator
        self._participant = participant
        self._admission = admission
        self._now_ms = now_ms

    def processors(self) -> Mapping[int, Processor]:
        return {
            **processors_of((self._coordinator, self._participant)),
            RequestCode.LIST_KOUROU_ATOMIC: self.list_publishes,
        }

    def recover(self) -> None:
        if not self._config.current.is_slave:
            self._journal.recover()

    async def start(self, tasks: TaskOwner) -> None:
        if self._config.current.is_slave:
            return
        self._participant.resume()
        self._coordinator.resume()
        tasks.start(self._query(), "query-atomic")
        tasks.start(self._keep_up(), "atomic-journal")

    async def _query(self) -> None:
        while True:
            await asyncio.sleep(_QUERY_S)
            await self._participant.query_overdue()

    async def _keep_up(self) -> None:
        """Keep the journal short, and its live records young."""
        while True:
            await asyncio.sleep(_UPKEEP_S)
            self._journal.table.expire(self._now_ms() - _OUTCOMES_KEPT_MS)
            reserved_ms = self._config.current.file_reserved_time * _MS_PER_HOUR
            max_age_ms = max(_SHORTEST_AGE_MS, min(_LONGEST_AGE_MS, reserved_ms // 4))
            is_more = True
            try:
                while is_more:
                    is_more = await self._journal.put_again(max_age_ms=max_age_ms)
            except StorageError as error:
                _log.warning("the journal of atomic publishes is not kept up: %s", error)

    def list_publishes(self, request: Request) -> None:
        """LIST_KOUROU_ATOMIC: publishes that are not over, and those that need attention."""
        check_master(self._admission)
        entries = [*self._coordinator.entries(), *self._participant.entries()]
        request.reply(body=AtomicList(entries).encode())
