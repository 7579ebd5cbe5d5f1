"""Soak: our broker under mixed load for a long time; memory, descriptors, and the worst pause of each second.

    python -m benchmarks soak                             30 minutes
    python -m benchmarks soak --minutes 10 --rate 20000   the worst pause at a higher load

Messages go from producers to consumers at a fixed rate, and to a group that pops and acknowledges them;
beside that run batches, delayed and large messages, a group that pops the delayed ones without an ack until
they are dead letters, and with every look at the broker a new consumer that reads old messages and goes.
Memory is flat if it grows by less than 5 % between the first fifth after the warm-up and the last one, and so
are descriptors, without those of the files of log and queues. Result: printed, and
soak-broker-DATE-MACHINE-RATE.md and .json in benchmarks/results. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks._broker_loadgen import Interval, LoadgenError, Measured, RunningLoad, build
from benchmarks._broker_peers import OURS, Launcher, PeerError, RunningPeer
from benchmarks._broker_report import cpu_model, machine, machine_name
from kourou.store.kernel import choose_kernel

RESULTS = Path(__file__).parent / "results"
GROWTH_LIMIT = 0.05
WARM_UP_SHARE = 0.2
PAUSE_MS = 50.0
OLD_TOPIC = "SoakOld"
OLD_MESSAGES = 20_000
# Beside the measured load: their messages a second and what they are.
BESIDE = (
    ("batches", ("-t", "SoakBatches", "-q", 8, "-C", "-c", 2, "-K", 16, "-b", 128, "-r", 800)),
    ("delayed", ("-t", "SoakDelayed", "-q", 4, "-C", "-c", 1, "-L", 1, "-r", 100)),
    ("large", ("-t", "SoakLarge", "-q", 4, "-C", "-c", 1, "-b", 16_384, "-r", 50)),
)
POPS = (
    ("popped", ("-t", "Soak", "-q", 8, "-g", "soak-popping", "-c", 1, "-w", 2)),
    ("not acknowledged", ("-t", "SoakDelayed", "-q", 4, "-g", "soak-forgetting", "-c", 1, "-X", "-v", 5_000)),
)
"""Those that pop, of topics that are filled beside them."""
BESIDE_BYTES_PER_S = 5_000_000
# Small files: a new one every few seconds, so that rolling shows, and so that the pages of the newest file,
# which the broker maps, are a constant part of its resident memory.
SETTINGS = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}
RECORD_BYTES = 1_500
ROOM_BYTES = 4 * 2**30
SAMPLES = 180
TOPICS_S = 3.0
"""Until the topics are there."""
SHORTEST_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Sample:
    """The broker at one moment."""

    at_s: float
    anonymous_mb: float
    resident_mb: float
    descriptors: int


@dataclass(frozen=True)
class SoakResult:
    """What a run found."""

    command: str
    machine: str
    minutes: float
    rate: int
    samples: list[Sample]
    worst_ms: list[float]
    """The slowest send of each second."""
    messages: float
    troubles: list[str]
    other_cores: float

    @property
    def growth(self) -> dict[str, float]:
        """How much each number grew after the warm-up."""
        return {
            "anonymous memory": growth([sample.anonymous_mb for sample in self.samples]),
            "resident memory": growth([sample.resident_mb for sample in self.samples]),
            "open descriptors, files of log and queues apart": growth(
                [float(sample.descriptors) for sample in self.samples]
            ),
        }

    @property
    def is_flat(self) -> bool:
        """Whether nothing grew past the limit."""
        return all(value < GROWTH_LIMIT for value in self.growth.values())


def growth(values: list[float]) -> float:
    """From the first fifth after the warm-up to the last fifth, by their medians: 0.05 is 5 % more."""
    steady = values[int(len(values) * WARM_UP_SHARE) :]
    if len(steady) < 2:
        raise ValueError("too few samples to say whether anything grows")
    fifth = max(1, len(steady) // 5)
    before, after = statistics.median(steady[:fifth]), statistics.median(steady[-fifth:])
    return after / before - 1 if before else 0.0


def soak(peer: RunningPeer, options: argparse.Namespace, folder: Path) -> SoakResult:
    """Put the load on, look at the broker until it is over."""
    total_s = options.minutes * 60
    old = ("-t", OLD_TOPIC, "-q", 4)
    peer.load.run("send", *old, "-C", "-c", 2, "-w", 32, "-N", OLD_MESSAGES, timeout_s=120)
    with ExitStack() as stack:
        loads = start_loads(peer, options.rate, total_s, folder)
        for load in loads:
            stack.callback(load.stop)
        samples = watch(peer, loads, total_s, old)
        # Its connections, its warm-up and its last messages come on top of the measured time.
        measured = loads[0].wait(120)
        intervals = loads[0].intervals()
    return result_of(options, samples, intervals, measured)


def start_loads(peer: RunningPeer, rate: int, total_s: float, folder: Path) -> list[RunningLoad]:
    """The measured load first, then those beside it."""
    main = ("-t", "Soak", "-q", 8, "-C", "-S", 2, "-c", 2, "-r", rate, "-d", total_s, "-W", 1, "-i", 1)
    loads = [peer.load.start("e2e", *main, log_path=folder / "main.log")]
    for name, words in BESIDE:
        # They are ended when the measured one is.
        times = ("-d", total_s + 600, "-W", 0)
        loads.append(peer.load.start("send", *words, *times, log_path=folder / f"{name}.log"))
    time.sleep(TOPICS_S)
    for name, words in POPS:
        loads.append(peer.load.start("pop", *words, *times, log_path=folder / f"{name}.log"))
    return loads


def watch(
    peer: RunningPeer, loads: list[RunningLoad], total_s: float, old: tuple[object, ...]
) -> list[Sample]:
    """Look at the broker now and then, as long as the measured load goes on."""
    every_s = max(SHORTEST_SAMPLE_S, total_s / SAMPLES)
    began = time.monotonic()
    samples: list[Sample] = []
    while loads[0].is_alive and time.monotonic() - began < total_s:
        time.sleep(every_s)
        peer.load.run("pull", *old, "-1", "-c", 2, "-g", "soak-old", "-W", 0, "-d", 60, timeout_s=120)
        at_s = time.monotonic() - began
        samples.append(Sample(round(at_s, 1), peer.anonymous_mb, peer.resident_mb, peer.descriptors))
        if len(samples) % 10 == 0:
            print(f"{at_s:.0f} s: {samples[-1]}", file=sys.stderr, flush=True)
    for load in loads[1:]:
        if not load.is_alive:
            raise LoadgenError(f"a load ended before its time:\n{load.output()[-2000:]}")
    return samples


def result_of(
    options: argparse.Namespace, samples: list[Sample], intervals: list[Interval], measured: Measured
) -> SoakResult:
    """All of it together."""
    return SoakResult(
        command=shlex.join(["python", "-m", "benchmarks", "soak", *sys.argv[1:]]),
        machine=f"{machine()}, {'with' if choose_kernel().kernel else 'without'} the compiled kernel",
        minutes=options.minutes,
        rate=options.rate,
        samples=samples,
        worst_ms=[interval.worst_ack_ms for interval in intervals],
        messages=float(measured.raw["messages"]),
        troubles=measured.troubles,
        other_cores=measured.other_cores,
    )


def report(result: SoakResult) -> str:
    """The result as text."""
    slow = [(second, worst) for second, worst in enumerate(result.worst_ms, 1) if worst > PAUSE_MS]
    worst = max(result.worst_ms, default=0.0)
    lines = [
        "# Soak of our broker",
        "",
        f"`{result.command}`",
        "",
        f"{result.machine}. {result.minutes:g} minutes, {result.rate:,} messages a second of 1 KiB from end "
        "to end, which a group pops and acknowledges, too, and beside them 800/s in batches, 100/s delayed, "
        "which another group pops without an ack, 50/s of 16 KiB, and a consumer that comes and goes; files "
        "of 64 MiB in the log. "
        f"{result.messages:,.0f} messages got through. Everything else on the machine, these loads "
        f"among it, used {result.other_cores:.2f} cores.",
        "",
        "| | after the warm-up | at the end | growth |",
        "|---|---|---|---|",
        *_growth_lines(result),
        "",
        f"Growth {'stays under' if result.is_flat else 'is not under'} {GROWTH_LIMIT:.0%}.",
        "",
        f"Worst pause: the slowest send took {worst:.1f} ms; the slowest of each second, in the middle, "
        f"{statistics.median(result.worst_ms or [0.0]):.1f} ms; {len(slow)} of {len(result.worst_ms)} "
        f"seconds had one above {PAUSE_MS:g} ms.",
        "",
    ]
    lines += [f"- second {second}: {each:.1f} ms" for second, each in sorted(slow, key=lambda s: -s[1])[:10]]
    lines += [f"- trouble: {trouble}" for trouble in result.troubles]
    return "\n".join(lines).rstrip("\n") + "\n"


def _growth_lines(result: SoakResult) -> list[str]:
    first = result.samples[int(len(result.samples) * WARM_UP_SHARE)]
    last = result.samples[-1]
    shown = (
        ("anonymous memory", f"{first.anonymous_mb:.1f} MB", f"{last.anonymous_mb:.1f} MB"),
        ("resident memory", f"{first.resident_mb:.1f} MB", f"{last.resident_mb:.1f} MB"),
        ("open descriptors, files of log and queues apart", str(first.descriptors), str(last.descriptors)),
    )
    return [f"| {name} | {a} | {b} | {result.growth[name]:+.1%} |" for name, a, b in shown]


def to_json(result: SoakResult) -> str:
    """All samples, for plots."""
    raw = {**dataclasses.asdict(result), "growth": result.growth, "is_flat": result.is_flat}
    return json.dumps(raw, ensure_ascii=False, indent=1) + "\n"


def needed_bytes(minutes: float, rate: int) -> int:
    """The disk that a run fills."""
    return int(minutes * 60 * (rate * RECORD_BYTES + BESIDE_BYTES_PER_S)) + ROOM_BYTES


def parse(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (30)")
    parser.add_argument("--rate", type=int, default=3_000, help="messages a second from end to end (3,000)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the result goes")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run, print, write; 1 when something grows or a message is lost."""
    options = parse(words)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        free, needed = shutil.disk_usage(folder).free, needed_bytes(options.minutes, options.rate)
        if free < needed:
            print(
                f"benchmarks soak: needs {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free",
                file=sys.stderr,
            )
            return 2
        try:
            with Launcher(folder, build(folder)).place(OURS) as place:
                result = soak(place.start(SETTINGS), options, folder)
        except (LoadgenError, PeerError) as error:
            print(f"benchmarks soak: {error}", file=sys.stderr)
            return 2
    name = machine_name(cpu_model(), os.cpu_count() or 1)
    stem = f"soak-broker-{datetime.date.today()}-{name}-{options.rate}"
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / f"{stem}.json").write_text(to_json(result))
    (options.results / f"{stem}.md").write_text(report(result))
    print(report(result))
    return 0 if result.is_flat and not result.troubles else 1


if __name__ == "__main__":
    sys.exit(main())
