"""Settings of the gRPC port. Plain values; files are read in `config`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kourou.transport.settings import ConnectionLimits, RemotingServerConfig, ServerTlsConfig

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GrpcServerConfig:
    """One gRPC port and its limits; each has a defined effect when it is reached."""

    host: str = "127.0.0.1"
    port: int = 0  # grpcServerPort; 0 picks a free one
    backlog: int = 1024
    # More connections than this are closed at once.
    max_connections: int = 50_000
    tls: ServerTlsConfig = field(default_factory=ServerTlsConfig)
    # grpcMaxInboundMessageSize. A larger message ends its call with RESOURCE_EXHAUSTED.
    max_message_bytes: int = 130 * _MIB
    # Open calls and their requests, over all connections. The call that exceeds it ends with
    # RESOURCE_EXHAUSTED.
    max_inbound_bytes: int = 512 * _MIB
    # Responses that the peer has not taken, per connection. Exceeding it closes the connection: room for
    # one response of 32 messages of 4 MiB each, the largest that a client asks for.
    max_unsent_bytes: int = 192 * _MIB
    # The same over all connections. The one that exceeds it is closed.
    max_unsent_total_bytes: int = 1024 * _MIB
    # Unsent bytes in the socket's buffer at which responses wait in their calls instead.
    write_high_bytes: int = 256 * 1024
    # Open calls of one connection; further ones are refused (REFUSED_STREAM), which clients respect.
    # A gateway in front may carry the streams of thousands of clients in one connection.
    max_concurrent_calls: int = 4_096
    # Names and values of one call, plus 32 bytes for each field. More ends it with RESOURCE_EXHAUSTED.
    max_header_list_bytes: int = 32 * 1024
    # grpcClientIdleTimeMills: a connection without calls is closed after this time.
    idle_timeout_ms: int = 120_000
    # The preface must be complete by then.
    preface_timeout_ms: int = 10_000
    # A call whose request or response makes no progress for this time is ended; so is a connection that takes
    # nothing.
    stall_timeout_ms: int = 60_000
    # Without a byte from a peer with open calls for this time, it is asked for a sign of life (PING) ...
    ping_after_ms: int = 60_000
    # ... and without one for this long, disconnected.
    ping_timeout_ms: int = 20_000
    # Control frames (PING, SETTINGS, RST_STREAM ...) beyond those that responses justify: so many at once,
    # and so many in a second. More ends the connection with ENHANCE_YOUR_CALM.
    control_burst: int = 10_000
    control_per_s: int = 500

    def listening(self) -> RemotingServerConfig:
        """What the listener needs."""
        return RemotingServerConfig(
            host=self.host,
            port=self.port,
            backlog=self.backlog,
            max_connections=self.max_connections,
            tls=self.tls,
            limits=ConnectionLimits(idle_timeout_ms=self.preface_timeout_ms),
        )


class ByteBudget:
    """Bytes held over all connections of one server."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
