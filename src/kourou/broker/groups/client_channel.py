"""ClientChannel: one client of a group, as its last heartbeat told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.transport.connection import Connection
from kourou.transport.request import Request

CHANNEL_EXPIRED_MS: Final = 120_000
"""`channelExpiredTimeout`: four heartbeats that did not come."""


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
        """Whoever sent this request, under the id it gives itself."""
        return cls(request.connection, client_id, request.head.language_code, request.version, now_ms)

    def is_expired(self, now_ms: int, expired_ms: int) -> bool:
        """Whether nothing was heard of it for so long that it counts as gone."""
        return now_ms - self.last_update_ms > expired_ms

    def __str__(self) -> str:
        return f"{self.client_id} at {self.connection.remote_address}"
