"""BrokerStatsManager: counting, sampling and asking, on a clock of the test's own."""

from __future__ import annotations

import time

import pytest

from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.stats_item import Rate

START_MS = 1_700_000_000_000


def _manager() -> BrokerStatsManager:
    return BrokerStatsManager(
        "DefaultCluster", START_MS, lambda topic: topic.startswith("SYS"), wall_ms=START_MS
    )


def _run(stats: BrokerStatsManager, from_s: int, to_s: int) -> None:
    for second in range(from_s, to_s + 1):
        stats.tick(START_MS + second * 1000, wall_ms=START_MS + second * 1000)


def test_topic_and_group_counters_over_a_minute() -> None:
    stats = _manager()
    stats.topic_put("T", 30, 3000)
    stats.group_get("G", "T", 20, 2000)
    _run(stats, 1, 10)
    puts = stats.view("TOPIC_PUT_NUMS", "T")
    sizes = stats.view("TOPIC_PUT_SIZE", "T")
    gets = stats.view("GROUP_GET_NUMS", "T@G")
    assert puts is not None and sizes is not None and gets is not None
    assert (puts.stats_minute.sum, puts.stats_minute.tps) == (30, 3.0)
    assert sizes.stats_minute.sum == 3000
    assert gets.stats_minute.sum == 20
    assert stats.topic_put_tps("T") == 3.0
    assert stats.group_get_tps("G", "T") == 2.0


def test_hour_and_day_are_sampled_at_their_steps() -> None:
    stats = _manager()
    stats.topic_put("T", 7, 70)
    for minute in range(1, 61):
        stats.tick(START_MS + minute * 60_000, wall_ms=START_MS + minute * 60_000)
    data = stats.view("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert (data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum) == (0, 7, 7)


def test_broker_counters_go_by_the_clusters_name() -> None:
    stats = _manager()
    stats.cycle_put(3, 0)
    stats.pulled("G", "T", 2, 20)
    _run(stats, 1, 10)
    puts = stats.view("BROKER_PUT_NUMS", "DefaultCluster")
    gets = stats.view("BROKER_GET_NUMS", "DefaultCluster")
    assert puts is not None and puts.stats_minute.sum == 3
    assert gets is not None and gets.stats_minute.sum == 2
    assert stats.view("BROKER_PUT_NUMS", "Other") is None


def test_send_backs_are_counted() -> None:
    stats = _manager()
    stats.send_back("G", "T")
    _run(stats, 1, 10)
    back = stats.view("SNDBCK_PUT_NUMS", "T@G")
    assert back is not None and back.stats_minute.sum == 1


@pytest.mark.parametrize("name", ["TOPIC_PUT_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS", "NO_SUCH_NAME"])
def test_unknown_counter_is_none(name: str) -> None:
    assert _manager().view(name, "T@G") is None


def test_rates_over_three_windows() -> None:
    stats = _manager()
    for second in range(1, 701):
        stats.topic_put("T", 2, 10)
        stats.group_get("G", "T", 3, 10)
        stats.get_missed()
        stats.tick(START_MS + second * 1000, wall_ms=START_MS + second * 1000)
    assert stats.rates.text(Rate.PUT) == "2.0 2.0 2.0"
    assert stats.rates.text(Rate.GET_FOUND) == "1.0 1.0 1.0"
    assert stats.rates.text(Rate.GET_FOUND, Rate.GET_MISS) == "2.0 2.0 2.0"
    assert stats.rates.text(Rate.GET_TRANSFERRED) == "3.0 3.0 3.0"
    _run(stats, 701, 710)
    assert stats.rates.text(Rate.PUT).split()[0] == "0.0"
    assert stats.rates.text(Rate.PUT).split()[1] == str(100 / 60)


def test_rates_right_after_the_start_are_over_the_time_there_is() -> None:
    stats = _manager()
    assert stats.rates.text(Rate.PUT) == "0.0 0.0 0.0"
    stats.topic_put("T", 8, 10)
    _run(stats, 1, 2)
    assert stats.rates.text(Rate.PUT) == "4.0 4.0 4.0"


def test_deleted_topics_and_groups_are_forgotten_but_stay_in_the_totals() -> None:
    stats = _manager()
    stats.topic_put("T", 5, 50)
    stats.topic_put("SYS_T", 100, 50)
    stats.group_get("G", "T", 4, 40)
    stats.group_get("G2", "U", 2, 40)
    stats.send_back("G", "T")
    stats.send_back("G2", "U")
    stats.remove_topic("T")
    stats.remove_group("G2")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    assert stats.view("GROUP_GET_NUMS", "U@G2") is None
    assert stats.view("SNDBCK_PUT_NUMS", "T@G") is None
    assert stats.view("SNDBCK_PUT_NUMS", "U@G2") is None
    assert (stats.user_put_nums, stats.user_get_nums) == (5, 6)
    assert stats.rates.put_nums == 105


def test_mornings_are_taken_at_local_midnight() -> None:
    stats = _manager()
    stats.topic_put("T", 5, 50)
    midnight_ms = _next_midnight_ms(START_MS)
    stats.tick(midnight_ms - 1000, wall_ms=midnight_ms - 1000)
    assert stats.days.put_today_morning == 0
    stats.tick(midnight_ms, wall_ms=midnight_ms)
    assert (stats.days.put_yesterday_morning, stats.days.put_today_morning) == (0, 5)
    stats.topic_put("T", 2, 50)
    stats.tick(_next_midnight_ms(midnight_ms), wall_ms=_next_midnight_ms(midnight_ms))
    assert (stats.days.put_yesterday_morning, stats.days.put_today_morning) == (5, 7)


def test_latency_of_a_minute_rolls() -> None:
    stats = _manager()
    stats.cycle_put(2, 5)
    stats.get_latency(12)
    stats.get_latency(3)
    stats.put_failed()
    assert "[0~10ms]:2 " in stats.put_latencies.distribution()
    _run(stats, 1, 60)
    assert "[0~10ms]:0 " in stats.put_latencies.distribution()
    assert stats.put_latencies.max_ms == 5
    assert stats.get_entire_time_max_ms == 12
    assert stats.put_failed_times == 1


def test_after_a_long_pause_one_sample_is_taken_not_many() -> None:
    stats = _manager()
    _run(stats, 1, 10)
    stats.topic_put("T", 10, 10)
    stats.tick(START_MS + 500_000, wall_ms=START_MS + 500_000)
    stats.topic_put("T", 50, 10)
    stats.tick(START_MS + 501_000, wall_ms=START_MS + 501_000)
    data = stats.view("TOPIC_PUT_NUMS", "T")
    assert data is not None and data.stats_minute.sum == 10


def _next_midnight_ms(now_ms: int) -> int:
    local = time.localtime(now_ms / 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, local.tm_mday + 1, 0, 0, 0, 0, 0, -1))) * 1000
