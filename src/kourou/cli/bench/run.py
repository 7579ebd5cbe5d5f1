"""One run of `kourou bench`: start the load, print a line each second, stop it, print a summary.

Lines have the format of Apache's benchmark programs, so that the same parsers read them; percentiles are
appended. Not here: the loads themselves (producer.py and its siblings).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kourou.cli.bench.tally import Tally, Times, add_up
from kourou.errors import KourouError

PERCENTS: Final = (50, 95, 99, 99.9)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Duration and reporting. 0 seconds: unlimited."""

    seconds: float = 0.0
    warm_up_s: float = 0.0
    report_interval_ms: int = 1_000
    as_json: bool = False


@dataclass(frozen=True)
class Span:
    """Counts and times of an interval. `peaks` are the longest times since the start, in microseconds."""

    seconds: float
    cpu_s: float
    counts: Mapping[str, int]
    times: Mapping[str, Times]
    peaks: Mapping[str, int]

    def per_s(self, name: str) -> float:
        """The count `name` divided by the seconds of the interval."""
        return self.counts[name] / self.seconds if self.seconds > 0 else 0.0

    def peak_ms(self, name: str) -> int:
        """The longest time since the start, in whole milliseconds, as Apache's programs print it."""
        return round(self.peaks[name] / 1000)


class Load(Protocol):
    """A load that can be measured."""

    @property
    def options(self) -> Mapping[str, object]:
        """The options of the run, for the result."""

    @property
    def last_error(self) -> KourouError | None:
        """The last failure that was only counted; None without one."""

    def head(self) -> Sequence[str]:
        """The lines printed before the first progress line."""

    def open(self) -> None:
        """Connect; on return the load can begin at once."""

    def begin(self) -> None:
        """Start sending or consuming; returns at once."""

    def wait(self, timeout_s: float) -> bool:
        """Whether the load ended by itself within that time."""

    def close(self) -> None:
        """Stop and disconnect; raises the error that made it fail."""

    def counts(self) -> Mapping[str, int]:
        """Counts since the start; `messages` is among them."""

    def tallies(self) -> Mapping[str, Sequence[Tally]]:
        """Times since the start, by name."""

    def line(self, span: Span) -> str:
        """The progress line for one interval."""

    def last_line(self, total: Span) -> str:
        """The summary line of the whole run."""


class Meter:
    """Reads a load periodically: the interval since the last reading, and since the start."""

    def __init__(self, load: Load, clock: Callable[[], float], cpu_clock: Callable[[], float]) -> None:
        self._load = load
        self._clock = clock
        self._cpu_clock = cpu_clock
        self.restart()

    def restart(self) -> None:
        """Discard what was counted so far, as after the warm-up."""
        self._begin = self._last = self._read()
        self._peaks = dict.fromkeys(self._take_peaks(), 0)

    def since_last(self) -> Span:
        """The interval since the last call."""
        before, self._last = self._last, self._read()
        peaks = self._take_peaks()
        for name, peak_us in peaks.items():
            self._peaks[name] = max(self._peaks[name], peak_us)
        return self._span(before, self._last, peaks)

    def total(self) -> Span:
        """The interval from the start to the last reading."""
        return self._span(self._begin, self._last, self._peaks)

    def _span(self, before: _Reading, after: _Reading, peaks: Mapping[str, int]) -> Span:
        return Span(
            after.at_s - before.at_s,
            after.cpu_s - before.cpu_s,
            {name: count - before.counts[name] for name, count in after.counts.items()},
            {name: times.since(before.times[name], peaks[name]) for name, times in after.times.items()},
            dict(self._peaks),
        )

    def _read(self) -> _Reading:
        tallies = self._load.tallies()
        times = {name: add_up(tally.times() for tally in parts) for name, parts in tallies.items()}
        return _Reading(self._clock(), self._cpu_clock(), dict(self._load.counts()), times)

    def _take_peaks(self) -> dict[str, int]:
        tallies = self._load.tallies()
        return {name: max(tally.take_peak() for tally in parts) for name, parts in tallies.items()}


@dataclass(frozen=True)
class _Reading:
    at_s: float
    cpu_s: float
    counts: Mapping[str, int]
    times: Mapping[str, Times]


class BenchRun:
    """One run of one load, from connecting to the printed result."""

    def __init__(
        self,
        load: Load,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._load = load
        self._limits = limits
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._spans: list[Span] = []
        # With --json stdout carries the result only.
        self._out = sys.stderr if limits.as_json else sys.stdout

    def run(self) -> None:
        """Measure until the limit or Ctrl-C; print the result."""
        for text in self._load.head():
            self._print(text)
        meter: Meter | None = None
        with _terminated_as_interrupted():
            try:
                self._load.open()
                meter = Meter(self._load, self._clock, self._cpu_clock)
                self._load.begin()
                with contextlib.suppress(KeyboardInterrupt):
                    self._watch(meter)
                self._report(meter)
            finally:
                try:
                    self._load.close()
                finally:
                    # The result up to a failure is printed before the failure is raised.
                    if meter is not None:
                        self._sum_up(meter.total())

    def _watch(self, meter: Meter) -> None:
        if self._limits.warm_up_s and not self._load.wait(self._limits.warm_up_s):
            meter.restart()
        began = self._clock()
        interval_s = self._limits.report_interval_ms / 1000
        number = 1
        while True:
            age_s = self._clock() - began
            left_s = self._limits.seconds - age_s if self._limits.seconds else interval_s
            if left_s <= 0 or self._load.wait(min(max(number * interval_s - age_s, 0.0), left_s)):
                return
            if self._clock() - began >= number * interval_s:
                self._report(meter)
                number += 1

    def _report(self, meter: Meter) -> None:
        span = meter.since_last()
        if self._spans and span.seconds < self._limits.report_interval_ms / 2000:
            return  # The end of the last second is in the total.
        self._spans.append(span)
        now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        self._print(f"Current Time: {now} | {self._load.line(span)}")

    def _sum_up(self, total: Span) -> None:
        self._print(f"[Complete] {self._load.last_line(total)}")
        if self._load.last_error is not None:
            print(f"last failure: {self._load.last_error}", file=sys.stderr)
        if self._limits.as_json:
            print(json.dumps(self._result(total), indent=2))

    def _result(self, total: Span) -> dict[str, Any]:
        return {
            "options": dict(self._load.options),
            **_span_json(total),
            "intervals": [_span_json(span) for span in self._spans],
        }

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def _span_json(span: Span) -> dict[str, Any]:
    messages = span.counts["messages"]
    return {
        "seconds": round(span.seconds, 3),
        "counts": dict(span.counts),
        "messages_per_s": round(span.per_s("messages"), 1),
        "cpu_us_per_message": round(span.cpu_s * 1e6 / messages, 3) if messages else None,
        "times_ms": {name: _times_json(times) for name, times in span.times.items()},
    }


def _times_json(times: Times) -> dict[str, float]:
    percentiles = {f"p{percent}": round(times.percentile_ms(percent), 4) for percent in PERCENTS}
    return {"average": round(times.average_ms, 4), **percentiles, "max": round(times.peak_ms, 4)}


def percentiles(times: Times, of: str = "") -> str:
    """Percentiles, for the end of a line."""
    return " | ".join(f"P{percent}{of}(ms): {times.percentile_ms(percent):.3f}" for percent in PERCENTS)


def shown(**values: object) -> str:
    """Parameters in the format of Apache's programs."""
    return ", ".join(f"{name}: {_java_text(value)}" for name, value in values.items())


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C inside the block: `timeout 60 kourou bench …` prints a summary, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
