"""Chaos in short: faults of all kinds by a seed, under load, and no finding of the checker.

KOUROU_SEED=n repeats a seed, KOUROU_CHAOS_PLAN=FILE a plan as it was printed. The history of a run with
findings is kept in build/chaos. `python -m benchmarks soak_failover` does the same for hours.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.crash.rounds import REPLAY, first_seed, replayable, summaries
from tests.failover.chaos import chaos_set, run_chaos
from tests.failover.faults import Plan
from tests.failover.findings import Fault
from tests.failover.history import read_history

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.crash]

LEASE_S = 2
DURATION_S = 55.0
KEPT = Path(__file__).parents[2] / "build" / "chaos"


async def test_nothing_acknowledged_is_lost_and_there_are_never_two_masters(tmp_path: Path) -> None:
    seed = first_seed() if REPLAY is None else int(REPLAY)
    plan = given_plan()
    history = tmp_path / "history.jsonl"
    with replayable(seed):
        async with chaos_set(tmp_path / "set", lease_s=LEASE_S, seed=seed) as brokers:
            result = await run_chaos(brokers, history, seed=seed, duration_s=DURATION_S, plan=plan)
        if result.report.findings:
            KEPT.mkdir(parents=True, exist_ok=True)
            shutil.copy(history, KEPT / f"history-{seed}.jsonl")
        assert not result.report.findings, f"{result.plan}\n{result.report.text()}"
        assert result.fail_overs > 0, "the master never changed"
        assert result.report.counts["acknowledged"] > 0
    summaries.append(
        f"chaos: {result.faults.total()} faults, {result.fail_overs} fail-overs, "
        f"{result.report.counts['acknowledged']} messages acknowledged, none lost; seed {seed}"
    )


async def test_a_set_goes_on_under_load_while_etcd_is_paused(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    plan = Plan.parse(f"0.5 pause-etcd {3 * LEASE_S} 0")
    async with chaos_set(tmp_path / "set", lease_s=LEASE_S, seed=2) as brokers:
        result = await run_chaos(brokers, history, seed=2, duration_s=0, plan=plan)
    assert not result.report.findings, result.report.text()
    operations = list(read_history(history))
    begin_ns, end_ns = (each.begin_ns for each in operations if each.kind == "event")
    without_lease_ns = begin_ns + LEASE_S * 1_500_000_000
    late = [each for each in operations if each.begin_ns > without_lease_ns and (each.end_ns or 0) < end_ns]
    acknowledged = {each.process.partition("@")[0] for each in late if each.is_acknowledged}
    assert {"idempotent-batch-0", "atomic-0"} <= acknowledged, acknowledged


@pytest.mark.nightly
async def test_what_a_set_loses_that_may_lose_messages_is_found(tmp_path: Path) -> None:
    plan = Plan.parse("3 cut-slaves 8 0\n8 kill-master 8 0")
    lossy = {"brokerRole": "ASYNC_MASTER", "failoverMayLoseMessages": "true"}
    async with chaos_set(tmp_path / "set", lease_s=LEASE_S, seed=1, **lossy) as brokers:
        result = await run_chaos(brokers, tmp_path / "history.jsonl", seed=1, duration_s=0, plan=plan)
    assert result.report.faults[Fault.LOST], result.report.text()


def given_plan() -> Plan | None:
    file = os.environ.get("KOUROU_CHAOS_PLAN")
    return Plan.parse(Path(file).read_text()) if file else None
