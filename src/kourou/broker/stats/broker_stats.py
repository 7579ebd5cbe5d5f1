"""BrokerStatsManager: what a broker counts of its work, under RocketMQ's names.

The hot path calls small methods that add to plain integers. What was published is counted several commit
cycles at a time (store_stats.py), what the fast path has pulled several reads at a time (pull_notes.py), and
before anything that depends on it is read. `tick` takes the samples
that are due; a broker calls it once a second. Names that 315 may ask for, and their keys:

    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE          topic
    GROUP_GET_NUMS, GROUP_GET_SIZE          topic@group
    SNDBCK_PUT_NUMS                         topic@group
    BROKER_PUT_NUMS, BROKER_GET_NUMS        the cluster's name
    any other                               what `add` was called with

DayTotals: messages put and got by this morning and by yesterday's; mornings are local midnights that the
broker lived through. PutLatency: how long puts took, in buckets of milliseconds, a minute at a time.
Not here: arithmetic of the spans, rates of the store (stats_item.py).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final

from kourou.broker.stats.event_counters import EventCounters
from kourou.broker.stats.stats_item import DAY, HOUR, MINUTE, Column, StatsItem, StoreRates
from kourou.metrics.families import Histogram
from kourou.protocol.bodies import BrokerStatsData

# The upper bounds in ms: first each ms, then in wider steps; all above is one bucket more.
_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS: Final = tuple(accumulate((step for step, count in _STEPS for _ in range(count)), initial=0))

_RANGES: Final = (
    ("<=0ms", 0),
    ("0~10ms", 10),
    ("10~50ms", 50),
    ("50~100ms", 100),
    ("100~200ms", 200),
    ("200~500ms", 500),
    ("500ms~1s", 1000),
    ("1~2s", 2000),
    ("2~3s", 3000),
    ("3~4s", 4000),
    ("4~5s", 5000),
    ("5~10s", 10_000),
    ("10s~", None),
)
"""The ranges in Apache's words, with the last ms of each."""

_SPANS: Final = (MINUTE, HOUR, DAY)

SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)
"""Apache's, of the histogram of messages' sizes."""
CYCLE_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class PutLatency:
    """Counts of this minute, of the one before, and of all before that."""

    __slots__ = ("_before_counts", "_counts", "_last_counts", "max_ms", "total_ms")
    BOUNDS_MS: Final = _BOUNDS

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._last_counts: list[int] | None = None
        self._before_counts = list(self._counts)
        self.max_ms = 0.0
        self.total_ms = 0.0

    def add(self, elapsed_ms: float, nums: int) -> None:
        """`nums` messages took `elapsed_ms` each."""
        self._counts[bisect_left(_BOUNDS, elapsed_ms)] += nums
        self.total_ms += elapsed_ms * nums
        if elapsed_ms > self.max_ms:
            self.max_ms = elapsed_ms

    def roll(self) -> None:
        """Start a new minute and keep the last one."""
        self._before_counts = [sum(pair) for pair in zip(self._before_counts, self._counts, strict=True)]
        self._last_counts = self._counts
        self._counts = [0] * len(self._counts)

    def since_start(self) -> list[int]:
        """How many messages since the start lie in each range of BOUNDS_MS, and above all of them."""
        return [sum(pair) for pair in zip(self._before_counts, self._counts, strict=True)]

    def distribution(self) -> str:
        """Messages of this minute in each range: `[<=0ms]:5 [0~10ms]:7 ... `."""
        counts = self._counts
        texts: list[str] = []
        start = 0
        for name, last_ms in _RANGES:
            end = len(counts) if last_ms is None else bisect_left(_BOUNDS, last_ms) + 1
            texts.append(f"[{name}]:{sum(counts[start:end])} ")
            start = end
        return "".join(texts)

    def percentile_ms(self, share: float) -> float:
        """The time that `share` of the last whole minute's messages stayed below; at first of this one's."""
        counts = self._counts if self._last_counts is None else self._last_counts
        rank = int(sum(counts) * share)
        passed = 0
        for index, count in enumerate(counts):
            if count and rank <= passed + count:
                return _within(index, (rank - passed) / count)
            passed += count
        return 0.0


def _within(index: int, share: float) -> float:
    """The time at `share` of a bucket, as if times were spread evenly over it."""
    if index == 0:
        return 0.0
    if index == len(_BOUNDS):
        return float(_BOUNDS[-1])
    low, high = _BOUNDS[index - 1], _BOUNDS[index]
    return low + (high - low) * share


class DayTotals:
    """The totals at the last two midnights."""

    __slots__ = (
        "_today",
        "get_today_morning",
        "get_yesterday_morning",
        "put_today_morning",
        "put_yesterday_morning",
    )

    def __init__(self, now_ms: int) -> None:
        self._today = _local_day(now_ms)
        self.put_yesterday_morning = 0
        self.put_today_morning = 0
        self.get_yesterday_morning = 0
        self.get_today_morning = 0

    def is_over(self, now_ms: int) -> bool:
        """True when a midnight has passed since the last `roll`."""
        return _local_day(now_ms) != self._today

    def roll(self, now_ms: int, put_nums: int, get_nums: int) -> None:
        """A new day begins with these totals."""
        self._today = _local_day(now_ms)
        self.put_yesterday_morning, self.put_today_morning = self.put_today_morning, put_nums
        self.get_yesterday_morning, self.get_today_morning = self.get_today_morning, get_nums


