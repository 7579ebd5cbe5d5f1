"""ClusterSessions: the cluster as each account sees it, and as the console itself does.

With logins by accounts of the cluster, nothing that was read for one account is shown to another: each has
connections that sign with its keys, and shared reads, an examination and an exporter of its own. People with
the same keys share them. A session without requests is closed after some minutes, and opened again by the
next one.

The console's own session signs with the keys that it was configured with, if any. Without logins, or with the
console's users, all visitors use it; with logins by accounts only the history does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kourou.admin.doctor.doctor import DEFAULT_WATCH_S
from kourou.admin.exporter import ExporterCache
from kourou.client.core.credentials import Credentials
from kourou.client.core.settings import ClientOptions
from kourou.console.api.doctor import Doctor
from kourou.console.cluster_view import ClusterView
from kourou.console.responsive_admin import ResponsiveAdmin

IDLE_S: Final = 600.0
"""Longer than a download of dead letters takes, which goes on after its request was handled."""


class ClusterSession:
    """The cluster as one account sees it. Use it inside `async with`."""

    def __init__(self, client: ClientOptions, *, examining: asyncio.Semaphore, watch_s: float) -> None:
        self.admin = ResponsiveAdmin(**client)
        self.view = ClusterView(self.admin)
        self.doctor = Doctor(self.admin, watch_s=watch_s, limiter=examining)
        self.exporter = ExporterCache(self.admin)
        self._parts = AsyncExitStack()

    async def start(self) -> None:
        """Connect."""
        await self._parts.enter_async_context(self.admin)
        self._parts.push_async_callback(self.view.stop)
        self._parts.push_async_callback(self.doctor.stop)

    async def stop(self) -> None:
        """Cancel reads that are under way, and disconnect."""
        await self._parts.aclose()


@dataclass(slots=True)
class _Kept:
    session: ClusterSession
    started: asyncio.Task[None]
    used_s: float
    users: int = 0
    is_dropped: bool = False
    """Closed with its last use."""


class ClusterSessions:
    """Opens and closes sessions. `start` and `stop` it once."""

    def __init__(
        self,
        client: ClientOptions,
        *,
        watch_s: float = DEFAULT_WATCH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._clock = clock
        self._watch_s = watch_s
        # Each examination is a process.
        self._examining = asyncio.Semaphore(2)
        self.own = self._new(client)
        """With the keys of the console's configuration."""
        self._salt = secrets.token_bytes(16)
        self._kept: dict[bytes, _Kept] = {}

    async def start(self) -> None:
        """Connect the console's own session."""
        await self.own.start()

    async def stop(self) -> None:
        """Close all."""
        kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            await self._close(one)
        await self.own.stop()

    @asynccontextmanager
    async def of(self, credentials: Credentials) -> AsyncIterator[ClusterSession]:
        """The session of an account; it stays open at least as long as the block."""
        key = self._key(credentials)
        kept = self._kept.get(key)
        if kept is None:
            session = self._new({**self._client, "credentials": credentials})
            started = asyncio.create_task(session.start(), name="console-session-start")
            kept = self._kept[key] = _Kept(session, started, self._clock())
        kept.users += 1
        try:
            await asyncio.shield(kept.started)
            yield kept.session
        finally:
            kept.users -= 1
            kept.used_s = self._clock()
            if kept.is_dropped and not kept.users:
                await self._close(kept)

    def forget(self) -> None:
        """Something was changed: all accounts read it anew."""
        for session in (self.own, *(kept.session for kept in self._kept.values())):
            session.view.forget()

    async def close_idle(self) -> None:
        """Close sessions without requests for a while."""
        since = self._clock() - IDLE_S
        await self._drop([key for key, kept in self._kept.items() if not kept.users and kept.used_s < since])

    async def retain(self, logged_in: Iterable[Credentials]) -> None:
        """Close the sessions of all other accounts, those in use with the end of their use."""
        keys = {self._key(credentials) for credentials in logged_in}
        await self._drop([key for key in self._kept if key not in keys])

    async def _drop(self, keys: Iterable[bytes]) -> None:
        for kept in [self._kept.pop(key) for key in keys]:
            kept.is_dropped = True
            if not kept.users:
                await self._close(kept)

    def _new(self, client: ClientOptions) -> ClusterSession:
        return ClusterSession(client, examining=self._examining, watch_s=self._watch_s)

    def _key(self, credentials: Credentials) -> bytes:
        """The secret key is part of it: wrong keys must not lead to what the right ones have read."""
        words = (credentials.access_key, credentials.secret_key, credentials.security_token or "")
        return hmac.digest(self._salt, "\0".join(words).encode(), hashlib.sha256)

    @staticmethod
    async def _close(kept: _Kept) -> None:
        await asyncio.gather(kept.started, return_exceptions=True)
        await kept.session.stop()
