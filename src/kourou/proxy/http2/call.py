"""Call: one RPC, as its handler sees it. All of it happens on the event loop.

A handler is a plain function. For a unary or server-streaming path it is called once the request message is
complete; for a path with a client stream it is called as soon as the call opens, and sets `on_message` before
it returns. It may answer at once, or keep the call and answer from a callback. A handler that raises ends its
call with INTERNAL. Not here: HTTP/2 (connection.py), what the messages mean.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias


class GrpcCode(enum.IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Call(ABC):
    """One RPC. After its end, `reply`, `send`, `finish` and `fail` have no effect."""

    __slots__ = (
        "authority",
        "deadline_s",
        "is_over",
        "is_tls",
        "metadata",
        "on_end",
        "on_half_close",
        "on_message",
        "on_unsent",
        "path",
        "peer",
        "request",
    )

    path: str
    """`/package.Service/Method`."""
    peer: str
    """`host:port` of the client."""
    is_tls: bool
    """Whether the connection is encrypted."""
    authority: str
    """The host and port that the client dialled; empty if it does not say."""
    metadata: Mapping[str, str]
    """Headers by lower-case name, without pseudo headers; values of one name are joined with commas."""
    deadline_s: float | None
    """When the client stops waiting, on the loop's clock. The server ends the call then."""
    request: bytes
    """The message of a unary or server-streaming call."""
    is_over: bool
    """Whether the call has ended; set before `on_end`."""
    on_message: Callable[[bytes], None] | None
    """Gets each message of a client stream."""
    on_half_close: Callable[[], None] | None
    """Called when the client stream is complete. The call stays open until `finish` or `fail`."""
    on_end: Callable[[], None] | None
    """Called when the call ends without the handler's doing: cancelled, connection lost, deadline."""
    on_unsent: Callable[[], None] | None
    """Called after `finish` if messages of the call can no longer be sent: the client has not got them."""

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """Bytes of this call that the peer has not accepted yet."""

    @abstractmethod
    def reply(self, message: bytes) -> None:
        """Send the response of a unary call, with status OK."""

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Send one message of a server stream. The first one opens the response."""

    @abstractmethod
    def finish(self) -> None:
        """End the call with status OK, after the messages that were sent."""

    @abstractmethod
    def fail(self, code: GrpcCode, text: str) -> None:
        """End the call with a status other than OK, after the messages that were sent."""


Handler: TypeAlias = Callable[[Call], None]
