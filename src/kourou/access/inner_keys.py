"""What signs the requests of a server itself, and whether it demands that of others."""

from __future__ import annotations

import secrets
from typing import Final, Protocol

from kourou.access.model import Account
from kourou.config.inner_credentials import InnerCredentialsSettings, parse_inner_credentials
from kourou.protocol.signature import SigningKeys

_OWN_BYTES: Final = 20


class _Switches(Protocol):
    @property
    def acl_enable(self) -> bool: ...

    @property
    def authentication_enabled(self) -> bool: ...


def has_access_control(config: _Switches) -> bool:
    """Whether a broker or name server checks its requests, by the rules of RocketMQ 4 or 5."""
    return config.acl_enable or config.authentication_enabled


def own_account() -> Account:
    """An account of one server only, until it stops: it signs what the server sends to itself, where
    the configuration names no account for its requests."""
    return Account(
        name=f"own-{secrets.token_hex(_OWN_BYTES)}", secret_key=secrets.token_hex(_OWN_BYTES), is_admin=True
    )


def inner_keys(config: InnerCredentialsSettings) -> SigningKeys | None:
    """The keys of `innerClientAuthenticationCredentials`; None: requests are not signed."""
    parsed = parse_inner_credentials(config.inner_client_authentication_credentials)
    return None if parsed is None else SigningKeys(*parsed)
