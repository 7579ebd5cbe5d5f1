"""ConsoleContext: what all endpoints work with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from kourou.admin.session import Admin
from kourou.client.core.settings import ClientOptions
from kourou.console.api.doctor import Doctor
from kourou.console.audit import AuditLog
from kourou.console.cluster_view import ClusterView
from kourou.console.history import History
from kourou.console.message_scans import MessageScans
from kourou.console.security.access import Access
from kourou.console.security.users import UsersFile
from kourou.console.settings import ConsoleSettings


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The parts of a running console."""

    settings: ConsoleSettings
    admin: Admin
    view: ClusterView
    history: History
    doctor: Doctor
    access: Access
    audit: AuditLog
    scans: MessageScans


@asynccontextmanager
async def console_context(settings: ConsoleSettings, client: ClientOptions) -> AsyncIterator[ConsoleContext]:
    """Start the parts, and stop them in reverse. ConfigError if the users or the audit log cannot be used."""
    audit = AuditLog(settings.audit_file)
    audit.check()
    users = UsersFile(settings.users_file) if settings.users_file is not None else None
    if users is not None:
        users.load()
    async with AsyncExitStack() as parts:
        admin = await parts.enter_async_context(Admin(**client))
        view = ClusterView(admin)
        parts.push_async_callback(view.stop)
        doctor = Doctor(admin)
        parts.push_async_callback(doctor.stop)
        history = History(view)
        await history.start()
        parts.push_async_callback(history.stop)
        scans = MessageScans()
        parts.push_async_callback(scans.stop)
        yield ConsoleContext(settings, admin, view, history, doctor, Access(users), audit, scans)
