"""ConsoleContext: what all endpoints work with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kourou.admin.doctor.doctor import DEFAULT_WATCH_S
from kourou.client.core.settings import ClientOptions
from kourou.console.audit import AuditLog
from kourou.console.cluster_sessions import ClusterSession, ClusterSessions
from kourou.console.endpoints import Role
from kourou.console.history import History
from kourou.console.message_scans import MessageScans
from kourou.console.running_changes import RunningChanges
from kourou.console.security.access import Access, Visitor
from kourou.console.security.accounts import AccountLogins
from kourou.console.security.logins import FileLogins, Logins
from kourou.console.security.users import UsersFile
from kourou.console.settings import ConsoleSettings
from kourou.transport.http_server import HttpHandler

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The parts of a running console."""

    settings: ConsoleSettings
    sessions: ClusterSessions
    history: History | None
    """None with logins by accounts, unless the console has an account of its own."""
    access: Access
    audit: AuditLog
    scans: MessageScans
    changes: RunningChanges
    metrics: Mapping[str, HttpHandler] | None
    """Of the servers in this process: answers with metrics, by path."""

    @asynccontextmanager
    async def session_of(self, visitor: Visitor) -> AsyncIterator[ClusterSession | None]:
        """The cluster as a visitor sees it; None for one who is not logged in. The only place that decides
        with which keys somebody's requests are signed."""
        if visitor.role is Role.NONE:
            yield None
        elif not self.settings.accounts:
            yield self.sessions.own
        else:
            assert visitor.credentials is not None
            async with self.sessions.of(visitor.credentials) as session:
                yield session

    async def drop_logged_out(self) -> None:
        """Close the sessions of accounts that nobody is logged in with any more: their keys are gone."""
        await self.sessions.retain(self.access.credentials())

    def history_for(self, visitor: Visitor) -> History | None:
        """The history, which the console samples with its own account; None for visitors who may not see what
        that account sees."""
        is_own = not self.settings.accounts or visitor.role is Role.ADMINISTRATOR
        return self.history if is_own else None


@asynccontextmanager
async def console_context(
    settings: ConsoleSettings,
    client: ClientOptions,
    metrics: Mapping[str, HttpHandler] | None = None,
    *,
    watch_s: float = DEFAULT_WATCH_S,
) -> AsyncIterator[ConsoleContext]:
    """Start the parts, and stop them in reverse. ConfigError if the users or the audit log cannot be used.
    `metrics` are those of the servers in this process; without any, those of the cluster are collected.
    `watch_s`: how long an examination by doctor watches the cluster."""
    audit = AuditLog(settings.audit_file)
    audit.check()
    logins = _logins(settings, client)
    async with AsyncExitStack() as parts:
        sessions = ClusterSessions(client, watch_s=watch_s)
        parts.push_async_callback(sessions.stop)
        await sessions.start()
        history = None
        if not settings.accounts or client.get("credentials") is not None:
            history = History(sessions.own.view)
            await history.start()
            parts.push_async_callback(history.stop)
        scans = MessageScans()
        parts.push_async_callback(scans.stop)
        changes = RunningChanges()
        parts.push_async_callback(changes.stop)
        context = ConsoleContext(settings, sessions, history, Access(logins), audit, scans, changes, metrics)
        parts.push_async_callback(_stop, asyncio.create_task(_sweep(context), name="console-logins"))
        yield context


def _logins(settings: ConsoleSettings, client: ClientOptions) -> Logins | None:
    if settings.accounts:
        return AccountLogins(client)
    if settings.users_file is None:
        return None
    users = UsersFile(settings.users_file)
    users.load()
    if (own := client.get("credentials")) is not None:
        _log.warning(
            "the users of %s all act with the account %s; with --accounts each acts with an own one",
            settings.users_file,
            own.access_key,
        )
    return FileLogins(users)


async def _sweep(context: ConsoleContext) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        try:
            context.access.drop_expired()
            await context.sessions.close_idle()
            await context.drop_logged_out()
        except Exception:
            _log.exception("expired logins and idle sessions are not closed; tried again in %d s", _SWEEP_S)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
