"""MasterWaits: sends whose broker has no master that accepts them now.

During a fail-over the old master refuses sends or is gone, and the new one is not ready yet. The sends to
such a broker name wait together, in order, each within its own timeout. One task requests the route, at once
and then with a growing pause. A new address of the master releases all of them; while the address stays the
same, single sends are tried, and the first success releases the others.
SilentMasters finds masters that neither answer nor close their connections.
Not here: which failures lead here (pending_send.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.producer.ordered_wait import OrderedWait
from kourou.client.producer.pending_send import BrokerSendQueue, PendingSend
from kourou.client.producer.send_result import SendResult
from kourou.errors import KourouError
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.transport.connection import Connection

_FIRST_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 0.2
# A name server that does not respond must not delay attempts at the known address.
_REFRESH_TIMEOUT_S: Final = 0.5


class MasterWait(OrderedWait):
    """The sends that wait for the master of one broker name. `address` is where it was last."""

    def __init__(self, broker_name: str, address: str | None) -> None:
        super().__init__(broker_name)
        self.address = address


class SilentMasters:
    """Leaves brokers that do not answer and are not master any more: a process that is paused, or behind a
    network that drops packets, closes no connection. `look` is to be called every second or so."""

    def __init__(self, instance: ClientInstance, send_queues: Mapping[str, BrokerSendQueue]) -> None:
        self._instance = instance
        self._send_queues = send_queues
        self._awaited: dict[Connection, str] = {}
        self._looked_at = 0.0

    async def look(self) -> None:
        """Search for the master where no byte has arrived since the last time, and close the connection to a
        broker that another one has replaced: its sends are repeated there."""
        before, looked_at = self._awaited, self._looked_at
        self._looked_at = asyncio.get_running_loop().time()
        self._awaited = {
            connection: address
            for address, send_queue in self._send_queues.items()
            if (connection := send_queue.awaited) is not None
        }
        for connection, address in self._awaited.items():
            if connection in before and connection.last_heard <= looked_at:
                self._leave_or_search(connection, address)

    def _leave_or_search(self, connection: Connection, address: str) -> None:
        routes = self._instance.routes
        if any(routes.master(broker_name) == address for broker_name in routes.brokers):
            self._instance.masters.lost(address)
        else:
            connection.abort("it does not answer, and is not master any more")


class MasterWaits:
    """The waits of one producer, by broker name. `start` begins an attempt."""

    def __init__(self, instance: ClientInstance, start: Callable[[PendingSend], None]) -> None:
        self._instance = instance
        self._start = start
        self.waits: dict[str, MasterWait] = {}

    def wait(self, send: PendingSend, broker_name: str, problem: str) -> None:
        """Let a send wait until the broker has a master that accepts it."""
        wait = self.waits.get(broker_name)
        if wait is None:
            address = None if send.send_queue is None else send.send_queue.address
            wait = self.waits[broker_name] = MasterWait(broker_name, address)
            self._instance.tasks.start(self._watch(wait), f"master-{broker_name}")
        wait.problem = problem
        self._enter(wait, send)

    def holds(self, send: PendingSend, queue: MessageQueue) -> bool:
        """Whether a new send has to wait behind others; then it does."""
        wait = self.waits.get(queue.broker_name)
        if wait is None or send in wait.orders:
            return False
        self._enter(wait, send)
        return True

    def _enter(self, wait: MasterWait, send: PendingSend) -> None:
        send.awaited_broker = wait.broker_name
        wait.enter(send, partial(self._ended, wait, send))

    def others(self, queues: Sequence[MessageQueue], broker_name: str | None = None) -> list[MessageQueue]:
        """The queues of other brokers, for which no send waits."""
        waits = self.waits
        return [
            queue for queue in queues if queue.broker_name not in waits and queue.broker_name != broker_name
        ]

    def _ended(self, wait: MasterWait, send: PendingSend, future: asyncio.Future[SendResult]) -> None:
        wait.orders.pop(send, None)
        if self.waits.get(wait.broker_name) is not wait or future.cancelled():
            return
        if future.exception() is None:
            del self.waits[wait.broker_name]
            self._release(wait)

    def _release(self, wait: MasterWait, count: int | None = None) -> None:
        for send in wait.leave(count):
            self._start(send)

    async def _watch(self, wait: MasterWait) -> None:
        pause_s, is_first = _FIRST_PAUSE_S, True
        topic = ""
        while wait.orders:
            topic = next(iter(wait.orders)).request.topic
            await self._refresh(topic)
            if self.waits.get(wait.broker_name) is not wait:
                return
            route = self._instance.routes.known(topic)
            address = self._instance.routes.master(wait.broker_name)
            if route is not None and route.publish_queues:
                if address is not None and address != wait.address:
                    wait.address, pause_s = address, _FIRST_PAUSE_S
                    self._release(wait)
                elif not is_first:
                    self._release(wait, 1)
            is_first = False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        if self.waits.get(wait.broker_name) is wait:
            del self.waits[wait.broker_name]

    async def _refresh(self, topic: str) -> None:
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT_S):
                await self._instance.routes.refresh(topic, to_publish=True)
        except (KourouError, TimeoutError):
            return  # attempts at the known address may succeed
