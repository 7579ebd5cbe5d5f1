"""StatsItem: what the spans tell after samples at given times."""

from __future__ import annotations

from kourou.broker.stats.stats_item import DAY, HOUR, MINUTE, Column, StatsItem


def _count(item: StatsItem, nums: int, size_bytes: int = 0) -> None:
    item.times += 1
    item.nums += nums
    item.size_bytes += size_bytes


def test_before_the_first_sample_nothing_is_reported() -> None:
    item = StatsItem()
    _count(item, 5)
    assert item.data(Column.NUMS).stats_minute.sum == 0


def test_first_sample_counts_from_one_step_before() -> None:
    item = StatsItem()
    _count(item, 30, 600)
    _count(item, 20, 400)
    item.sample(MINUTE, 100_000)
    minute = item.data(Column.NUMS).stats_minute
    assert (minute.sum, minute.tps, minute.avgpt) == (50, 5.0, 25.0)
    assert item.data(Column.SIZE).stats_minute.sum == 1000
    assert item.data(Column.NUMS).stats_hour.sum == 0


def test_minute_covers_the_last_sixty_seconds_only() -> None:
    item = StatsItem()
    for step in range(1, 21):
        _count(item, 10)
        # Timers come late now and then; that must not add a step to the span.
        item.sample(MINUTE, step * 10_000 + (7 if step % 3 else 0))
    minute = item.data(Column.NUMS).stats_minute
    assert minute.sum == 60
    assert abs(minute.tps - 1.0) < 0.01


def test_idle_item_reports_zero_and_keeps_one_sample() -> None:
    item = StatsItem()
    _count(item, 10)
    for step in range(1, 30):
        item.sample(MINUTE, step * 10_000)
    assert item.data(Column.NUMS).stats_minute.sum == 0
    assert len(item._minute) == 1


def test_activity_after_idling_is_measured_over_the_whole_span() -> None:
    item = StatsItem()
    _count(item, 10)
    for step in range(1, 30):
        item.sample(MINUTE, step * 10_000)
    _count(item, 600)
    item.sample(MINUTE, 300_000)
    minute = item.data(Column.NUMS).stats_minute
    assert (minute.sum, minute.tps) == (600, 10.0)
    for step in range(31, 36):
        item.sample(MINUTE, step * 10_000)
        assert item.data(Column.NUMS).stats_minute.tps == 10.0
    item.sample(MINUTE, 360_000)
    assert item.data(Column.NUMS).stats_minute.sum == 0


def test_hour_and_day_have_their_own_samples() -> None:
    item = StatsItem()
    for step in range(1, 49):
        _count(item, 1)
        item.sample(DAY, step * 3_600_000)
    _count(item, 5)
    item.sample(HOUR, 48 * 3_600_000)
    data = item.data(Column.NUMS)
    assert data.stats_day.sum == 24
    assert data.stats_hour.sum == 53
