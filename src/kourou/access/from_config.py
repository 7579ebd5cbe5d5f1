"""From the configuration of a server to the parts of its gate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from kourou.access.audit_log import AuditLog, RotatedFile
from kourou.access.lockout import Lockout
from kourou.access.openings import Opening
from kourou.access.quotas import LimitsFile
from kourou.config.access_settings import (
    AccessGateSettings,
    AccessSettings,
    AuditLogSettings,
    LockoutSettings,
)
from kourou.config.keys import settings_of

_log = logging.getLogger(__name__)


def openings_of(config: AccessSettings) -> list[Opening]:
    """The holes of RocketMQ that the configuration opens again."""
    attributes = settings_of(AccessSettings)
    found = [opening for opening in Opening if getattr(config, attributes[opening.value][0])]
    if found:
        _log.warning("open as in RocketMQ: %s", ", ".join(opening.value for opening in found))
    return found


def lockout_of(config: LockoutSettings) -> Lockout | None:
    """What counts wrong logins; None: nothing does."""
    if not config.access_lockout_attempts:
        return None
    return Lockout(
        attempts=config.access_lockout_attempts,
        window_ms=config.access_lockout_window,
        time_ms=config.access_lockout_time,
    )


def limits_file_of(config: AccessGateSettings, home: Path) -> LimitsFile:
    """Where the limits of accounts are."""
    return LimitsFile(Path(config.access_limits_path or home / "conf" / "limits.json"))


def audit_log_of(
    config: AuditLogSettings, home: Path, name: str, now_ms: Callable[[], int]
) -> AuditLog | None:
    """The audit log of a server, in the file `name` if the configuration names none; None: there is none."""
    if not config.access_audit_log_enable:
        return None
    file = RotatedFile(
        Path(config.access_audit_log_path or home / "logs" / name),
        max_bytes=config.access_audit_log_file_size,
        backups=config.access_audit_log_files,
    )
    return AuditLog(file, interval_ms=config.access_audit_log_interval, now_ms=now_ms)
