"""The keys that a server signs its own requests with, from its configuration."""

from __future__ import annotations

from kourou.config.inner_credentials import InnerCredentialsSettings, parse_inner_credentials
from kourou.protocol.signature import SigningKeys


def inner_keys(config: InnerCredentialsSettings) -> SigningKeys | None:
    """The keys of `innerClientAuthenticationCredentials`; None: requests are not signed."""
    parsed = parse_inner_credentials(config.inner_client_authentication_credentials)
    return None if parsed is None else SigningKeys(*parsed)
