"""Soak of fail-over: a broker set under load whose members, links and etcd fail, for long.

    python -m benchmarks soak_failover                two hours
    python -m benchmarks soak_failover --minutes 5 --seed 7

Rounds of some minutes on one set of three brokers and three members of etcd: faults by a plan of the seed
(tests/failover/faults.py), one or two at once, while producers and consumers of all kinds work. At the end of
each round everything is healed, every queue is read, and the history is checked (tests/failover/checker.py).
By one seed in three the set has failoverContinuesWithoutEtcd=true. Fails at the first round with a finding;
its history is kept beside the result, and so are the logs of a set
that does not recover. Result: printed, and soak-failover-DATE-MACHINE.md in
benchmarks/results. Needs etcd; links are cut by network namespaces where the user is root and has `ip` and
`nft`, by proxies otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._broker_report import cpu_model, machine, machine_name

RESULTS = Path(__file__).parent / "results"
ROUND_S = 240.0
LEASE_S = 2


@dataclass
class Soak:
    """The sum of all rounds."""

    rounds: int = 0
    minutes: float = 0.0
    network: str = ""
    continues_without_etcd: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    fail_overs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


async def soak(minutes: float, seed: int, folder: Path, results: Path) -> Soak:
    """Rounds until the time is over, or one has a finding."""
    from tests.failover.chaos import chaos_set, run_chaos

    total = Soak()
    began = time.monotonic()
    async with chaos_set(folder / "set", lease_s=LEASE_S, seed=seed) as brokers:
        total.network = type(brokers.network).__name__.lower()
        total.continues_without_etcd = brokers.continues_without_etcd
        while (left_s := minutes * 60 - (time.monotonic() - began)) > 0 and not total.findings:
            history = folder / "history.jsonl"
            duration_s = min(ROUND_S, max(30.0, left_s))
            try:
                result = await run_chaos(brokers, history, seed=seed + total.rounds, duration_s=duration_s)
            except AssertionError:
                keep_logs(folder / "set", results / f"soak-failover-{seed + total.rounds}-logs")
                raise
            total.rounds += 1
            total.faults += result.faults
            total.fail_overs += result.fail_overs
            total.counts.update(result.report.counts)
            if result.report.findings:
                total.findings = [f"seed {seed + total.rounds - 1}", *map(str, result.report.findings)]
                shutil.copy(history, results / f"soak-failover-{seed + total.rounds - 1}.jsonl")
            history.unlink()
            total.minutes = (time.monotonic() - began) / 60
            print(
                f"round {total.rounds}: {total.faults.total()} faults, {total.fail_overs} fail-overs, "
                f"{total.counts['acknowledged']} messages acknowledged, {len(total.findings)} findings",
                flush=True,
            )
    return total


def keep_logs(servers: Path, target: Path) -> None:
    """Copy the logs of all servers of a set that did not recover."""
    target.mkdir(parents=True, exist_ok=True)
    for log in servers.glob("*/log"):
        shutil.copy(log, target / f"{log.parent.name}.log")


def report(total: Soak, command: str) -> str:
    """The result as a page."""
    verdict = (
        "No acknowledged message was lost, none was stored twice that was allowed once, atomic publishes "
        "were visible as a whole or not at all, and there were never two masters that acknowledged."
    )
    if total.findings:
        verdict = "\n".join(["WRONG:", "", *(f"- {text}" for text in total.findings)])
    rows = [f"| {kind} | {count} |" for kind, count in sorted(total.faults.items())]
    counts = [f"| {name} | {count:,} |" for name, count in total.counts.items()]
    lost = sum(text.startswith("LOST:") for text in total.findings)
    return "\n".join(
        [
            "# Soak of fail-over",
            "",
            f"`{command}`",
            "",
            f"{machine()}. Three brokers with a lease of {LEASE_S} s, three members of etcd, links cut by "
            f"{total.network}, failoverContinuesWithoutEtcd={str(total.continues_without_etcd).lower()}. "
            f"{total.minutes:.0f} minutes, {total.rounds} rounds.",
            "",
            f"{total.faults.total()} faults, {total.fail_overs} fail-overs, "
            f"{total.counts['acknowledged']:,} messages acknowledged, {lost} lost.",
            "",
            verdict,
            "",
            *("| fault | injected |", "|---|---|", *rows, ""),
            *("| of the histories | |", "|---|---|", *counts, ""),
        ]
    )


def main(words: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0, help="how long (120)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="of load and faults")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the result goes")
    options = parser.parse_args(words)
    options.results.mkdir(parents=True, exist_ok=True)
    logging.getLogger("kourou").addHandler(logging.NullHandler())  # what clients say of faults
    with tempfile.TemporaryDirectory(prefix="kourou-failover-", ignore_cleanup_errors=True) as name:
        total = asyncio.run(soak(options.minutes, options.seed, Path(name), options.results))
    command = f"python -m benchmarks soak_failover --minutes {options.minutes:g} --seed {options.seed}"
    text = report(total, command)
    print(text)
    machine_text = machine_name(cpu_model(), os.cpu_count() or 1)
    (options.results / f"soak-failover-{datetime.date.today()}-{machine_text}.md").write_text(text)
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
