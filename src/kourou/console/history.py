"""History: rates and lag of the whole cluster over the last day, for charts.

Kept in memory: a point every 5 seconds for an hour, and one every minute, the mean, for a day. A moment when
the cluster could not be read is a gap (None), not a zero.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kourou.admin.clusters import BrokerSummary
from kourou.clock import wall_ms
from kourou.console.cluster_view import ClusterView
from kourou.errors import KourouError

_log = logging.getLogger(__name__)

SAMPLE_S: Final = 5
_FINE_POINTS: Final = 3600 // SAMPLE_S
_COARSE_S: Final = 60
_COARSE_POINTS: Final = 24 * 3600 // _COARSE_S
# The lag takes the brokers longer than their counters.
_LAG_EVERY: Final = 3

PUT_TOTAL: Final = "msgPutTotalTodayNow"
GET_TOTAL: Final = "msgGetTotalTodayNow"


class Point(msgspec.Struct, frozen=True):
    """The cluster at one moment: messages per second in and out, and the lag of all groups."""

    time_ms: int
    in_tps: float | None
    out_tps: float | None
    lag: int | None


class Series(msgspec.Struct, frozen=True):
    """Points as columns."""

    times: list[int]
    in_tps: list[float | None]
    out_tps: list[float | None]
    lag: list[int | None]

    @classmethod
    def of(cls, points: Iterable[Point]) -> Series:
        """The columns of points."""
        listed = list(points)
        return cls(
            [point.time_ms for point in listed],
            [point.in_tps for point in listed],
            [point.out_tps for point in listed],
            [point.lag for point in listed],
        )


class History:
    """Samples a cluster. `start` and `stop` it once."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._fine: deque[Point] = deque(maxlen=_FINE_POINTS)
        self._coarse: deque[Point] = deque(maxlen=_COARSE_POINTS)
        self._totals: dict[str, tuple[int, int]] = {}
        self._sampled_s = 0.0
        self._lag: int | None = None
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    def last_hour(self) -> Series:
        """A point every 5 seconds."""
        return Series.of(self._fine)

    def last_day(self) -> Series:
        """A point every minute."""
        return Series.of(self._coarse)

    async def start(self) -> None:
        """Sample from now on."""
        self._task = asyncio.create_task(self._run(), name="console-history")

    async def stop(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:
                _log.exception("cannot sample the cluster for the history")
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Add a point; a gap if the cluster cannot be read."""
        now_ms = wall_ms()
        try:
            if self._count % _LAG_EVERY == 0:
                self._lag = sum(max(0, queue.diff) for queue in (await self._view.lags()).data)
            rates = self._rates((await self._view.brokers()).data, time.monotonic())
            point = Point(now_ms, *rates, self._lag)
        except KourouError:
            point = Point(now_ms, None, None, None)
        self._count += 1
        self._fine.append(point)
        if self._count % (_COARSE_S // SAMPLE_S) == 0:
            self._coarse.append(_mean(list(self._fine)[-(_COARSE_S // SAMPLE_S) :]))

    def _rates(self, brokers: Iterable[BrokerSummary], now_s: float) -> tuple[float | None, float | None]:
        """Messages per second since the last sample, of brokers that were there then and have not been
        started again since; None the first time."""
        totals = {
            one.address: (one.number(PUT_TOTAL), one.number(GET_TOTAL)) for one in brokers if not one.problem
        }
        before, self._totals = self._totals, totals
        seconds, self._sampled_s = now_s - self._sampled_s, now_s
        grown = [
            (put - before[address][0], got - before[address][1])
            for address, (put, got) in totals.items()
            if address in before
        ]
        if not grown or seconds <= 0:
            return None, None
        put, got = (sum(max(0, one[index]) for one in grown) for index in (0, 1))
        return put / seconds, got / seconds


def _mean(points: Sequence[Point]) -> Point:
    def mean(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return Point(
        points[-1].time_ms,
        mean(point.in_tps for point in points),
        mean(point.out_tps for point in points),
        points[-1].lag,
    )
