"""AuthSettings: the configuration of RocketMQ 5's access control, as the rules use it.

Not here: the keys (config/).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import msgspec

from kourou.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and password of the configuration."""

    name: str
    password: str = field(repr=False)

    @classmethod
    def parse(cls, key: str, text: str | None) -> Self | None:
        """Read the value of `initAuthenticationUser` or `innerClientAuthenticationCredentials`, JSON with
        `username` and `password`, or `accessKey` and `secretKey`; None if it is blank. ConfigError."""
        if not (text or "").strip():
            return None
        try:
            found = msgspec.json.decode(text or "", type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeError):
            found = {}
        name = found.get("username") or found.get("accessKey") or ""
        password = found.get("password") or found.get("secretKey") or ""
        if not name.strip() or not password.strip():
            # Without the value: it has a password.
            raise ConfigError(
                f'{key} must be {{"username":"…","password":"…"}} or {{"accessKey":"…","secretKey":"…"}}'
            )
        return cls(name, password)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """What is checked, and for which requests it is not."""

    is_authentication_enabled: bool = True
    is_authorization_enabled: bool = True
    authentication_whitelist: frozenset[int] = frozenset()
    """Request codes that need no signature."""
    authorization_whitelist: frozenset[int] = frozenset()
    """Request codes that every user may send."""
    init_user: Credentials | None = None
    inner_credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.is_authorization_enabled and not self.is_authentication_enabled:
            raise ConfigError(
                "authorizationEnabled=true needs authenticationEnabled=true: without it every client could "
                "claim to be any user"
            )


def parse_whitelist(key: str, text: str | None) -> frozenset[int]:
    """Read `authenticationWhitelist` or `authorizationWhitelist`: request codes, separated by commas.
    ConfigError."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    wrong = [word for word in words if not word.isascii() or not word.isdecimal()]
    if wrong:
        raise ConfigError(f"{key}: {', '.join(wrong)}: must be request codes, separated by commas")
    return frozenset(map(int, words))
