"""Access: who sends a request, by session cookie or by HTTP basic authentication.

Without a users file everyone who reaches the console is an administrator; it listens on a loopback address
then. Sessions are kept in memory: a restart logs everyone out.

Scripts and Prometheus use basic authentication. Browsers use a session: the cookie is HttpOnly and
SameSite=Strict, and a change must carry the session's CSRF token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from kourou.console.api_errors import ApiError
from kourou.console.endpoints import Role
from kourou.console.security.users import NO_USER, UsersFile, is_password

SESSION_COOKIE: Final = "kourou_session"
SESSION_IDLE_S: Final = 8 * 3600
_MAX_SESSIONS: Final = 1_000
# Failed attempts within a minute: of one user from one address, and of all users from one address. Not of a
# user from any address: that would let a stranger lock an administrator out.
_MAX_FAILURES: Final = 10
_MAX_ADDRESS_FAILURES: Final = 100
_FAILURE_WINDOW_S: Final = 60.0
_MAX_TRACKED: Final = 10_000
# A verified basic authentication is not hashed again for this time.
_BASIC_KEEP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request."""

    user: str
    """Empty without a login."""
    role: Role
    address: str
    csrf_token: str | None
    """What a change must carry; None if none is needed: no browser sends this authentication by itself."""


@dataclass(slots=True)
class _Session:
    user: str
    password_hash: str
    """At the login: a changed password ends the session."""
    csrf_token: str
    seen_s: float


class Access:
    """Users and their sessions. `users` is None if there is no login."""

    def __init__(self, users: UsersFile | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._users = users
        self._clock = clock
        self._open_token = secrets.token_urlsafe(24)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._basic: OrderedDict[bytes, tuple[float, str, str]] = OrderedDict()
        # Each hash takes 16 MiB: few at a time.
        self._hashing = asyncio.Semaphore(2)

    @property
    def is_login_required(self) -> bool:
        """Whether there are users."""
        return self._users is not None

    async def visitor(self, *, cookie: str | None, authorization: str | None, address: str) -> Visitor:
        """The sender of a request; one with `Role.NONE` is not logged in."""
        if self._users is None:
            return Visitor("", Role.ADMINISTRATOR, address, self._open_token)
        if authorization is not None and authorization[:6].lower() == "basic ":
            return await self._by_password(authorization[6:], address)
        return self._by_session(cookie, address)

    async def log_in(self, user: str, password: str, address: str) -> str:
        """Open a session and return the value of its cookie. ApiError 401 or 429."""
        await self._check_password(user, password, address)
        token = secrets.token_urlsafe(32)
        csrf_token = secrets.token_urlsafe(24)
        self._sessions[_key(token)] = _Session(user, self._stored(user), csrf_token, self._clock())
        while len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def log_out(self, cookie: str | None) -> None:
        """End a session."""
        if cookie is not None:
            self._sessions.pop(_key(cookie), None)

    # -- session ---------------------------------------------------------------------------------

    def _by_session(self, cookie: str | None, address: str) -> Visitor:
        session = self._sessions.get(_key(cookie)) if cookie else None
        now = self._clock()
        if cookie is None or session is None or now - session.seen_s > SESSION_IDLE_S:
            self.log_out(cookie)
            return Visitor("", Role.NONE, address, None)
        role = self._role(session.user)
        if role is Role.NONE or session.password_hash != self._stored(session.user):
            self.log_out(cookie)
            return Visitor("", Role.NONE, address, None)
        session.seen_s = now
        self._sessions.move_to_end(_key(cookie))
        return Visitor(session.user, role, address, session.csrf_token)

    def _role(self, user: str) -> Role:
        assert self._users is not None
        found = self._users.users().get(user)
        return found.role if found else Role.NONE

    # -- passwords -------------------------------------------------------------------------------

    async def _by_password(self, encoded: str, address: str) -> Visitor:
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return Visitor("", Role.NONE, address, None)
        known = hmac.digest(self._open_token.encode(), encoded.encode(), hashlib.sha256)
        at_s, stored = self._basic.get(known, (0.0, "", ""))[::2]
        if not (stored and self._clock() - at_s < _BASIC_KEEP_S and stored == self._stored(user)):
            await self._check_password(user, password, address)
            self._basic[known] = self._clock(), user, self._stored(user)
            while len(self._basic) > _MAX_SESSIONS:
                self._basic.popitem(last=False)
        return Visitor(user, self._role(user), address, None)

    def _stored(self, user: str) -> str:
        assert self._users is not None
        found = self._users.users().get(user)
        return found.password_hash if found else ""

    async def _check_password(self, user: str, password: str, address: str) -> None:
        limits = {f"{address} {user[:64]}": _MAX_FAILURES, address: _MAX_ADDRESS_FAILURES}
        async with self._hashing:
            # Not before: attempts that wait here at the same time count, too.
            if any(self._failures_of(key) >= limit for key, limit in limits.items()):
                raise ApiError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too_many_attempts",
                    "too many failed logins",
                    f"try again in {_FAILURE_WINDOW_S:.0f} seconds",
                )
            is_right = await asyncio.to_thread(is_password, password, self._stored(user) or NO_USER)
        if not (is_right and self._stored(user)):
            for key in limits:
                self._note_failure(key)
            raise ApiError(HTTPStatus.UNAUTHORIZED, "wrong_password", "user or password is wrong")

    def _failures_of(self, key: str) -> int:
        since = self._clock() - _FAILURE_WINDOW_S
        return sum(at > since for at in self._failures.get(key, ()))

    def _note_failure(self, key: str) -> None:
        since = self._clock() - _FAILURE_WINDOW_S
        recent = [at for at in self._failures.get(key, ()) if at > since]
        self._failures[key] = [*recent, self._clock()]
        self._failures.move_to_end(key)
        while len(self._failures) > _MAX_TRACKED:
            self._failures.popitem(last=False)


def _key(cookie: str) -> str:
    """Sessions are kept by a hash: comparing it tells nothing about the cookie."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()
