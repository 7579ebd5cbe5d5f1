"""doctor: examines a whole cluster as an expert would, and reports problems and how to fix them.

Two snapshots are taken, some seconds apart, to see what grows. Nothing is changed, and no offset moves.
A check that fails, for whatever reason, is listed with the reason; the others continue.
Not here: the checks (checks_*.py), their input (cluster_snapshot.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from kourou.admin.doctor.checks_access import check_access
from kourou.admin.doctor.checks_failover import check_failover
from kourou.admin.doctor.checks_groups import (
    check_client_ids,
    check_client_versions,
    check_consume_modes,
    check_dead_letters,
    check_lag,
    check_subscriptions,
    check_unheld_queues,
)
from kourou.admin.doctor.checks_machine import check_machine
from kourou.admin.doctor.checks_overflow import check_overflow
from kourou.admin.doctor.checks_replication import check_replication
from kourou.admin.doctor.checks_servers import (
    check_addresses,
    check_brokers,
    check_clocks,
    check_damage,
    check_disks,
    check_kernels,
    check_namesrvs,
    check_stores,
)
from kourou.admin.doctor.checks_topics import check_order_conf, check_permissions, check_spread
from kourou.admin.doctor.checks_transactions import check_transactions
from kourou.admin.doctor.cluster_snapshot import ClusterSnapshot, retake_snapshot, take_snapshot
from kourou.admin.doctor.findings import DoctorReport, Finding, Severity
from kourou.admin.session import Admin
from kourou.client.core.settings import ClientOptions
from kourou.errors import KourouError

DEFAULT_WATCH_S: Final = 3.0

Check: TypeAlias = Callable[[ClusterSnapshot], Awaitable[Iterable[Finding]]]
_ONE_SNAPSHOT_CHECKS: Final[dict[str, Check]] = {
    "name servers": check_namesrvs,
    "brokers": check_brokers,
    "addresses": check_addresses,
    "clocks": check_clocks,
    "disks": check_disks,
    "stores": check_stores,
    "damage": check_damage,
    "compiled kernel": check_kernels,
    "replication": check_replication,
    "fail-over": check_failover,
    "permissions": check_permissions,
    "topics on all masters": check_spread,
    "order configuration": check_order_conf,
    "overflow": check_overflow,
    "subscriptions": check_subscriptions,
    "queues without consumer": check_unheld_queues,
    "client ids": check_client_ids,
    "client versions": check_client_versions,
    "consume modes": check_consume_modes,
    "transactions": check_transactions,
    "machine": check_machine,
    "access control": check_access,
}
_TWO_SNAPSHOT_CHECKS: Final[dict[str, Check]] = {"lag": check_lag, "dead letters": check_dead_letters}
_ORDER: Final = list(Severity)

_log = logging.getLogger(__name__)


async def diagnose(
    admin: Admin,
    cluster: str | None = None,
    *,
    watch_s: float = DEFAULT_WATCH_S,
    progress: Callable[[str], None] = lambda text: None,
    half_pending_ms: int | None = None,
) -> DoctorReport:
    """Check one cluster or all. NoNameServerError if no name server responds."""
    progress("reading brokers, topics and groups")
    async with _namesrv_with_brokers(admin) as informed:
        snapshot = await take_snapshot(informed, cluster, watch_s)
        snapshot.namesrvs = admin.namesrvs
        return await _examine(snapshot, progress, half_pending_ms)


@asynccontextmanager
async def _namesrv_with_brokers(admin: Admin) -> AsyncIterator[Admin]:
    """A session with a name server that knows brokers: one that lost them is a finding, not the end."""
    if not await admin.brokers():
        for address in admin.namesrvs:
            options: ClientOptions = {**admin.options, "namesrv": address}
            async with Admin(**options) as other:
                if await _has_brokers(other):
                    yield other
                    return
    yield admin


async def _has_brokers(admin: Admin) -> bool:
    try:
        return bool(await admin.brokers())
    except KourouError:
        return False


async def _examine(
    snapshot: ClusterSnapshot, progress: Callable[[str], None], half_pending_ms: int | None
) -> DoctorReport:
    loop = asyncio.get_running_loop()
    watch_s = snapshot.watch_s
    if half_pending_ms is not None:
        snapshot.half_pending_ms = half_pending_ms
    second_snapshot_s = loop.time() + watch_s
    findings: list[Finding] = []
    for name, check in _ONE_SNAPSHOT_CHECKS.items():
        progress(f"checking {name}")
        findings += await _run(name, check, snapshot)
    progress(f"watching for {watch_s:g} seconds")
    await asyncio.sleep(max(0.0, second_snapshot_s - loop.time()))
    await retake_snapshot(snapshot)
    for name, check in _TWO_SNAPSHOT_CHECKS.items():
        findings += await _run(name, check, snapshot)
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    skipped = list(dict.fromkeys(snapshot.not_checked))
    return DoctorReport(
        len(snapshot.brokers),
        len(snapshot.user_topics),
        len(snapshot.groups),
        findings,
        skipped,
        snapshot.slaves,
    )


async def _run(name: str, check: Check, snapshot: ClusterSnapshot) -> list[Finding]:
    try:
        return list(await check(snapshot))
    except (KourouError, OSError) as error:
        snapshot.skip(name, "", error)
    except Exception as error:
        # An unexpected response must not hide the findings of other checks.
        _log.debug("check %s failed", name, exc_info=True)
        snapshot.skip(name, "", f"{type(error).__name__}: {error}")
    return []
