"""Tally and Times: buckets, percentiles, differences."""

from __future__ import annotations

import random

import pytest

from kourou.cli.bench.tally import Tally, Times, add_up, bucket_of, midpoint


def times_of(values: list[int]) -> Times:
    tally = Tally()
    for value in values:
        tally.add(value)
    return tally.times().since(Times(), tally.take_peak())


def test_buckets_follow_each_other_without_a_gap() -> None:
    buckets = [bucket_of(value) for value in range(5_000)]
    assert buckets[0] == 0
    assert {after - before for before, after in zip(buckets, buckets[1:], strict=False)} == {0, 1}


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 1_000, 65_535, 1_000_003, 86_400_000_000])
def test_the_middle_of_a_bucket_is_near_all_its_values(value: int) -> None:
    assert abs(midpoint(bucket_of(value)) - value) <= value / 64


def test_percentiles_are_those_of_the_sorted_list() -> None:
    dice = random.Random(7)
    values = sorted(round(dice.lognormvariate(7, 1)) for _ in range(10_000))
    times = times_of(values)
    for percent in (50, 95, 99, 99.9, 100):
        exact_ms = values[min(len(values) - 1, int(len(values) * percent / 100 - 0.5))] / 1000
        assert times.percentile_ms(percent) == pytest.approx(exact_ms, rel=0.02)
    assert times.average_ms == pytest.approx(sum(values) / len(values) / 1000)
    assert times.peak_ms == values[-1] / 1000


def test_no_percentile_is_above_the_longest_time() -> None:
    times = times_of([1_000_000, 1_000_001])
    assert times.percentile_ms(99.9) <= times.peak_ms


def test_nothing_took_no_time() -> None:
    times = times_of([])
    assert (times.count, times.average_ms, times.percentile_ms(99)) == (0, 0.0, 0.0)


def test_a_clock_that_goes_backwards_counts_as_no_time() -> None:
    times = times_of([-5])
    assert (times.count, times.sum_us) == (1, 0)


def test_a_difference_has_only_what_came_later() -> None:
    tally = Tally()
    for value in (10, 10, 20):
        tally.add(value)
    before = tally.times()
    assert tally.take_peak() == 20
    for value in (10, 30):
        tally.add(value)
    later = tally.times().since(before, tally.take_peak())
    assert (later.buckets, later.sum_us, later.peak_us) == ({10: 1, 30: 1}, 40, 30)


def test_workers_add_up() -> None:
    total = add_up([times_of([1, 2]), times_of([2, 50])])
    assert (total.buckets, total.sum_us, total.peak_us) == ({1: 1, 2: 2, 50: 1}, 55, 50)
