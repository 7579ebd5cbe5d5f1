"""ConsoleContext: what all endpoints work with."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin.session import Admin
from kourou.console.audit import AuditLog
from kourou.console.cluster_view import ClusterView
from kourou.console.security.access import Access
from kourou.console.settings import ConsoleSettings


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The parts of a running console."""

    settings: ConsoleSettings
    admin: Admin
    view: ClusterView
    access: Access
    audit: AuditLog
