"""BrokerStatsManager: what a broker counts of its work, under RocketMQ's names.

The hot path calls small methods that add to plain integers. `tick` takes the samples that are
due; a broker calls it once a second. Names that 315 may ask for, and their keys:

    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE          topic
    GROUP_GET_NUMS, GROUP_GET_SIZE          topic@group
    SNDBCK_PUT_NUMS                         topic@group
    BROKER_PUT_NUMS, BROKER_GET_NUMS        the cluster's name
    any other                               what `add` was called with
Not here: arithmetic of the spans (stats_item.py), rates of the store (store_rates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from kourou.broker.stats.day_totals import DayTotals
from kourou.broker.stats.put_latency import PutLatency
from kourou.broker.stats.stats_item import DAY, HOUR, MINUTE, Column, StatsItem
from kourou.broker.stats.store_rates import StoreRates
from kourou.protocol.bodies import BrokerStatsData

_SPANS: Final = (MINUTE, HOUR, DAY)


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
        self.rates = StoreRates()
        self.put_latencies = PutLatency()
        self.days = DayTotals(wall_ms)
        self.put_size_total = 0
        self.put_failed_times = 0
        self.get_entire_time_max_ms = 0.0
        self.rates.sample(now_ms)

    # -- the hot path ----------------------------------------------------------------------------

    def topic_put(self, topic: str, nums: int, size_bytes: int) -> None:
        """One send stored `nums` messages in `size_bytes` of the log."""
        item = self._topic_puts.get(topic)
        if item is None:
            item = self._topic_puts[topic] = StatsItem()
        item.times += 1
        item.nums += nums
        item.size_bytes += size_bytes
        self.rates.put_nums += nums
        self.put_size_total += size_bytes

    def pulled(self, group: str, topic: str, nums: int, size_bytes: int) -> None:
        """One pull was answered with `nums` messages in `size_bytes`."""
        self.group_get(group, topic, nums, size_bytes)
        item = self._broker_get
        item.times += 1
        item.nums += nums

    def group_get(self, group: str, topic: str, nums: int, size_bytes: int) -> None:
        """A group got `nums` messages of a topic in `size_bytes`."""
        item = self._group_gets.get((topic, group))
        if item is None:
            item = self._group_gets[topic, group] = StatsItem()
        item.times += 1
        item.nums += nums
        item.size_bytes += size_bytes
        rates = self.rates
        rates.get_found += 1
        rates.get_nums += nums

    def get_missed(self) -> None:
        """One pull found nothing."""
        self.rates.get_missed += 1

    def broker_put(self, nums: int) -> None:
        """One send stored `nums` messages."""
        self._broker_put.times += 1
        self._broker_put.nums += nums

    def put_latency(self, elapsed_ms: float, nums: int = 1) -> None:
        """`nums` messages took `elapsed_ms` each to be stored."""
        self.put_latencies.add(elapsed_ms, nums)

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
        item = self._topic_puts.pop(topic, None)
        if item is not None and not self._is_system_topic(topic):
            self._gone_put_nums += item.nums
        self._forget_gets([key for key in self._group_gets if key[0] == topic])
        for key in [key for key in self._send_backs if key[0] == topic]:
            del self._send_backs[key]

    def remove_group(self, group: str) -> None:
        """A group was deleted: forget its counters."""
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
        self.rates.sample(now_ms)
        for span in _SPANS:
            if now_ms >= self._due_ms[span]:
                self._due_ms[span] = _next_due_ms(self._due_ms[span], span.step_ms, now_ms)
                for item in self._items():
                    item.sample(span, now_ms)
        if now_ms >= self._minute_due_ms:
            self._minute_due_ms = _next_due_ms(self._minute_due_ms, MINUTE.length_ms, now_ms)
            self.put_latencies.roll()
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
    def user_put_nums(self) -> int:
        """Messages put since the start, but for system topics."""
        is_system = self._is_system_topic
        return self._gone_put_nums + sum(
            item.nums for topic, item in self._topic_puts.items() if not is_system(topic)
        )

    @property
    def user_get_nums(self) -> int:
        """Messages got since the start, but for system topics."""
        is_system = self._is_system_topic
        return self._gone_get_nums + sum(
            item.nums for (topic, _), item in self._group_gets.items() if not is_system(topic)
        )

    def view(self, stats_name: str, stats_key: str) -> BrokerStatsData | None:
        """A counter over a minute, an hour and a day (315); None when nothing was counted so."""
        item = self._find(stats_name, stats_key)
        if item is None:
            return None
        return item.data(Column.SIZE if stats_name.endswith("_SIZE") else Column.NUMS)

    def topic_put_tps(self, topic: str) -> float:
        """Messages a second of the last minute."""
        return _tps(self._topic_puts.get(topic))

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages a second that the group got of the topic in the last minute."""
        return _tps(self._group_gets.get((topic, group)))

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
