"""The account of a server's own requests: brokers to name servers and to each other.

The value is RocketMQ's: `{"accessKey": "…", "secretKey": "…"}`. Not here: signing (protocol/signature.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from kourou.config.keys import STRING, setting

_FORM: Final = '{"accessKey":"…","secretKey":"…"}, neither of them empty'


def parse_inner_credentials(text: str) -> tuple[str, str] | None:
    """Access key and secret key; None for the empty text, and for what is not of that form.

    >>> parse_inner_credentials('{"accessKey":"inner","secretKey":"s"}')
    ('inner', 's')
    """
    try:
        given = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(given, dict):
        return None
    access_key, secret_key = given.get("accessKey"), given.get("secretKey")
    if isinstance(access_key, str) and isinstance(secret_key, str) and access_key and secret_key:
        return access_key, secret_key
    return None


def _check(text: str) -> str | None:
    return None if not text or parse_inner_credentials(text) is not None else _FORM


# The methods are generated once, for each component's class: a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class InnerCredentialsSettings:
    """What brokers and name servers sign their own requests with."""

    inner_client_authentication_credentials: str = setting(
        "Access control",
        "innerClientAuthenticationCredentials",
        STRING,
        "",
        'The account that signs this server\'s own requests, `{"accessKey":"…","secretKey":"…"}`: those of a '
        "broker to its name servers, its master and other brokers, and the link of a slave to its master. It "
        "must be an administrator's wherever they go; the brokers of one `brokerName` need the same. Never "
        "shown. Empty: unsigned.",
        live=False,
        protected=True,
        secret=True,
        shown=False,
        check=_check,
    )
