"""The users of the configuration: `initAuthenticationUser`, `innerClientAuthenticationCredentials`.

Both are created as Super users where they are missing. Unlike Apache, a later change of the password in
`innerClientAuthenticationCredentials` is followed: else a broker would sign with a password that its own
table does not have. That of `initAuthenticationUser` is not: the administrator changes it by a request.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kourou.access.auth.data import AuthData
from kourou.access.auth.model import User, UserType
from kourou.access.auth.settings import AuthSettings, Credentials

_log = logging.getLogger(__name__)


def with_configured_users(data: AuthData, settings: AuthSettings) -> AuthData:
    """The same with the users of the configuration."""
    if settings.init_user is not None:
        data = _with_super(data, settings.init_user)
    if settings.inner_credentials is not None:
        data = _following(_with_super(data, settings.inner_credentials), settings.inner_credentials)
    return data


def _with_super(data: AuthData, credentials: Credentials) -> AuthData:
    if credentials.name in data.users:
        return data
    _log.info("user %s of the configuration is created, a Super user", credentials.name)
    return data.with_user(User(credentials.name, credentials.password, UserType.SUPER))


def _following(data: AuthData, credentials: Credentials) -> AuthData:
    user = data.users[credentials.name]
    if user.password == credentials.password:
        return data
    if not user.is_super:
        _log.warning(
            "innerClientAuthenticationCredentials name user %s, not a Super user; the password of the "
            "configuration is not taken over",
            user.name,
        )
        return data
    _log.info("user %s gets the password of innerClientAuthenticationCredentials", user.name)
    return data.with_user(replace(user, password=credentials.password))
