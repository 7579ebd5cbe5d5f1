"""PutLatency: Apache's ranges and percentiles."""

from __future__ import annotations

import pytest

from kourou.broker.stats.broker_stats import PutLatency

NOTHING = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 "
    "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
)


def test_distribution_has_apaches_words() -> None:
    assert PutLatency().distribution() == NOTHING


@pytest.mark.parametrize(
    ("elapsed_ms", "name"),
    [
        (0, "<=0ms"),
        (0.4, "0~10ms"),
        (10, "0~10ms"),
        (11, "10~50ms"),
        (50, "10~50ms"),
        (100, "50~100ms"),
        (199, "100~200ms"),
        (500, "200~500ms"),
        (1000, "500ms~1s"),
        (1001, "1~2s"),
        (3000, "2~3s"),
        (4000, "3~4s"),
        (4001, "4~5s"),
        (10_000, "5~10s"),
        (10_001, "10s~"),
    ],
)
def test_each_time_falls_into_its_range(elapsed_ms: float, name: str) -> None:
    latency = PutLatency()
    latency.add(elapsed_ms, 3)
    assert latency.distribution() == NOTHING.replace(f"[{name}]:0 ", f"[{name}]:3 ")


def test_percentiles_are_of_the_last_whole_minute() -> None:
    latency = PutLatency()
    latency.add(0, 900)
    latency.add(30, 100)
    assert 28 < latency.percentile_ms(0.99) <= 30
    assert latency.percentile_ms(0.5) == 0
    latency.roll()
    latency.add(5000, 1000)
    assert 28 < latency.percentile_ms(0.99) <= 30
    latency.roll()
    assert 4000 < latency.percentile_ms(0.99) <= 5000


def test_nothing_counted_gives_zero() -> None:
    latency = PutLatency()
    latency.roll()
    assert latency.percentile_ms(0.999) == 0


def test_times_above_the_last_bound_do_not_invent_a_number() -> None:
    latency = PutLatency()
    latency.add(60_000, 1)
    assert latency.percentile_ms(0.99) == 10_000
    assert latency.max_ms == 60_000