def _local_day(now_ms: int) -> tuple[int, int]:
    local = time.localtime(now_ms / 1000)
    return local.tm_year, local.tm_yday


class BrokerStatsManager:
    """All counters of one broker. `is_system_topic` tells whose messages are not the users'."""

    def __init__(
        self, cluster_name: str, now_ms: int, is_system_topic: Callable[[str], bool], *, wall_ms: int
    ) -> None:
        self._cluster_name = cluster_name
        self._is_system_topic = is_system_topic
        self._topic_puts: dict[str, StatsItem] = {}
        self._group_gets: dict[tuple[str, str], StatsItem] = {}
        self._send_backs: dict[tuple[str, str], StatsItem] = {}
        self._broker_put = StatsItem()
        self._broker_get = StatsItem()
        # What deleted topics and groups had counted, so that totals never shrink.
        self._gone_put_nums = 0
        self._gone_get_nums = 0
        self._due_ms = {span: now_ms + span.step_ms for span in _SPANS}
        self._minute_due_ms = now_ms + MINUTE.length_ms
        self._rates = StoreRates()
        self._put_latencies = PutLatency()
        self._cycle_messages = Histogram(CYCLE_BOUNDS)
        self._put_size_total = 0
        self.days = DayTotals(wall_ms)
        self.events = EventCounters()
        self.put_failed_times = 0
        self.get_entire_time_max_ms = 0.0
        # Count what waits to be counted (store_stats.py, pull_notes.py).
        self.settlers: list[Callable[[], None]] = []
        self._rates.sample(now_ms)

    def settle(self) -> None:
        """Have everything counted that happened so far."""
        for settler in self.settlers:
            settler()

    # -- the hot path ----------------------------------------------------------------------------

    def topic_put(self, topic: str, nums: int, size_bytes: int, times: int = 1) -> None:
        """`times` commit cycles stored `nums` messages in `size_bytes` of the log."""
        item = self._topic_puts.get(topic)
        if item is None:
            item = self._topic_puts[topic] = StatsItem()
        item.times += times
        item.nums += nums
        item.size_bytes += size_bytes
        self._rates.put_nums += nums
        self._put_size_total += size_bytes

    def message_sizes(self, topic: str, counts: Sequence[int]) -> None:
        """So many of a topic's messages lie in each range of SIZE_BOUNDS."""
        item = self._topic_puts[topic]
        if item.size_counts is None:
            item.size_counts = list(counts)
        else:
            item.size_counts = [sum(pair) for pair in zip(item.size_counts, counts, strict=True)]

    def pulled(self, group: str, topic: str, nums: int, size_bytes: int, times: int = 1) -> None:
        """So many pulls were answered with `nums` messages in `size_bytes`."""
        self.group_get(group, topic, nums, size_bytes, times)
        item = self._broker_get
        item.times += times
        item.nums += nums

    def group_get(self, group: str, topic: str, nums: int, size_bytes: int, times: int = 1) -> None:
        """A group got `nums` messages of a topic in `size_bytes`, with so many requests."""
        item = self._group_gets.get((topic, group))
        if item is None:
            item = self._group_gets[topic, group] = StatsItem()
        item.times += times
        item.nums += nums
        item.size_bytes += size_bytes
        rates = self._rates
        rates.get_found += times
        rates.get_nums += nums

    def get_missed(self) -> None:
        """Count a pull that found nothing."""
        self._rates.get_missed += 1

    def cycle_put(self, nums: int, elapsed_ms: float, times: int = 1) -> None:
        """`times` commit cycles stored `nums` messages, which took `elapsed_ms` each."""
        self._broker_put.times += times
        self._broker_put.nums += nums * times
        self._cycle_messages.add(nums, times)
        self._put_latencies.add(elapsed_ms, nums * times)

    def get_latency(self, elapsed_ms: float) -> None:
        """Looking for messages of one pull took `elapsed_ms`."""
        if elapsed_ms > self.get_entire_time_max_ms:
            self.get_entire_time_max_ms = elapsed_ms

    # -- seldom ----------------------------------------------------------------------------------

    def put_failed(self, nums: int = 1) -> None:
        """`nums` messages could not be stored."""
        self.put_failed_times += nums

    def send_back(self, group: str, topic: str) -> None:
        """A consumer sent one message back."""
        item = self._send_backs.setdefault((topic, group), StatsItem())
        item.times += 1
        item.nums += 1

    def remove_topic(self, topic: str) -> None:
        """A topic was deleted: forget its counters."""
        self.settle()
        self.events.remove_topic(topic)
        item = self._topic_puts.pop(topic, None)
        if item is not None and not self._is_system_topic(topic):
            self._gone_put_nums += item.nums
        self._forget_gets([key for key in self._group_gets if key[0] == topic])
        for key in [key for key in self._send_backs if key[0] == topic]:
            del self._send_backs[key]

    def remove_group(self, group: str) -> None:
        """A group was deleted: forget its counters."""
        self.settle()
        self.events.remove_group(group)
        self._forget_gets([key for key in self._group_gets if key[1] == group])
        for key in [key for key in self._send_backs if key[1] == group]:
            del self._send_backs[key]

    def _forget_gets(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            item = self._group_gets.pop(key)
            if not self._is_system_topic(key[0]):
                self._gone_get_nums += item.nums

    # -- sampling --------------------------------------------------------------------------------

    def tick(self, now_ms: int, *, wall_ms: int) -> None:
        """Take the samples that are due; `now_ms` of the monotonic clock. Call it once a second."""
        self.settle()
        self._rates.sample(now_ms)
        for span in _SPANS:
            if now_ms >= self._due_ms[span]:
                self._due_ms[span] = _next_due_ms(self._due_ms[span], span.step_ms, now_ms)
                for item in self._items():
                    item.sample(span, now_ms)
        if now_ms >= self._minute_due_ms:
            self._minute_due_ms = _next_due_ms(self._minute_due_ms, MINUTE.length_ms, now_ms)
            self._put_latencies.roll()
        if self.days.is_over(wall_ms):
            self.days.roll(wall_ms, self.user_put_nums, self.user_get_nums)

    def _items(self) -> Iterable[StatsItem]:
        return chain(
            (self._broker_put, self._broker_get),
            self._topic_puts.values(),
            self._group_gets.values(),
            self._send_backs.values(),
        )

    # -- asking ----------------------------------------------------------------------------------

    @property
    def rates(self) -> StoreRates:
        """Messages put and got, over the last minutes."""
        self.settle()
        return self._rates

    @property
    def put_latencies(self) -> PutLatency:
        """How long puts took."""
        self.settle()
        return self._put_latencies

    @property
    def cycle_messages(self) -> Histogram:
        """How many messages commit cycles had."""
        self.settle()
        return self._cycle_messages

    @property
    def put_size_total(self) -> int:
        """Bytes of the log that were put since the start."""
        self.settle()
        return self._put_size_total

    @property
    def user_put_nums(self) -> int:
        """Messages put since the start, but for system topics."""
        self.settle()
        is_system = self._is_system_topic
        return self._gone_put_nums + sum(
            item.nums for topic, item in self._topic_puts.items() if not is_system(topic)
        )

    @property
    def user_get_nums(self) -> int:
        """Messages got since the start, but for system topics."""
        self.settle()
        is_system = self._is_system_topic
        return self._gone_get_nums + sum(
            item.nums for (topic, _), item in self._group_gets.items() if not is_system(topic)
        )

    @property
    def topic_puts(self) -> Mapping[str, StatsItem]:
        """What was put, by topic."""
        self.settle()
        return self._topic_puts

    @property
    def group_gets(self) -> Mapping[tuple[str, str], StatsItem]:
        """What was got, by topic and group."""
        self.settle()
        return self._group_gets

    @property
    def send_backs(self) -> Mapping[tuple[str, str], StatsItem]:
        """What was sent back, by topic and group."""
        return self._send_backs

    def view(self, stats_name: str, stats_key: str) -> BrokerStatsData | None:
        """A counter over a minute, an hour and a day (315); None when nothing was counted so."""
        self.settle()
        item = self._find(stats_name, stats_key)
        if item is None:
            return None
        return item.data(Column.SIZE if stats_name.endswith("_SIZE") else Column.NUMS)

    def topic_put_tps(self, topic: str) -> float:
        """Messages a second of the last minute."""
        return _tps(self.topic_puts.get(topic))

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages a second that the group got of the topic in the last minute."""
        return _tps(self.group_gets.get((topic, group)))

    def _find(self, stats_name: str, stats_key: str) -> StatsItem | None:
        topic, _, group = stats_key.partition("@")
        match stats_name:
            case "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE":
                return self._topic_puts.get(stats_key)
            case "GROUP_GET_NUMS" | "GROUP_GET_SIZE":
                return self._group_gets.get((topic, group))
            case "SNDBCK_PUT_NUMS":
                return self._send_backs.get((topic, group))
            case "BROKER_PUT_NUMS" if stats_key == self._cluster_name:
                return self._broker_put
            case "BROKER_GET_NUMS" if stats_key == self._cluster_name:
                return self._broker_get
        return None


def _next_due_ms(due_ms: int, step_ms: int, now_ms: int) -> int:
    """One step on, without drifting; after a long pause one step from now, not many at once."""
    return due_ms + step_ms if due_ms + step_ms > now_ms else now_ms + step_ms


def _tps(item: StatsItem | None) -> float:
    return 0.0 if item is None else item.data(Column.NUMS).stats_minute.tps
