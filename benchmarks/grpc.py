"""gRPC clients at Kourou and at Apache's proxy in local mode (5.5.0), side by side.

Sends of 1 KiB with one call and with 64 in flight on one connection, and receives of up to 32 messages with
an ack for each; rate, processor time of the server per message, memory, start. The load (grpc_load) is in Go,
with the stubs of Apache's client. Both sides run at once, rows alternate between them; medians of all rounds.

    python -m benchmarks grpc --rounds 3 --seconds 5
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.interop.kit import go_programs, wire
from tests.interop.kit.grpc import sides
from tests.interop.kit.grpc.apache_proxy import launch_apache_proxy
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.ports import free_broker_port
from tests.interop.kit.process import ServerProcess

from benchmarks._cpu_time import own_s

JVM_OPTIONS = ("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")
TOPIC = "bench"
GROUP = "bench"
QUEUES = 8
# The compiler of the JVM and the caches of both are warm after that.
WARM_UP_S = 10.0
BEFORE_EACH_S = 1.0
ROWS = {
    "send, one call": ("send", 1),
    "send, 64 in flight": ("send", 64),
    "receive and ack, 8 in flight": ("receive", 8),
}


@dataclass
class Side:
    """One server under load."""

    name: str
    server: ServerProcess
    grpc: str
    start_s: float
    start_cpu_s: float

    def anonymous_mb(self) -> float:
        """Resident memory without file pages."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024 / 1e6


def started(name: str, server: ServerProcess, grpc: str, since: float) -> Side:
    server.wait_ready()
    return Side(name, server, grpc, time.monotonic() - since, own_s(server.pid))


def launch_ours(folder: Path) -> tuple[Side, str, str]:
    since = time.monotonic()
    side = sides.launch_side(sides.KOUROU, folder)
    ours = started("Kourou", side.servers[-1], side.endpoints, since)
    return ours, side.broker, side.namesrv


def launch_apaches(folder: Path) -> tuple[Side, str, str]:
    namesrv = launch_kourou_namesrv(folder).wait_ready()
    broker_port = free_broker_port()
    store = folder / "store"
    properties = {
        "listenPort": str(broker_port),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    since = time.monotonic()
    server = launch_apache_proxy(folder, [namesrv.address], properties=properties, jvm_options=JVM_OPTIONS)
    apaches = started("Apache 5.5.0", server, server.address, since)
    return apaches, f"127.0.0.1:{broker_port}", namesrv.address


def run_load(
    program: Path, side: Side, mode: str, in_flight: int, seconds: float, warm_up: float
) -> dict[str, float]:
    """One row at one side."""
    command = [
        str(program),
        f"-address={side.grpc}",
        f"-mode={mode}",
        f"-topic={TOPIC}",
        f"-group={GROUP}",
        f"-in-flight={in_flight}",
        f"-seconds={seconds}",
        f"-warm-up={warm_up}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        load.stdout.readline()
        before = own_s(side.server.pid)
        line = load.stdout.readline()
        used_s = own_s(side.server.pid) - before
    if not line:
        raise SystemExit(f"{side.name}: the load has failed")
    result: dict[str, float] = json.loads(line)
    result["cpu_us"] = used_s / max(1, result["count"]) * 1e6
    return result


def measure(
    program: Path, both: list[Side], rounds: int, seconds: float
) -> dict[tuple[str, str], list[dict[str, float]]]:
    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for side in both:
        run_load(program, side, "send", 64, 1, WARM_UP_S)
    for _ in range(rounds):
        for row, (mode, in_flight) in ROWS.items():
            for side in both:
                found[row, side.name].append(run_load(program, side, mode, in_flight, seconds, BEFORE_EACH_S))
    return found


def table(found: dict[tuple[str, str], list[dict[str, float]]], both: list[Side]) -> str:
    lines = [
        "| | server | messages/s | processor time, µs per message | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    for (row, name), results in found.items():
        middle = {key: statistics.median(result[key] for result in results) for key in results[0]}
        lines.append(
            f"| {row} | {name} | {middle['per_s']:,.0f} | {middle['cpu_us']:.0f} "
            f"| {middle['p50_ms']:.2f} | {middle['p99_ms']:.2f} |"
        )
    lines += ["", "| server | start s | its processor time s | memory after it MB | after the load MB |"]
    lines.append("|---|---|---|---|---|")
    for side in both:
        lines.append(
            f"| {side.name} | {side.start_s:.1f} | {side.start_cpu_s:.1f} | {MEMORY[side.name]:.0f} "
            f"| {side.anonymous_mb():.0f} |"
        )
    return "\n".join(lines)


MEMORY: dict[str, float] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--ours-only", action="store_true", help="without Apache's")
    options = parser.parse_args()
    program = go_programs.program(Path(__file__).parent / "grpc_load")
    with tempfile.TemporaryDirectory() as folder:
        both: list[Side] = []
        launchers = [launch_ours] if options.ours_only else [launch_ours, launch_apaches]
        for launch in launchers:
            side, broker, namesrv = launch(Path(folder, launch.__name__))
            wire.wait_route(namesrv, "TBW102", broker)
            wire.create_topic(broker, [namesrv], TOPIC, QUEUES)
            wire.create_group(broker, GROUP)
            MEMORY[side.name] = side.anonymous_mb()
            both.append(side)
        print(table(measure(program, both, options.rounds, options.seconds), both))
        print(f"\nload average {os.getloadavg()[0]:.1f}")
        for side in both:
            side.server.kill()


if __name__ == "__main__":
    main()
