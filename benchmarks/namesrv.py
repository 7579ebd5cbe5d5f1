"""Name server: many brokers that share many topics; ours and Apache's in one run.

    python -m benchmarks.namesrv                                 ours, Apache 4.9.7 and 5.5.0
    python -m benchmarks.namesrv --apache none                   ours alone
    python -m benchmarks.namesrv --address HOST:PORT --pid PID   a server that runs already

Each server gets the same load from the same program (_namesrv_load.py) on the same machine. The
result is printed, and written to benchmarks/results/namesrv.md with `--write`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import platform
import sys
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._namesrv_load import Load, Measured, ServerProbe

RESULT = Path(__file__).parent / "results" / "namesrv.md"
# The heap that Apache's own start script gives a name server is 4 GB; half of that is enough here.
JVM_OPTIONS = ("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC")


@dataclass(frozen=True)
class Row:
    """One number of one server, and whether more of it is better."""

    name: str
    unit: str
    value: float
    more_is_better: bool


async def measure(load: Load, probe: ServerProbe, seconds: float) -> list[Row]:
    """Run all phases against one server."""
    idle = probe.rss_bytes()
    await load.connect_brokers()
    built = await load.register_all(counter=0, sent_ms=1)
    full = probe.rss_bytes()
    again = await load.register_all(counter=0, sent_ms=2)
    changed = await load.register_all(counter=1, sent_ms=3)
    own = await load.register_own(counter=2)
    # Each kind of query twice; the first time is for the JVM to compile what it runs.
    await load.query_shared(connections=8, in_flight=4, seconds=seconds)
    shared = await load.query_shared(connections=8, in_flight=4, seconds=seconds)
    await load.query_own(connections=8, in_flight=32, seconds=seconds)
    small = await load.query_own(connections=8, in_flight=32, seconds=seconds)
    one = await load.query_own(connections=1, in_flight=1, seconds=seconds)
    after = probe.rss_bytes()
    closed = await load.close_brokers()
    return [
        *_rates("first registration, all topics", built),
        *_rates("repeated registration, unchanged", again),
        *_rates("repeated registration, new data version", changed),
        *_rates("registration of one more topic", own),
        *_rates(f"route of a shared topic ({shared.received_bytes // shared.requests:,} bytes)", shared),
        *_rates(f"route of a topic on one broker ({small.received_bytes // small.requests:,} bytes)", small),
        *_rates("the same, one connection, one at a time", one),
        Row("all brokers lost at once, until none is shown", "s", closed.seconds, False),
        Row("memory, idle", "MB", idle / 1e6, False),
        Row("memory, table built", "MB", full / 1e6, False),
        Row("memory, after all queries", "MB", after / 1e6, False),
    ]


def _rates(name: str, measured: Measured) -> list[Row]:
    return [
        Row(name, "1/s", measured.per_second, True),
        Row(f"{name}: server CPU", "µs", measured.cpu_us, False),
    ]


def best(some: list[Row], others: list[Row]) -> list[Row]:
    """The better of each number of two rounds: what the machine did besides only makes it worse."""
    return [_better(*rows) for rows in zip(some, others, strict=True)]


def _better(one: Row, other: Row) -> Row:
    return one if (one.value > other.value) == one.more_is_better else other


def run_one(version: str, work_dir: Path, options: argparse.Namespace) -> list[Row]:
    """Start a server, ours when no version is given, measure it, stop it."""
    from tests.interop.kit import apache
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    if version:
        server = apache.start_namesrv(version, work_dir, jvm_options=JVM_OPTIONS)
    else:
        server = launch_kourou_namesrv(work_dir).wait_ready()
    with server:
        return run_at(server.address, server.pid, options)


def run_at(address: str, pid: int, options: argparse.Namespace) -> list[Row]:
    """Measure a server that runs."""
    probe = ServerProbe(pid)
    load = Load(address, probe, brokers=options.brokers, topics=options.topics)
    return _run(measure(load, probe, options.seconds))


def _run(work: Coroutine[Any, Any, list[Row]]) -> list[Row]:
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(work)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def table(results: dict[str, list[Row]]) -> str:
    """Markdown: a row for each number, a column for each server, and how ours compares."""
    names = list(results)
    heads = ["", "unit", *names, *(f"Kourou : {name}" for name in names[1:])]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for rows in zip(*results.values(), strict=True):
        ours = rows[0]
        ratios = [_ratio(ours, theirs) for theirs in rows[1:]]
        cells = [ours.name, ours.unit, *(_number(row.value) for row in rows), *ratios]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratio(ours: Row, theirs: Row) -> str:
    better = ours.value / theirs.value if ours.more_is_better else theirs.value / ours.value
    return f"{better:.1f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"


def report(results: dict[str, list[Row]], options: argparse.Namespace) -> str:
    """The whole result, with date, machine and command."""
    cpu = _cpu_model()
    lines = [
        "# Name server under load",
        "",
        f"{options.brokers:,} brokers, each with a connection of its own, that all have the same "
        f"{options.topics:,} topics, and one topic of their own. One server at a time, its load on the "
        f"same machine. `python -m benchmarks.namesrv {' '.join(sys.argv[1:])}`".rstrip(" `")
        + "`",
        "",
        f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"Apache's with {' '.join(JVM_OPTIONS)}. In the last columns more than 1 means that ours is "
        "better: more requests, or less CPU, time, memory. Memory is what the process holds (RSS). "
        f"Best of {options.rounds}. Load average at the end: {os.getloadavg()[1]:.1f} over five minutes; "
        "much above 2 means that others used the cores too, which costs a server on one core more "
        "than one on two, and leaves the CPU rows as the fairer ones.",
        "",
        table(results),
        "",
    ]
    return "\n".join(lines)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each query phase")
    parser.add_argument("--rounds", type=int, default=1, help="each server in turn; the best counts")
    parser.add_argument("--apache", default="4.9.7,5.5.0", help="versions, or none")
    parser.add_argument("--address", help="a server that runs already")
    parser.add_argument("--pid", type=int, help="its process")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} too")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = _options()
    results: dict[str, list[Row]] = {}
    if options.address:
        results["server"] = run_at(options.address, options.pid, options)
    else:
        with tempfile.TemporaryDirectory() as work_dir:
            for version in ["", *_apache_versions(options.apache)] * options.rounds:
                name = f"Apache {version}" if version else "Kourou"
                print(f"{name} ...", file=sys.stderr)
                rows = run_one(version, Path(work_dir), options)
                results[name] = best(results.get(name, rows), rows)
    text = report(results, options)
    print(text)
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text)


def _apache_versions(asked: str) -> list[str]:
    from tests.interop.kit import artifacts

    if asked == "none":
        return []
    missing = artifacts.missing_tools()
    if missing:
        print(f"without Apache: {missing}", file=sys.stderr)
        return []
    return asked.split(",")


if __name__ == "__main__":
    main()
