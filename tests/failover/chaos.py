"""Chaos: a workload on a broker set under a plan of faults, and what the checker says of its history."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.failover.faults import Nemesis, Plan, kinds_for, make_plan
from tests.failover.findings import Report
from tests.failover.network import open_network
from tests.failover.reigns import noted_reigns
from tests.failover.set_kit import BrokerSet
from tests.failover.workload import Workload, WorkloadOptions

_RECOVER_S: Final = 120.0
_KEYS: Final[Mapping[str, object]] = {
    "haMaxTimeSlaveNotCatchup": 3000,  # most faults are longer: the in-sync set shrinks and grows
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 500,
    "transactionCheckMax": 10_000,  # a producer that comes late is still asked
}
# While etcd is away, a loss of etcd ends no reign: at least one fault has to.
_FIRST: Final = ("kill-master", "pause-etcd", "kill-etcd")


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """What was injected, and what became of it."""

    plan: Plan
    faults: Counter[str]
    fail_overs: int
    """How many reigns began."""
    report: Report


@asynccontextmanager
async def chaos_set(folder: Path, *, lease_s: int, seed: int, **keys: object) -> AsyncIterator[BrokerSet]:
    """A set of three brokers and three members of etcd, with all that faults need and this machine has.
    By one seed in three its masters go on without etcd. `keys` are further settings."""
    if seed % 3 == 2:
        keys = {"failoverContinuesWithoutEtcd": "true", **keys}
    brokers = BrokerSet(
        folder,
        open_network(),
        etcd_members=3,
        lease_s=lease_s,
        has_disks=can_mount(),
        keys={**_KEYS, **keys},
    )
    async with brokers:
        yield brokers


async def run_chaos(
    brokers: BrokerSet, history: Path, *, seed: int, duration_s: float, plan: Plan | None = None
) -> ChaosResult:
    """Faults by a plan, or one of the seed, under load. The plan is printed."""
    plan = plan or make_plan(
        seed=seed,
        duration_s=duration_s,
        lease_s=brokers.lease_s,
        kinds=kinds_for(brokers),
        first=_FIRST if brokers.continues_without_etcd else (),
    )
    print(f"seed {seed}; the plan:\n{plan}", flush=True)
    async with Workload(
        brokers.namesrv_address, history, WorkloadOptions(seed=seed, topic=f"Chaos{seed}")
    ) as work:
        nemesis = Nemesis(brokers, note=partial(work.history.event, "fault"))
        before = (await brokers.state()).epoch
        async with noted_reigns(brokers.etcd, brokers.keys, work.history):
            await nemesis.run(plan)
            await brokers.wait_in_sync(within_s=_RECOVER_S)
        report = await work.finish()
        fail_overs = (await brokers.state()).epoch - before
    return ChaosResult(plan, nemesis.counts, fail_overs, report)


def can_mount() -> bool:
    """Whether this user can mount file systems."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
        if subprocess.run(["mount", "-t", "tmpfs", "kourou-test", folder], capture_output=True).returncode:
            return False
        subprocess.run(["umount", folder], check=True)
        return True
    return False
