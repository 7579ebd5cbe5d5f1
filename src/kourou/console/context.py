"""ConsoleContext: what all endpoints work with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from kourou.admin.exporter import ExporterCache
from kourou.admin.session import Admin
from kourou.client.core.settings import ClientOptions
from kourou.console.api.doctor import Doctor
from kourou.console.audit import AuditLog
from kourou.console.cluster_view import ClusterView
from kourou.console.history import History
from kourou.console.message_scans import MessageScans
from kourou.console.responsive_admin import ResponsiveAdmin
from kourou.console.running_changes import RunningChanges
from kourou.console.security.access import Access
from kourou.console.security.users import UsersFile
from kourou.console.settings import ConsoleSettings
from kourou.metrics.families import Family
from kourou.metrics.process import process_families
from kourou.transport.http_server import HttpHandler
from kourou.transport.metrics_http import EXPORTER_METRICS, METRICS, metrics_handler


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
    changes: RunningChanges
    metrics: Mapping[str, HttpHandler]
    """Answers with metrics, by path."""


@asynccontextmanager
async def console_context(
    settings: ConsoleSettings, client: ClientOptions, metrics: Mapping[str, HttpHandler] | None = None
) -> AsyncIterator[ConsoleContext]:
    """Start the parts, and stop them in reverse. ConfigError if the users or the audit log cannot be used.
    `metrics` are those of the servers in this process; without any, those of the cluster are collected."""
    audit = AuditLog(settings.audit_file)
    audit.check()
    users = UsersFile(settings.users_file) if settings.users_file is not None else None
    if users is not None:
        users.load()
    async with AsyncExitStack() as parts:
        admin = await parts.enter_async_context(ResponsiveAdmin(**client))
        view = ClusterView(admin)
        parts.push_async_callback(view.stop)
        doctor = Doctor(admin)
        parts.push_async_callback(doctor.stop)
        history = History(view)
        await history.start()
        parts.push_async_callback(history.stop)
        scans = MessageScans()
        parts.push_async_callback(scans.stop)
        changes = RunningChanges()
        parts.push_async_callback(changes.stop)
        metrics = cluster_metrics(admin) if metrics is None else metrics
        yield ConsoleContext(
            settings, admin, view, history, doctor, Access(users), audit, scans, changes, metrics
        )


def cluster_metrics(admin: Admin) -> dict[str, HttpHandler]:
    """The metrics of this process, and those of the cluster under the names of rocketmq-exporter."""

    async def process() -> list[Family]:
        return list(process_families())

    return {
        METRICS: metrics_handler(process),
        EXPORTER_METRICS: metrics_handler(ExporterCache(admin).families),
    }
