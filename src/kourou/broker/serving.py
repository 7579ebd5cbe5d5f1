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
    from kourou.broker.services import BrokerServices

_DRAIN_LOOK_S: Final = 0.002
_NO_LIMIT_S: Final = 3600.0


class ServingPart(BrokerPart):
    """Serves what `parts` handle, and owns the tasks that run meanwhile."""

    def __init__(
        self, services: BrokerServices, parts: Sequence[BrokerPart], bulk_handler: BulkHandler | None
    ) -> None:
        self._services = services
        self._is_stopping = False
        self._server = RemotingServer(
            processors_of(parts),
            server_settings(services.config),
            on_close=self._closed,
            cycles=services.cycles,
            bulk=bulk_handler,
            checks=services.admission.request_checks,
            new_state=ConnectionState,
        )

    async def start(self, tasks: TaskOwner) -> None:
        await self._server.start()

    async def wait_failed(self) -> None:
        """Raise what a task of the server died of; return when it has stopped."""
        await self._server.wait_failed()

    def _closed(self, connection: Connection) -> None:
        self._services.producers.connection_closed(connection)
        if not self._is_stopping:  # the members of a broker that stops notice by themselves
            self._services.consumers.connection_closed(connection)

    async def stop(self, timeout_ms: int) -> None:
        services = self._services
        self._is_stopping = True
        await self._server.stop(timeout_ms, self._drain)
        await services.requests.stop()
        await services.tasks.stop()
        services.cycles.close()

    async def _drain(self) -> None:
        """Answer the pulls that wait for messages, and the sends that wait for the disk."""
        services = self._services
        services.holds.wake_all()
        await services.requests.wait_idle(_NO_LIMIT_S)
        services.cycles.close()
        while services.commit_cycle.is_waiting:  # noqa: ASYNC110 (the store knows no events)
            await asyncio.sleep(_DRAIN_LOOK_S)
