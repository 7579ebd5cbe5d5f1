"""Clients of groups: ClientChannel, one client, and ProducerManager, which clients produce under which group.

A client is as its last heartbeat described it. A transaction check or a reply goes to any one client of a
producer group; changes of the group are not announced.
Not here: what is sent back, and heartbeats (client_manage_processor.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kourou.transport.connection import Connection
from kourou.transport.request import Request

CHANNEL_EXPIRED_MS: Final = 120_000
"""`channelExpiredTimeout`: four heartbeats that did not come."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ClientChannel:
    """A client and the connection on which it is reached. `language` is a LanguageCode."""

    connection: Connection
    client_id: str
    language: int
    version: int
    last_update_ms: int
    """By the monotonic clock."""

    @classmethod
    def of(cls, request: Request, client_id: str, now_ms: int) -> ClientChannel:
        """The client of this request, under its own id."""
        return cls(request.connection, client_id, request.head.language_code, request.version, now_ms)

    def is_expired(self, now_ms: int, expired_ms: int) -> bool:
        """Whether it has not sent a heartbeat for so long that it counts as gone."""
        return now_ms - self.last_update_ms > expired_ms

    def __str__(self) -> str:
        return f"{self.client_id} at {self.connection.remote_address}"


class ProducerManager:
    """Clients by group and connection."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[Connection, ClientChannel]] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self._by_client_id: dict[str, ClientChannel] = {}
        self._turn = 0

    def register(self, group: str, channel: ClientChannel) -> None:
        """Take note of a heartbeat."""
        channels = self.groups.setdefault(group, {})
        known = channels.get(channel.connection)
        if known is not None and known.client_id == channel.client_id:
            known.last_update_ms = channel.last_update_ms
            return
        _log.info("producer %s joins group %s", channel, group)
        channels[channel.connection] = channel
        self._groups_of.setdefault(channel.connection, set()).add(group)
        self._by_client_id[channel.client_id] = channel

    def is_registered(self, group: str, connection: Connection) -> bool:
        """Whether the client on `connection` produces under `group`."""
        return connection in self.groups.get(group, ())

    def unregister(self, group: str, connection: Connection) -> bool:
        """The client on `connection` leaves a group; False when it was not in it."""
        if not self.is_registered(group, connection):
            return False
        self._remove(group, connection, "leaves")
        return True

    def connection_closed(self, connection: Connection) -> None:
        """The client on `connection` is gone from all its groups."""
        for group in list(self._groups_of.get(connection, ())):
            self._remove(group, connection, "is gone from")

    def scan(self, now_ms: int, expired_ms: int = CHANNEL_EXPIRED_MS) -> None:
        """Forget clients that have not sent a heartbeat for `expired_ms`."""
        expired = [
            (group, channel.connection)
            for group, channels in self.groups.items()
            for channel in channels.values()
            if channel.is_expired(now_ms, expired_ms)
        ]
        for group, connection in expired:
            self._remove(group, connection, "has sent no heartbeat and is removed from")

    def available_channel(
        self, group: str, may_be_called: Callable[[Connection], bool] | None = None
    ) -> ClientChannel | None:
        """Some client of the group that can be called, and may be, another one each time."""
        channels = [
            channel for channel in self.groups.get(group, {}).values() if not channel.connection.closed
        ]
        self._turn += 1
        for number in range(len(channels)):
            channel = channels[(self._turn + number) % len(channels)]
            if may_be_called is None or may_be_called(channel.connection):
                return channel
        return None

    def find_by_client_id(self, client_id: str) -> ClientChannel | None:
        """The client of this id, whatever its groups."""
        return self._by_client_id.get(client_id)

    def _remove(self, group: str, connection: Connection, how: str) -> None:
        channels = self.groups[group]
        channel = channels.pop(connection)
        _log.info("producer %s %s group %s", channel, how, group)
        if not channels:
            del self.groups[group]
        groups = self._groups_of[connection]
        groups.discard(group)
        if groups:
            return
        del self._groups_of[connection]
        # The same id may have come back on another connection meanwhile.
        if self._by_client_id.get(channel.client_id) is channel:
            del self._by_client_id[channel.client_id]
