"""What signs the requests of a server itself, and whether it demands that of others."""

from __future__ import annotations

from typing import Final

from kourou.config.component import ComponentConfig
from kourou.config.inner_credentials import InnerCredentialsSettings, parse_inner_credentials
from kourou.protocol.signature import SigningKeys

_SWITCHES: Final = frozenset({"aclEnable", "authenticationEnabled"})


def has_access_control(config: ComponentConfig) -> bool:
    """Whether a server knows who calls it, by the rules of RocketMQ 4 or 5."""
    return any(value is True for key, value in config.values() if key.name in _SWITCHES)


def inner_keys(config: InnerCredentialsSettings) -> SigningKeys | None:
    """The keys of `innerClientAuthenticationCredentials`; None: requests are not signed."""
    parsed = parse_inner_credentials(config.inner_client_authentication_credentials)
    return None if parsed is None else SigningKeys(*parsed)
