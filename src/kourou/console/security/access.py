"""Access: the sender of a request, by session cookie or by HTTP basic authentication.

Without logins every visitor of the console is an administrator; it listens on a loopback address then.
Sessions, and the keys of accounts with them, are kept in memory only: a restart logs everyone out.

Scripts and Prometheus use basic authentication. Browsers use a session: the cookie is HttpOnly and
SameSite=Strict, and a change must carry the session's CSRF token.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from kourou.client.core.credentials import Credentials
from kourou.console.api_errors import ApiError
from kourou.console.endpoints import Role
from kourou.console.security.logins import Login, Logins

_KeyT = TypeVar("_KeyT", str, bytes)

SESSION_COOKIE: Final = "kourou_session"
SESSION_IDLE_S: Final = 8 * 3600
_MAX_SESSIONS: Final = 1_000
# Failed attempts within a minute: of one user from one address, and of all users from one address.
_MAX_FAILURES: Final = 10
_MAX_ADDRESS_FAILURES: Final = 100
_FAILURE_WINDOW_S: Final = 60.0
_MAX_TRACKED: Final = 10_000
# A verified basic authentication that is used is not verified again; one that is not used is forgotten.
_BASIC_KEEP_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request."""

    user: str
    """Empty without a login."""
    role: Role
    address: str
    csrf_token: str | None
    """What a change must carry; None if none is needed: no browser sends this authentication by itself."""
    credentials: Credentials | None = None
    """Of an account of the cluster: signs this visitor's requests to it."""


@dataclass(slots=True)
class _Session:
    login: Login
    renewed_s: float
    seen_s: float
    csrf_token: str = ""


class Access:
    """Logins and sessions. `logins` is None if there is no login."""

    def __init__(self, logins: Logins | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._logins = logins
        self._clock = clock
        self._open_token = secrets.token_urlsafe(24)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._basic: OrderedDict[bytes, _Session] = OrderedDict()
        self._checking = asyncio.Semaphore(logins.at_once if logins else 1)

    @property
    def is_login_required(self) -> bool:
        """Whether there are users."""
        return self._logins is not None

    async def visitor(self, *, cookie: str | None, authorization: str | None, address: str) -> Visitor:
        """The sender of a request; one with `Role.NONE` is not logged in."""
        if self._logins is None:
            return Visitor("", Role.ADMINISTRATOR, address, self._open_token)
        if authorization is not None and authorization[:6].lower() == "basic ":
            return await self._by_password(authorization[6:], address)
        return await self._by_session(cookie, address)

    async def log_in(self, user: str, password: str, address: str) -> str:
        """Open a session and return the value of its cookie. ApiError 401 or 429."""
        login = await self._check_password(user, password, address)
        token = secrets.token_urlsafe(32)
        now = self._clock()
        self._sessions[_key(token)] = _Session(login, now, now, secrets.token_urlsafe(24))
        while len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def log_out(self, cookie: str | None) -> None:
        """End a session."""
        if cookie is not None:
            self._sessions.pop(_key(cookie), None)

    def drop_expired(self) -> None:
        """Forget sessions without requests for a long time, and the keys in them."""
        self._drop(self._sessions, SESSION_IDLE_S)
        self._drop(self._basic, _BASIC_KEEP_S)

    def credentials(self) -> list[Credentials]:
        """The keys of all accounts that are logged in."""
        sessions = (*self._sessions.values(), *self._basic.values())
        return [one.login.credentials for one in sessions if one.login.credentials is not None]

    def _drop(self, sessions: OrderedDict[_KeyT, _Session], idle_s: float) -> None:
        since = self._clock() - idle_s
        for key in [key for key, session in sessions.items() if session.seen_s < since]:
            del sessions[key]

    # -- sessions --------------------------------------------------------------------------------

    async def _by_session(self, cookie: str | None, address: str) -> Visitor:
        if cookie is None:
            return Visitor("", Role.NONE, address, None)
        return await self._in(self._sessions, _key(cookie), SESSION_IDLE_S, address)

    async def _by_password(self, encoded: str, address: str) -> Visitor:
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except ValueError:  # not ASCII, not Base64, or not UTF-8 in it
            return Visitor("", Role.NONE, address, None)
        known = hmac.digest(self._open_token.encode(), encoded.encode(), hashlib.sha256)
        visitor = await self._in(self._basic, known, _BASIC_KEEP_S, address)
        if visitor.role is not Role.NONE:
            return visitor
        login = await self._check_password(user, password, address)
        now = self._clock()
        self._basic[known] = _Session(login, now, now)
        while len(self._basic) > _MAX_SESSIONS:
            self._basic.popitem(last=False)
        return Visitor(login.user, login.role, address, None, login.credentials)

    async def _in(
        self, sessions: OrderedDict[_KeyT, _Session], key: _KeyT, idle_s: float, address: str
    ) -> Visitor:
        """The visitor of a session that has not expired, and whose login has not ended."""
        session = sessions.get(key)
        if session is None or self._clock() - session.seen_s > idle_s or not await self._renew(session):
            sessions.pop(key, None)
            return Visitor("", Role.NONE, address, None)
        if key in sessions:  # no logout in the meantime
            sessions.move_to_end(key)
        session.seen_s = self._clock()
        login = session.login
        return Visitor(login.user, login.role, address, session.csrf_token or None, login.credentials)

    async def _renew(self, session: _Session) -> bool:
        """Whether its login holds; looks again if that is due."""
        assert self._logins is not None
        now = self._clock()
        if now - session.renewed_s < self._logins.renew_s:
            return True
        session.renewed_s = now  # once for concurrent requests
        login = await self._logins.renewed(session.login)
        if login is None:
            session.renewed_s = -math.inf  # the others, too, until it is gone
            return False
        session.login = login
        return True

    # -- passwords -------------------------------------------------------------------------------

    async def _check_password(self, user: str, password: str, address: str) -> Login:
        assert self._logins is not None
        limits = {f"{address} {user[:64]}": _MAX_FAILURES, address: _MAX_ADDRESS_FAILURES}
        if (everywhere := self._logins.max_failures) is not None:
            limits |= {f"* {user[:64]}": everywhere[0], "*": everywhere[1]}
        async with self._checking:
            # Not before: attempts that wait here at the same time count, too.
            if any(self._failures_of(key) >= limit for key, limit in limits.items()):
                raise ApiError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too_many_attempts",
                    "too many failed logins",
                    f"try again in {_FAILURE_WINDOW_S:.0f} seconds",
                )
            login = await self._logins.check(user, password)
        if login is None:
            for key in limits:
                self._note_failure(key)
            raise ApiError(HTTPStatus.UNAUTHORIZED, "wrong_password", self._logins.wrong, self._logins.hint)
        return login

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
    """Sessions are kept by a hash: comparing it reveals nothing about the cookie."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()
