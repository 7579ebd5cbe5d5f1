"""Settings of a proxy. Plain values; files are read in `config`, which `from_config` turns into these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.access.audit_log import AuditLog
from kourou.access.lockout import Lockout
from kourou.protocol.signature import SigningKeys
from kourou.proxy.clients.client_settings import ClientPolicy
from kourou.proxy.clients.registry import EXPIRY_S
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.proxy.messages.limits import MessageLimits
from kourou.transport.settings import ClientTlsConfig, ServerTlsConfig, TlsMode

DEFAULT_PORT = 8081
"""Where RocketMQ's clients expect it."""

SELF_MADE_TLS = ServerTlsConfig(test_mode=True)
"""TLS with a certificate of its own, beside plaintext on the same port, as Apache's proxy: some clients use
TLS by default and verify no certificate, the others plaintext."""


def tls_words(tls: ServerTlsConfig) -> str:
    """How clients may connect to a gRPC port."""
    is_self_made = tls.cert_path is None
    if tls.mode is TlsMode.DISABLED or (is_self_made and not tls.test_mode):
        return "plaintext only"
    words = "TLS only" if tls.mode is TlsMode.ENFORCING else "plaintext and TLS"
    return f"{words}; the certificate is self-made, clients cannot verify it" if is_self_made else words


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """What a proxy that follows the users of its brokers checks."""

    checks_policies: bool = True
    """Whether policies count, too (`authorizationEnabled`)."""
    lockout: Lockout | None = None
    """What counts wrong logins; None: nothing does."""
    audit_log: AuditLog | None = None
    """What writes a line for each refusal; None: there is no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """One proxy."""

    grpc: GrpcServerConfig = field(
        default_factory=lambda: GrpcServerConfig(port=DEFAULT_PORT, tls=SELF_MADE_TLS)
    )
    namesrv: str | Sequence[str] | None = None
    """`host:port` of name servers, several as a list or separated by `;`."""
    tls: ClientTlsConfig = field(default_factory=ClientTlsConfig)
    """Of connections to name servers and brokers."""
    own_keys: SigningKeys | None = None
    """The account that signs the proxy's own requests to name servers and brokers
    (`innerClientAuthenticationCredentials`); a broker of the same process has its own."""
    follows_users: bool = False
    """Whether calls are checked by the users and policies of the brokers, which are read with the own account
    (`authenticationEnabled`). Not with a broker of the same process: its gate decides."""
    access: AccessSettings = field(default_factory=AccessSettings)
    """How calls are checked then."""
    clients: ClientPolicy = field(default_factory=ClientPolicy)
    """What clients are told."""
    client_expiry_s: float = EXPIRY_S
    """How long a client stays registered without a call or an open Telemetry stream."""
    messages: MessageLimits = field(default_factory=MessageLimits)
    """What messages may be."""
    has_metrics: bool = False
    """Whether calls are measured."""
