"""GroupMembers: the online members of groups, for those that a page shows, shared by all users."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kourou.admin.connections import consumer_connection_at
from kourou.admin.session import Admin
from kourou.console.refusals import readable
from kourou.console.shared_read import SharedRead
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import ConsumerConnection
from kourou.protocol.codes import ResponseCode

_KEEP_S: Final = 5.0
_MAX_GROUPS: Final = 4_000
# Enough to keep the brokers busy, few enough that they can serve other clients.
_MAX_CONCURRENT: Final = 16


@dataclass(frozen=True, slots=True)
class Members:
    """The online members of a group and its subscriptions; empty if it is offline."""

    connection: ConsumerConnection = field(default_factory=ConsumerConnection)
    problem: str = ""
    """Why they are unknown."""

    @property
    def count(self) -> int:
        return len(self.connection.connection_set)


class GroupMembers:
    """Reads members. `addresses` returns the brokers that may know a group."""

    def __init__(self, admin: Admin, addresses: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._admin = admin
        self._addresses = addresses
        self._limiter = asyncio.Semaphore(_MAX_CONCURRENT)
        self._reads: OrderedDict[str, SharedRead[Members]] = OrderedDict()

    async def get(self, group: str) -> Members:
        """The members of a group, at most a few seconds old."""
        shared = self._reads.get(group)
        if shared is None:
            shared = self._reads[group] = SharedRead(lambda: self._read(group), _KEEP_S)
            if len(self._reads) > _MAX_GROUPS:
                await self._reads.popitem(last=False)[1].stop()
        else:
            self._reads.move_to_end(group)
        return await shared.get()

    def forget(self) -> None:
        """Read again when needed."""
        for shared in self._reads.values():
            shared.forget()

    async def stop(self) -> None:
        """Cancel reads that are under way."""
        for shared in self._reads.values():
            await shared.stop()

    async def _read(self, group: str) -> Members:
        async with self._limiter:
            try:
                addresses = await self._addresses(group)
                return Members(await consumer_connection_at(self._admin, group, addresses))
            except ResponseError as error:
                is_offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
                return Members(problem="" if is_offline else readable(str(error)))
            except KourouError as error:
                return Members(problem=str(error))
