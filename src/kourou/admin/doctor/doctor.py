"""doctor: looks at a whole cluster as an expert would, and says what is wrong and how to mend it.

Two looks are taken, some seconds apart, so that what grows is seen. Nothing is changed, and no offset moves.
A check that fails, for whatever reason, is listed with the reason; the others go on.
Not here: the checks (doctor_checks_*.py), what they look at (cluster_snapshot.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from kourou.admin.doctor.checks_groups import (
    check_client_ids,
    check_client_versions,
    check_dead_letters,
    check_lag,
    check_subscriptions,
    check_unheld_queues,
)
from kourou.admin.doctor.checks_machine import check_machine
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
from kourou.admin.doctor.cluster_snapshot import Scene, look, look_again
from kourou.admin.doctor.findings import DoctorReport, Finding, Severity
from kourou.admin.session import Admin
from kourou.client.core.settings import ClientOptions
from kourou.errors import KourouError

DEFAULT_WATCH_S: Final = 3.0

Check: TypeAlias = Callable[[Scene], Awaitable[Iterable[Finding]]]
_AT_ONE_LOOK: Final[dict[str, Check]] = {
    "name servers": check_namesrvs,
    "brokers": check_brokers,
    "addresses": check_addresses,
    "clocks": check_clocks,
    "disks": check_disks,
    "stores": check_stores,
    "damage": check_damage,
    "compiled kernel": check_kernels,
    "permissions": check_permissions,
    "topics on all masters": check_spread,
    "order configuration": check_order_conf,
    "subscriptions": check_subscriptions,
    "queues without consumer": check_unheld_queues,
    "client ids": check_client_ids,
    "client versions": check_client_versions,
    "transactions": check_transactions,
    "machine": check_machine,
}
_AT_TWO_LOOKS: Final[dict[str, Check]] = {"lag": check_lag, "dead letters": check_dead_letters}
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
    """Look at one cluster or at all. NoNameServerError if no name server answers."""
    progress("looking at brokers, topics and groups")
    async with _who_knows_brokers(admin) as knowing:
        scene = await look(knowing, cluster, watch_s)
        scene.namesrvs = admin.namesrvs
        return await _examine(scene, progress, half_pending_ms)


@asynccontextmanager
async def _who_knows_brokers(admin: Admin) -> AsyncIterator[Admin]:
    """One whose name server knows brokers: a name server that forgot them is found, and is not the end."""
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
    scene: Scene, progress: Callable[[str], None], half_pending_ms: int | None
) -> DoctorReport:
    loop = asyncio.get_running_loop()
    watch_s = scene.watch_s
    if half_pending_ms is not None:
        scene.half_pending_ms = half_pending_ms
    second_look_s = loop.time() + watch_s
    findings: list[Finding] = []
    for name, check in _AT_ONE_LOOK.items():
        progress(f"checking {name}")
        findings += await _run(name, check, scene)
    progress(f"watching for {watch_s:g} seconds")
    await asyncio.sleep(max(0.0, second_look_s - loop.time()))
    await look_again(scene)
    for name, check in _AT_TWO_LOOKS.items():
        findings += await _run(name, check, scene)
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    skipped = list(dict.fromkeys(scene.not_checked))
    return DoctorReport(len(scene.brokers), len(scene.user_topics), len(scene.groups), findings, skipped)


async def _run(name: str, check: Check, scene: Scene) -> list[Finding]:
    try:
        return list(await check(scene))
    except (KourouError, OSError) as error:
        scene.skip(name, "", error)
    except Exception as error:
        # An answer that nobody thought of must not hide what the other checks found.
        _log.debug("check %s failed", name, exc_info=True)
        scene.skip(name, "", f"{type(error).__name__}: {error}")
    return []
