"""The rows of `compare`: each a load that is put on one broker, and what is read from it.

A row that runs at brokers which others use too has `run`; one that needs a broker for itself, to start, stop
and kill it, has `run_alone`. Not here: in which order and how often (compare.py), Apache's own programs
(_official.py), backlog and starts (_compare_alone.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks._broker_loadgen import LoadgenError, Measured
from benchmarks._broker_peers import Launcher, RunningPeer

TOPIC = "BenchmarkTopic"
QUEUES = 8
# Connections and requests in flight on each, as DESIGN has them.
ASYNC_SENDS = ((1, 1), (1, 32), (8, 32), (16, 64), (64, 1))
SYNC_SENDS = ((1, 1), (1, 32), (8, 32), (16, 64))
SIZES = ((128, "128 B"), (4_096, "4 KiB"), (65_536, "64 KiB"))
PULLS = ((1, 1), (4, 8))
BULK = 1_024
RATES = (1_000, 5_000, 20_000)
BATCH = 32
PRODUCERS = 2_000
WAITING = 1_000
WAITING_GROUPS = 20
MANY_QUEUES = ((1_000, 10), (1_000, 50))
RAMP_RATES = (5_000, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000, 100_000, 150_000)
RAMP_P99_MS = 50.0
RAMP_SHARE = 0.95
# Of one measurement, past its own time: to connect, to make topics, to flush what the last one wrote.
OVERHEAD_S = 0.6

KINDS = {
    "rate": ("1/s", True),
    "share": ("%", True),
    "latency": ("ms", False),
    "cpu": ("µs", False),
    "memory": ("MB", False),
    "time": ("s", False),
}
"""What a figure can be: its unit, and whether more is better."""


@dataclass(frozen=True)
class Scale:
    """How long and how much: the quick form and the full one."""

    form: str
    rounds: int
    seconds: float
    warm_up_s: float
    step_s: float
    fill: int
    messages: int
    backlog: int
    budget_s: float


# A little less than ten minutes and an hour: the last measurement may take longer than planned.
QUICK = Scale("quick", 2, 1.0, 0.5, 0.7, 120_000, 200_000, 200_000, 570.0)
FULL = Scale("full", 3, 2.5, 1.0, 1.5, 600_000, 1_000_000, 5_000_000, 3_560.0)


@dataclass(frozen=True)
class Reading:
    """One number of a row, by the name that it has in the table."""

    name: str
    kind: str
    value: float


@dataclass(frozen=True)
class Outcome:
    """What one broker made of a row in one round."""

    readings: tuple[Reading, ...]
    other_cores: tuple[float, ...] = ()
    troubles: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    """What a reader has to know besides."""


class RowLeftOut(RuntimeError):
    """A row cannot run here; the message says why."""


class Row(Protocol):
    """What all rows have."""

    @property
    def name(self) -> str:
        """Its line in the table."""

    @property
    def is_quick(self) -> bool:
        """Whether it is part of the quick form."""

    def rounds(self, scale: Scale) -> int:
        """How often it is measured at each broker."""

    def cost_s(self, scale: Scale) -> float:
        """How long one round at one broker takes, at a guess."""


class SharedRow(Row, Protocol):
    """A row for a broker that others use before and after it."""

    def run(self, peer: RunningPeer, scale: Scale) -> Outcome:
        """One round at one broker."""


class AloneRow(Row, Protocol):
    """A row that starts its own broker."""

    def run_alone(self, name: str, launcher: Launcher, scale: Scale) -> Outcome:
        """One round with one broker, from its start to its end."""


@dataclass(frozen=True)
class LoadRow:
    """One run of the load generator."""

    name: str
    mode: str
    arguments: tuple[object, ...]
    is_latency: bool = False
    is_quick: bool = True
    longest_s: float = 60.0
    extra_s: float = 0.0

    def rounds(self, scale: Scale) -> int:
        """As many as the form has."""
        return scale.rounds

    def cost_s(self, scale: Scale) -> float:
        """The measured time and what is around it."""
        return self._seconds(scale) + scale.warm_up_s + OVERHEAD_S + self.extra_s

    def run(self, peer: RunningPeer, scale: Scale) -> Outcome:
        """Measure it at one broker."""
        times = ("-d", self._seconds(scale), "-W", scale.warm_up_s)
        timeout_s = 30 + 6 * self.cost_s(scale)
        measured = peer.load.run(self.mode, *self.arguments, *times, timeout_s=timeout_s)
        return outcome(self.name, measured, is_latency=self.is_latency)

    def _seconds(self, scale: Scale) -> float:
        return min(scale.seconds, self.longest_s)


def outcome(name: str, measured: Measured, *, is_latency: bool) -> Outcome:
    """What is shown of a run: its rate unless that was given, percentiles, and what it cost the server."""
    if not measured.raw["messages"]:
        raise LoadgenError(f"no message got through: {measured.troubles}")
    kept = kept_share(measured)
    rate = () if is_latency else (Reading(name, "rate", measured.messages_per_s * kept),)
    percentiles: tuple[Reading, ...] = ()
    if measured.raw["latency_us"]["max"]:
        percentiles = tuple(
            Reading(f"{name}, {label}", "latency", float(measured.raw["latency_us"][key]) / 1e3)
            for key, label in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"), ("max", "worst"))
        )
    cpu = Reading(f"{name}: server CPU a message", "cpu", measured.cpu_us / kept)
    return Outcome(
        (*rate, *percentiles, cpu), (measured.other_cores,), tuple(measured.troubles), measured.raw
    )


def kept_share(measured: Measured) -> float:
    """The stored share of one-way sends: a broker may drop sends without a response."""
    issued = int(measured.raw.get("issued", 0))
    if not issued:
        return 1.0
    if not measured.raw["stored"]:
        raise LoadgenError(f"none of {issued} messages was stored")
    return min(1.0, int(measured.raw["stored"]) / issued)


@dataclass(frozen=True)
class RampRow:
    """Load that rises step by step, from producer to consumer, until it is late or does not get through.
    A step that breaks is tried once more: a hiccup of the machine is no limit of the broker."""

    name: str = f"ramp: highest rate with p99 from end to end up to {RAMP_P99_MS:g} ms"
    is_quick: bool = True

    def rounds(self, scale: Scale) -> int:
        """It is long, and its steps are close to one another."""
        return max(1, scale.rounds - 1)

    def cost_s(self, scale: Scale) -> float:
        """All steps, though few brokers see the last; one is tried twice."""
        return (len(RAMP_RATES) + 1) * (scale.step_s + 0.7)

    def run(self, peer: RunningPeer, scale: Scale) -> Outcome:
        """Raise the rate until a step breaks twice; the rate of the step before it counts."""
        best, curve, others = 0.0, [], []
        for rate in RAMP_RATES:
            for _ in range(2):
                measured = self._step(peer, scale, rate)
                is_broken = not is_held(rate, measured.messages_per_s, measured.p99_us / 1e3)
                others.append(measured.other_cores)
                if not is_broken:
                    break
            curve.append((rate, measured.messages_per_s, measured.p50_us / 1e3, measured.p99_us / 1e3))
            if is_broken:
                break
            best = measured.messages_per_s
        return Outcome((Reading(self.name, "rate", best),), tuple(others), detail={"curve": curve})

    @staticmethod
    def _step(peer: RunningPeer, scale: Scale, rate: int) -> Measured:
        where = ("-t", "Ramp", "-q", QUEUES, "-C", "-S", 4, "-c", 4)
        return peer.load.run("e2e", *where, "-r", rate, "-d", scale.step_s, "-W", 0.3, timeout_s=60)


def is_held(rate: float, messages_per_s: float, p99_ms: float) -> bool:
    """Whether a step of the ramp got through in time."""
    return messages_per_s >= RAMP_SHARE * rate and p99_ms <= RAMP_P99_MS


def send_rows(flush: str, shapes: tuple[tuple[int, int], ...]) -> list[LoadRow]:
    """Sends of 1 KiB, closed loop: connections × requests in flight on each."""
    return [
        LoadRow(f"send, {flush} flush, {conns}×{window}", "send", (*_to(TOPIC), "-c", conns, "-w", window))
        for conns, window in shapes
    ]


def batch_row() -> LoadRow:
    """Many messages in one request."""
    batches = (*_to(TOPIC), "-c", 8, "-w", 4, "-K", BATCH)
    return LoadRow(f"send, async flush, batches of {BATCH}, 8×4", "send", batches)


def one_way_row() -> LoadRow:
    """Sends without a response: stored messages count. They may keep a broker busy afterwards."""
    words = ("-t", "OneWay", "-q", QUEUES, "-C", "-c", 8, "-w", 32, "-o")
    return LoadRow("send, one way, 8×32", "send", words, extra_s=2.5)


def size_rows(flush: str) -> list[LoadRow]:
    """Bodies of other sizes. A second of the largest is a gigabyte, so it is measured for less long."""
    return [
        LoadRow(
            f"send, {flush} flush, {name}, 8×32",
            "send",
            (*_to(TOPIC), "-c", 8, "-w", 32, "-b", size),
            is_quick=False,
            longest_s=1.0 if size > 10_000 else 3.0,
            extra_s=2.0 if size > 10_000 else 0.0,
        )
        for size, name in SIZES
    ]


def producers_row() -> LoadRow:
    """Many connections with one message each."""
    words = (*_to(TOPIC), "-c", PRODUCERS, "-w", 1, "-R")
    return LoadRow(f"send, async flush, {PRODUCERS:,} producers", "send", words, is_quick=False, extra_s=2.0)


def read_rows() -> list[LoadRow]:
    """Pulls over what the sends before them have stored."""
    pulls = [
        LoadRow(f"pull of 32, {conns}×{window}", "pull", (*_to(TOPIC), "-c", conns, "-w", window))
        for conns, window in PULLS
    ]
    return [*pulls, LoadRow(f"pull of {BULK:,}, 4×2", "pull", (*_to(TOPIC), "-c", 4, "-w", 2, "-n", BULK))]


def tmpfs_rows() -> list[LoadRow]:
    """A send and pulls with the stores on tmpfs, where many run their tests: a file system that does not tell
    a reader whether bytes are in memory (RWF_NOWAIT)."""
    return [
        LoadRow(f"tmpfs: {row.name}", row.mode, row.arguments, is_quick=False, longest_s=1.5)
        for row in (*send_rows("async", ((8, 32),)), *read_rows()[: len(PULLS)])
    ]


def latency_rows() -> list[LoadRow]:
    """From producer to consumer, and what happens when both do all they can."""
    waiting = ("-t", "Waiting", "-q", WAITING, "-C", "-c", WAITING, "-G", WAITING_GROUPS, "-r", 1_000)
    mixed = ("-t", "Mixed", "-q", QUEUES, "-C", "-S", 4, "-c", 4, "-w", 32)
    return [
        *(
            LoadRow(f"end to end at {rate:,}/s", "e2e", (*_new("Latency", 4), "-c", 2, "-r", rate), True)
            for rate in RATES
        ),
        LoadRow(f"end to end at 1,000/s, {WAITING:,} consumers waiting", "e2e", waiting, True, extra_s=2.0),
        LoadRow("produce and consume, 4×32", "e2e", mixed),
    ]


def queue_rows() -> list[LoadRow]:
    """Sends spread over more and more queues."""
    return [
        LoadRow(
            f"send, async flush, {topics * queues:,} queues, 8×32",
            "send",
            ("-t", "Many", "-T", topics, "-q", queues, "-C", "-c", 8, "-w", 32),
            is_quick=False,
            extra_s=10.0,
        )
        for topics, queues in MANY_QUEUES
    ]


def _to(topic: str) -> tuple[object, ...]:
    return ("-t", topic, "-q", QUEUES)


def _new(topic: str, queues: int) -> tuple[object, ...]:
    return ("-t", topic, "-q", queues, "-C")
