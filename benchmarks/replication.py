"""Sends to a master alone, with a slave, and with synchronous double write; ours beside Apache's.

    python -m benchmarks replication [--apache 4.9.7,5.5.0] [--rounds 3] [--seconds 5]
    python -m benchmarks replication --lag [--rate 5000] [--seconds 20]
    python -m benchmarks replication --catch-up [--gib 2] [--beside none,20000]

One system runs at a time: a master and, but for `alone`, a slave, each a process of its own. Rounds
alternate over all arms. Reported: messages a second, and processor time of master and slave for each message;
the median of all rounds. With `--lag`: the time from a message's arrival in the master's log to that in the
slave's, with senders that keep a rate. With `--catch-up`: how fast a new slave copies a log of so many GiB,
alone and beside senders (messages a second; 0: as fast as they can), and what those lose meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks._broker_loadgen import build
from benchmarks._broker_peers import PeerError, RunningPeer, available, is_ours, launch
from benchmarks._replica_lag import LogReader, catch_up, measure_lags

MODES = ("alone", "async", "sync", "failover")
"""`failover`: sync, in a set that chooses its master through etcd; ours only."""
LOADS = ((1, 1), (8, 32), (16, 64))
_FOLLOW_TIMEOUT_S = 60
_IDLE_S = 0.5
_IDLE_CORES = 0.1
_RECORD_BYTES = 1200  # about, with a body of 1 KiB


class Measurement(NamedTuple):
    """One load on one arm."""

    messages_per_s: float
    master_us: float
    slave_us: float
    p99_us: float
    troubles: list[str]


@contextmanager
def running(
    name: str, mode: str, folder: Path, program: Path
) -> Iterator[tuple[RunningPeer, RunningPeer | None]]:
    """A master that takes messages, and its slave."""
    with running_master(name, mode, folder, program) as (master, start_slave):
        slave = None if mode == "alone" else start_slave()
        master.wait_first_send()
        if slave is not None:
            wait_followed(master, slave)
        yield master, slave


@contextmanager
def running_master(
    name: str, mode: str, folder: Path, program: Path
) -> Iterator[tuple[RunningPeer, Callable[[], RunningPeer]]]:
    """A master that was launched, and what launches its slave."""
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    with ExitStack() as stack:
        work_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        namesrv = stack.enter_context(launch_kourou_namesrv(work_dir)).wait_ready().address

        def start(role: str, settings: dict[str, str]) -> RunningPeer:
            peer = launch(name, work_dir, namesrv, program, "async", store=work_dir / role, settings=settings)
            stack.callback(peer.kill)
            return peer

        settings = {"brokerRole": "SYNC_MASTER" if mode == "sync" else "ASYNC_MASTER"}
        if mode == "sync" and not is_ours(name):
            settings["inSyncReplicas"] = "2"  # else 5.x waits for no slave
        slave_settings = {"brokerRole": "SLAVE", "brokerId": "1"}
        if mode == "failover":
            from tests.integration.etcd.etcd_kit import etcd

            (member,) = stack.enter_context(etcd(work_dir))
            settings = slave_settings = {
                "brokerRole": "SYNC_MASTER",
                "failoverEtcdEndpoints": member.address,
            }
            master = start("master", settings)
            asyncio.run(_wait_for_key(member.address, "/master"))
            yield master, lambda: start("slave", slave_settings)
            return
        yield start("master", settings), lambda: start("slave", slave_settings)


async def _wait_for_key(etcd_address: str, end: str) -> None:
    from kourou.etcd import EtcdClient

    async with EtcdClient([etcd_address]) as client, asyncio.timeout(_FOLLOW_TIMEOUT_S):
        while not any(each.key.endswith(end) for each in (await client.get_prefix("/")).keys):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def wait_followed(master: RunningPeer, slave: RunningPeer) -> None:
    """Return when a load on the master makes the slave work: then it follows."""
    deadline = time.monotonic() + _FOLLOW_TIMEOUT_S
    while True:
        before = slave.cpu_s
        found = master.load.run("send", "-t", "FirstSend", "-c", 8, "-w", 32, "-d", 1)
        if not found.troubles and slave.cpu_s - before > 0.1:
            return
        if time.monotonic() > deadline:
            raise PeerError(f"{slave.name}: the slave does not follow: {found.troubles}")


def wait_idle(peer: RunningPeer) -> None:
    """Return when a broker has no more work: a slave that was behind has everything then."""
    deadline = time.monotonic() + _FOLLOW_TIMEOUT_S
    used_s = -_IDLE_S
    while peer.cpu_s - used_s > _IDLE_S * _IDLE_CORES and time.monotonic() < deadline:
        used_s = peer.cpu_s
        time.sleep(_IDLE_S)


def measure(
    master: RunningPeer, slave: RunningPeer | None, load: tuple[int, int], seconds: float
) -> Measurement:
    """One load; what the slave still has to do afterwards counts as well."""
    connections, window = load
    before = slave.cpu_s if slave else 0.0
    found = master.load.run("send", "-t", "Replicated", "-C", "-c", connections, "-w", window, "-d", seconds)
    if slave is not None:
        wait_idle(slave)
    used_s = slave.cpu_s - before if slave else 0.0
    messages = found.messages_per_s * seconds
    return Measurement(
        found.messages_per_s, found.cpu_us, used_s / messages * 1e6, found.p99_us, found.troubles
    )


def report(results: dict[tuple[str, str, tuple[int, int]], list[Measurement]]) -> str:
    """A table, each row the median of its rounds."""
    lines = [
        "| system | mode | load | messages/s | master µs | slave µs | p99 ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, mode, (connections, window)), found in results.items():
        rate, master_us, slave_us, p99_us = (
            statistics.median(getattr(each, field) for each in found)
            for field in ("messages_per_s", "master_us", "slave_us", "p99_us")
        )
        troubles = "; ".join({trouble for each in found for trouble in each.troubles})
        lines.append(
            f"| {name} | {mode} | {connections}×{window} | {rate:,.0f} | {master_us:.1f} | "
            f"{slave_us:.1f} | {p99_us / 1000:.2f} | {troubles}".rstrip(" |")
            + " |"
        )
    return "\n".join(lines)


def report_lag(names: list[str], folder: Path, program: Path, rate: float, seconds: float) -> str:
    """A table of lags."""
    lines = [
        "| system | messages/s | samples | lag p50 ms | p99 ms | longest ms |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        with running(name, "async", folder, program) as (master, slave), ExitStack() as stack:
            assert slave is not None and master.store is not None and slave.store is not None
            wait_idle(slave)
            options = ("-t", "Lag", "-C", "-c", 8, "-w", 32, "-r", rate, "-d", seconds + 1)
            load = master.load.start("send", *options, log_path=folder / "lag.log")
            stack.callback(load.stop)
            logs = [stack.enter_context(LogReader(peer.store / "commitlog")) for peer in (master, slave)]
            lags = sorted(measure_lags(*logs, seconds))
            sent = load.wait(seconds + _FOLLOW_TIMEOUT_S)
        p50, p99 = (lags[int(len(lags) * share)] * 1000 for share in (0.5, 0.99))
        lines.append(
            f"| {name} | {sent.messages_per_s:,.0f} | {len(lags)} | {p50:.2f} | {p99:.2f} | "
            f"{lags[-1] * 1000:.1f} |"
        )
    return "\n".join(lines)


def report_catch_up(names: list[str], folder: Path, program: Path, gib: float, beside: list[str]) -> str:
    """A table of slaves that catch up; stores of their own for each row."""
    lines = [
        "| system | senders | MB | s | MB/s | sent/s before | meanwhile | longest ms before | meanwhile |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for word in beside:
            with running_master(name, "async", folder, program) as (master, start_slave):
                master.wait_first_send()
                count = int(gib * 2**30 / _RECORD_BYTES)
                master.load.run("send", "-t", "Backlog", "-C", "-c", 8, "-w", 32, "-N", count)
                found = catch_up(master, start_slave, None if word == "none" else float(word), folder)
            senders = [
                "" if figures is None else f"{figures[place]:,.0f}"
                for place in (0, 1)
                for figures in (found.before, found.meanwhile)
            ]
            row = [
                name,
                word,
                f"{found.copied_bytes / 1e6:,.0f}{'' if found.is_caught_up else ', still behind'}",
                f"{found.seconds:.1f}",
                f"{found.mb_per_s:.0f}",
            ]
            lines.append(f"| {' | '.join([*row, *senders])} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--apache", default="none", help="versions, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--lag", action="store_true")
    parser.add_argument("--rate", type=float, default=5000.0)
    parser.add_argument("--catch-up", action="store_true")
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--beside", default="none,20000")
    options = parser.parse_args()
    results: dict[tuple[str, str, tuple[int, int]], list[Measurement]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        program, names = build(Path(folder)), available(options.apache)
        if options.lag:
            print(report_lag(names, Path(folder), program, options.rate, options.seconds))
        if options.catch_up:
            print(report_catch_up(names, Path(folder), program, options.gib, options.beside.split(",")))
        if options.lag or options.catch_up:
            return
        for _ in range(options.rounds):
            for name in names:
                for mode in options.modes.split(","):
                    if mode == "failover" and not is_ours(name):
                        continue
                    with running(name, mode, Path(folder), program) as (master, slave):
                        for load in LOADS:
                            results[name, mode, load].append(measure(master, slave, load, options.seconds))
    print(report(results))


if __name__ == "__main__":
    main()
