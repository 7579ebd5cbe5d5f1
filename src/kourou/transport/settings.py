"""Settings of connections, servers and clients. Plain values; files are read in `config`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

from kourou.transport.certificate_user import CertificateUser

DEFAULT_MAX_FRAME_BYTES = 16 * 1024 * 1024
# A renewed certificate is in force after this time; certificates are renewed days before they end.
_LOOK_EVERY_S = 5.0


class TlsMode(enum.Enum):
    """How a server treats TLS (`tls.server.mode`)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """Whether a server requests a certificate from clients (`tls.server.need.client.auth`)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class ServerTlsConfig:
    """TLS of a server. Without a certificate `permissive` serves plaintext connections only."""

    mode: TlsMode = TlsMode.PERMISSIVE  # tls.server.mode; Apache's default
    cert_path: Path | None = None  # tls.server.certPath, PEM
    key_path: Path | None = None  # tls.server.keyPath, PEM; may be inside cert_path
    key_password: str | None = None  # tls.server.keyPassword
    trust_cert_path: Path | None = None  # tls.server.trustCertPath: who signs clients
    client_auth: ClientAuth = ClientAuth.NONE  # tls.server.need.client.auth
    # tls.server.clientCertificateUser: which name of a client certificate is the user
    certificate_user: CertificateUser = CertificateUser.NONE
    # tls.test.mode.enable: a throw-away certificate is made where none is given. Apache's default
    # is true; ours is false, so that encryption without protection has to be requested explicitly.
    test_mode: bool = False
    look_every_s: float = _LOOK_EVERY_S  # how often its files are compared
    mode_key: str = "tls.server.mode"  # for messages
    alpn: tuple[str, ...] = ()  # protocols for clients that negotiate one; others are served as well


@dataclass(frozen=True, slots=True)
class ClientTlsConfig:
    """TLS of a client. Host names are not verified, like in RocketMQ."""

    enable: bool = False  # tls.enable
    cert_path: Path | None = None  # tls.client.certPath
    key_path: Path | None = None  # tls.client.keyPath
    key_password: str | None = None  # tls.client.keyPassword
    trust_cert_path: Path | None = None  # tls.client.trustCertPath
    # tls.client.authServer: false trusts any server certificate (Apache's default).
    auth_server: bool = False
    look_every_s: float = _LOOK_EVERY_S  # how often its files are compared, at most; when it connects


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection; each has a defined effect when it is reached."""

    # com.rocketmq.remoting.frameMaxLength, length field included. Larger: closed, with the reason.
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    # Unsent bytes at which we stop reading the peer's requests until it has read its responses.
    write_high_bytes: int = 256 * 1024
    # Unsent bytes at which the peer is disconnected: responses to requests held earlier still accumulate
    # while reading is paused. Room for two of the largest frames.
    max_unsent_bytes: int = 2 * DEFAULT_MAX_FRAME_BYTES
    # Our own calls to the peer that wait for an answer; one more raises TooManyRequestsError.
    max_calls: int = 65_535  # clientAsyncSemaphoreValue
    # One-way commands accepted while the peer does not read; one more raises TooManyRequestsError.
    max_unsent_oneways: int = 65_535  # clientOnewaySemaphoreValue
    # Idle time, without a byte in either direction, after which it is closed.
    idle_timeout_ms: int = 120_000  # serverChannelMaxIdleTimeSeconds


@dataclass(frozen=True, slots=True)
class RemotingServerConfig:
    """One listening address and its limits."""

    host: str = "127.0.0.1"
    port: int = 0  # 0 picks a free one
    backlog: int = 1024  # serverSocketBacklog
    # More connections than this are closed at once; below the descriptors a process has anyway.
    max_connections: int = 50_000
    # Bytes of incomplete frames, over all connections. The connection that exceeds
    # it is closed: half frames must not add up to all memory.
    max_inbound_bytes: int = 512 * 1024 * 1024
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    tls: ServerTlsConfig = field(default_factory=ServerTlsConfig)


@dataclass(frozen=True, slots=True)
class RemotingClientConfig:
    """Settings of outgoing connections: timeouts, frame size, TLS."""

    connect_timeout_ms: int = 3_000  # com.rocketmq.remoting.client.connect.timeout
    max_inbound_bytes: int = 512 * 1024 * 1024
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    tls: ClientTlsConfig = field(default_factory=ClientTlsConfig)
