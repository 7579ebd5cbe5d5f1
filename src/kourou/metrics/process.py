"""What a process reports of itself, under the names of Prometheus' client libraries, and how late its event
loop is.

The numbers come from `/proc`; on a system without it, those that need it are left out.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from kourou.metrics.families import Family, Histogram, Kind, Labels, Metric

CPU: Final = Metric(
    "process_cpu_seconds_total", Kind.COUNTER, "Processor time of the process, user and system."
)
RESIDENT: Final = Metric("process_resident_memory_bytes", Kind.GAUGE, "Resident memory of the process.")
VIRTUAL: Final = Metric("process_virtual_memory_bytes", Kind.GAUGE, "Virtual memory of the process.")
OPEN_FDS: Final = Metric("process_open_fds", Kind.GAUGE, "Open file descriptors.")
MAX_FDS: Final = Metric("process_max_fds", Kind.GAUGE, "The limit of open file descriptors.")
START: Final = Metric(
    "process_start_time_seconds", Kind.GAUGE, "When the process started, in seconds since 1970."
)
LOOP_LAG: Final = Metric(
    "kourou_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How much later than due the event loop ran a timer; sampled twice a second.",
)

_PROC: Final = Path("/proc/self")
_LAG_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SAMPLE_S: Final = 0.5
# This module is imported within the first second of a server.
_IMPORTED_S: Final = time.time()


def process_families(scope: Labels = ()) -> Iterator[Family]:
    """The families of this process."""
    times = os.times()
    yield CPU.value(times.user + times.system, scope)
    with suppress(OSError):
        virtual_pages, resident_pages = (_PROC / "statm").read_text().split()[:2]
        page_bytes = resource.getpagesize()
        yield VIRTUAL.value(int(virtual_pages) * page_bytes, scope)
        yield RESIDENT.value(int(resident_pages) * page_bytes, scope)
    with suppress(OSError):
        yield OPEN_FDS.value(len(os.listdir(_PROC / "fd")), scope)
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit != resource.RLIM_INFINITY:
        yield MAX_FDS.value(soft_limit, scope)
    yield START.value(_start_s(), scope)


def _start_s() -> float:
    """When the process started, from the system, else when this module was imported."""
    try:
        # The name, in parentheses, may hold spaces.
        fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return _IMPORTED_S


class LoopLag:
    """Measures how late timers of the running event loop are, from `start` to `stop`."""

    def __init__(self) -> None:
        self._histogram = Histogram(_LAG_BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_SAMPLE_S, self._sample, loop, time.perf_counter() + _SAMPLE_S)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        now_s = time.perf_counter()
        self._histogram.add(max(0.0, now_s - due_s))
        self._timer = loop.call_later(_SAMPLE_S, self._sample, loop, now_s + _SAMPLE_S)

    def family(self, scope: Labels = ()) -> Family:
        """What was measured since the start."""
        return LOOP_LAG.value(self._histogram.read(), scope)
