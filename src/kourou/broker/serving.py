"""ServingPart: the port of a broker. Requests of all parts come in here, and are answered before it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kourou.broker.connection_state import ConnectionState
from kourou.broker.part import BrokerPart, processors_of
from kourou.transport.connection import BulkHandler, Connection
from kourou.transport.from_config import server_settings
from kourou.transport.server import RemotingServer
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.config.broker import BrokerConfig
    from kourou.transport.cycles import Cycles

_DRAIN_LOOK_S: Final = 0.002
_NO_LIMIT_S: Final = 3600.0


class ServingPart(BrokerPart):
    """Serves what `parts` handle, and owns the tasks that run meanwhile."""

    def __init__(
        self,
        parts: Sequence[BrokerPart],
        *,
        config: BrokerConfig,
        admission: Admission,
        bulk_handler: BulkHandler | None,
        producers: ProducerManager,
        consumers: ConsumerManager,
        holds: PullRequestHoldService,
        cycles: Cycles,
        commit_cycle: CommitCycle,
        tasks: TaskOwner,
        requests: TaskOwner,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._holds = holds
        self._cycles = cycles
        self._commit_cycle = commit_cycle
        self._tasks = tasks
        self._requests = requests
        self._is_stopping = False
        self._server = RemotingServer(
            processors_of(parts),
            server_settings(config),
            on_close=self._closed,
            cycles=cycles,
            bulk=bulk_handler,
            checks=admission.request_checks,
            new_state=ConnectionState,
        )

    async def start(self, tasks: TaskOwner) -> None:
        await self._server.start()

    async def wait_failed(self) -> None:
        """Raise what a task of the server died of; return when it has stopped."""
        await self._server.wait_failed()

    def _closed(self, connection: Connection) -> None:
        self._producers.connection_closed(connection)
        if not self._is_stopping:  # the members of a broker that stops notice by themselves
            self._consumers.connection_closed(connection)

    async def stop(self, timeout_ms: int) -> None:
        self._is_stopping = True
        await self._server.stop(timeout_ms, self._drain)
        await self._requests.stop()
        await self._tasks.stop()
        self._cycles.close()

    async def _drain(self) -> None:
        """Answer the pulls that wait for messages, and the sends that wait for the disk."""
        self._holds.wake_all()
        await self._requests.wait_idle(_NO_LIMIT_S)
        self._cycles.close()
        while self._commit_cycle.is_waiting:  # noqa: ASYNC110 (the store knows no events)
            await asyncio.sleep(_DRAIN_LOOK_S)
