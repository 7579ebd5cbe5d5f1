"""Registers of a broker that several clients use at once: consumer offsets and queue locks.

Each client locks and unlocks a queue, commits numbers as a group's offset, and fetches them, at the master
that the name server names; linearizable.py checks what they write. A key is used for `KEY_LIFE_S`: longer
than a fail-over takes, so that keys live through it, and shorter than the minute after which a lock expires.
Several keys are in use at a time: short histories are checked quickly. Brokers need not keep either across a
fail-over: a test notes one with `forget`, without which the history of a fail-over is not linearizable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from kourou import MessageQueue
from kourou.admin import Admin, BrokerAddress
from kourou.admin.groups import update_group
from kourou.client.core.api import ClientApi
from kourou.errors import ConnectError, KourouError
from kourou.protocol.bodies import SubscriptionGroupConfig
from tests.failover.history import History, Kind, Operation

KEY_LIFE_S: Final = 40.0
_KEYS: Final = 4
"""In use at a time."""
_GROUP: Final = "registers"
_NO_OFFSET: Final = -1
_REQUEST_MS: Final = 1_000

Step = Callable[[ClientApi, str, MessageQueue, Operation], Awaitable[None]]
"""A request at an address about a queue; the operation gets the answer."""


class RegisterClients:
    """Clients that work inside of an async block, until its end. The topic has to exist."""

    def __init__(
        self, namesrv: str, history: History, topic: str, *, clients: int = 4, seed: int = 0, rate: float = 50
    ) -> None:
        self._namesrv = namesrv
        self._history = history
        self._topic = topic
        self._clients = clients
        self._chance = random.Random(seed)
        self._pause_s = 1 / rate
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._keys: dict[str, None] = {}
        self._amount = 0

    async def __aenter__(self) -> Self:
        self._began = asyncio.get_running_loop().time()
        admins = [
            await self._stack.enter_async_context(
                Admin(namesrv=self._namesrv, request_timeout_ms=_REQUEST_MS)
            )
            for _ in range(self._clients)
        ]
        masters = [master.address for master in await admins[0].masters()]
        await update_group(admins[0], masters, SubscriptionGroupConfig(group_name=_GROUP))
        for number, admin in enumerate(admins):
            chance = random.Random(self._chance.random())
            self._tasks.append(asyncio.create_task(self._work(admin, f"client-{number}", chance)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            for result in await asyncio.gather(*self._tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
        finally:
            await self._stack.aclose()

    def forget(self, begin_ns: int) -> None:
        """A fail-over has taken place between this time and now: the state of all keys may be lost."""
        for key in self._keys:
            operation = self._history.begin("forget", "set", key=key)
            operation.begin_ns = begin_ns
            self._history.end(operation)

    # -- a client --------------------------------------------------------------------------------

    async def _work(self, admin: Admin, process: str, chance: random.Random) -> None:
        while True:
            await asyncio.sleep(self._pause_s * chance.uniform(0.5, 1.5))
            try:
                masters = await admin.masters()
            except KourouError:
                continue
            if masters:
                await self._step(admin, chance.choice(masters), process, chance, *chance.choice(_STEPS))

    async def _step(
        self,
        admin: Admin,
        master: BrokerAddress,
        process: str,
        chance: random.Random,
        kind: Kind,
        step: Step,
    ) -> None:
        # Not a queue that has messages: any number has locks and offsets.
        generation = int((asyncio.get_running_loop().time() - self._began) / KEY_LIFE_S)
        number = generation * _KEYS + chance.randrange(_KEYS)
        queue = MessageQueue(self._topic, master.broker_name, number)
        register = "offset" if kind in ("commit", "fetch") else "lock"
        key = f"{register}/{master.broker_name}/{number}"
        self._keys[key] = None
        self._amount += 1
        amount = self._amount if kind == "commit" else None
        operation = self._history.begin(kind, process, key=key, address=master.address, amount=amount)
        try:
            await step(admin.api, master.address, queue, operation)
        except KourouError as error:
            operation.error = str(error)[:300]
            # Only what was never written has certainly had no effect.
            self._history.end(operation, "failed" if isinstance(error, ConnectError) else "unknown")
        else:
            self._history.end(operation)


async def _lock(api: ClientApi, address: str, queue: MessageQueue, operation: Operation) -> None:
    operation.amount = int(queue in await api.lock(address, _GROUP, operation.process, [queue]))


async def _unlock(api: ClientApi, address: str, queue: MessageQueue, operation: Operation) -> None:
    await api.unlock(address, _GROUP, operation.process, [queue], oneway=False)


async def _commit(api: ClientApi, address: str, queue: MessageQueue, operation: Operation) -> None:
    assert operation.amount is not None
    await api.update_consumer_offset(address, _GROUP, queue, operation.amount)


async def _fetch(api: ClientApi, address: str, queue: MessageQueue, operation: Operation) -> None:
    found = await api.consumer_offset(address, _GROUP, queue, only_stored=True)
    operation.amount = _NO_OFFSET if found is None else found


_STEPS: Final[tuple[tuple[Kind, Step], ...]] = (
    ("lock", _lock),
    ("unlock", _unlock),
    ("commit", _commit),
    ("fetch", _fetch),
)
