"""QueueLocks: a broker's promise that a queue is consumed by nobody else, for orderly consumers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.errors import KourouError
from kourou.protocol.bodies import MessageQueue

_log = logging.getLogger(__name__)

RENEW_INTERVAL_MS: Final = 20_000
FIRST_RENEWAL_MS: Final = 1_000


class QueueLocks:
    """Locks of one consumer."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask for the lock of a queue, or have it renewed; False when another holds it, or nobody answers."""
        try:
            held = await self._request_locks(assigned.queue.broker_name, [assigned.queue])
        except KourouError as error:
            _log.warning("group %s: no lock of %s: %s", self._group, assigned.queue, error)
            return False
        self._record_lock(assigned, assigned.queue in held)
        return assigned.is_locked

    async def renew(self, all_assigned: Collection[AssignedQueue]) -> None:
        """Have the locks of all queues renewed, with one request for each broker."""
        brokers: dict[str, list[AssignedQueue]] = {}
        for assigned in all_assigned:
            brokers.setdefault(assigned.queue.broker_name, []).append(assigned)
        await asyncio.gather(*(self._renew_at(name, mine) for name, mine in brokers.items()))

    async def _renew_at(self, broker_name: str, mine: list[AssignedQueue]) -> None:
        try:
            held = set(await self._request_locks(broker_name, [assigned.queue for assigned in mine]))
        except KourouError as error:
            # They are not lost yet: the broker keeps them for a minute.
            _log.warning("group %s: locks at %s are not renewed: %s", self._group, broker_name, error)
            return
        for assigned in mine:
            self._record_lock(assigned, assigned.queue in held)

    def _record_lock(self, assigned: AssignedQueue, is_held: bool) -> None:
        if is_held:
            assigned.lock()
        else:
            assigned.unlock()
            _log.info("group %s: %s is locked by another consumer", self._group, assigned.queue)

    async def _request_locks(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        address = self._instance.routes.master(broker_name)
        if address is None:
            return []
        return await self._instance.api.lock(address, self._group, self._instance.client_id, queues)

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Let others have queues. What a broker does not hear ends by itself after a minute."""
        brokers: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            brokers.setdefault(queue.broker_name, []).append(queue)
        for broker_name, mine in brokers.items():
            address = self._instance.routes.master(broker_name)
            if address is None:
                continue
            try:
                await self._instance.api.unlock(
                    address, self._group, self._instance.client_id, mine, oneway=not wait
                )
            except KourouError as error:
                _log.warning("group %s: %s keeps its locks: %s", self._group, broker_name, error)
