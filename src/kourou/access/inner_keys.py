"""What signs the requests of a server itself, and whether it demands that of others."""

from __future__ import annotations

from typing import Protocol

from kourou.config.inner_credentials import InnerCredentialsSettings, parse_inner_credentials
from kourou.protocol.signature import SigningKeys


class _Switches(Protocol):
    @property
    def acl_enable(self) -> bool: ...

    @property
    def authentication_enabled(self) -> bool: ...


def has_access_control(config: _Switches) -> bool:
    """Whether a broker or name server knows who calls it, by the rules of RocketMQ 4 or 5."""
    return config.acl_enable or config.authentication_enabled


def inner_keys(config: InnerCredentialsSettings) -> SigningKeys | None:
    """The keys of `innerClientAuthenticationCredentials`; None: requests are not signed."""
    parsed = parse_inner_credentials(config.inner_client_authentication_credentials)
    return None if parsed is None else SigningKeys(*parsed)
