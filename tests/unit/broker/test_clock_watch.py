"""Steps of the wall clock: when one is seen, and what time it is without them."""

from __future__ import annotations

import pytest

from kourou.broker.clock_watch import STEP_MS, ClockWatch
from kourou.clock import Clock, duration_text
from kourou.testing.clock import FakeClock

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Kit:
    """A watch, its clock, and the end of a log."""

    def __init__(self, last_known_ms: int = 0) -> None:
        self.clock = FakeClock(NOW_MS)
        self.log_end = 1_000
        self.watch = ClockWatch(self.clock, lambda: self.log_end, last_known_ms)

    def step(self, ms: int) -> None:
        self.clock.step(ms)
        self.watch.look()


def test_time_that_passes_is_no_step() -> None:
    kit = Kit()
    kit.clock.advance(30 * 24 * HOUR_MS)
    kit.watch.look()
    assert kit.watch.steady_ms() == kit.clock()
    assert not kit.watch.step_count


def test_steady_time_is_never_ahead_of_wall_time() -> None:
    """However the milliseconds of both clocks begin: a message that came early by one is early."""

    class Shifted(Clock):
        now_ns = 0

        def wall_ns(self) -> int:
            return NOW_MS * 1_000_000 + 200_000 + self.now_ns

        def monotonic_ns(self) -> int:
            return 800_000 + self.now_ns

    clock = Shifted()
    watch = ClockWatch(clock, lambda: 0)
    for clock.now_ns in range(0, 3_000_000, 100_000):
        assert watch.steady_ms() == clock.wall_ns() // 1_000_000
        watch.look()


@pytest.mark.parametrize("slew_ns", [-50_000, 50_000])
def test_a_clock_that_is_slewed_is_followed_without_a_step(slew_ns: int) -> None:
    """By 500 ppm, the most that Linux slews: after each look steady time is not ahead of wall time, and less
    than two milliseconds behind it."""

    class Slewed(Clock):
        looks = 0

        def wall_ns(self) -> int:
            return NOW_MS * 1_000_000 + self.monotonic_ns() + self.looks * slew_ns

        def monotonic_ns(self) -> int:
            return self.looks * 100_000_000

    clock = Slewed()
    watch = ClockWatch(clock, lambda: 0)
    for clock.looks in range(25_000):
        watch.look()
        assert 0 <= clock.wall_ns() // 1_000_000 - watch.steady_ms() < 2
    assert abs(clock.looks * slew_ns) > STEP_MS * 1_000_000
    assert (watch.steps, watch.stepped_ms) == ([], 0)


def test_small_corrections_are_followed_and_do_not_add_up() -> None:
    kit = Kit()
    for _ in range(50):
        kit.step(-900)
    assert kit.watch.steady_ms() == kit.clock() == NOW_MS - 45_000
    assert not kit.watch.step_count


@pytest.mark.parametrize("step_ms", [-HOUR_MS, -1_000, 1_000, 30 * 24 * HOUR_MS])
def test_a_step_is_left_out_of_the_steady_time_and_reported_once(
    step_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit()
    kit.step(step_ms)
    kit.clock.advance(500)
    kit.watch.look()
    assert kit.watch.steady_ms() == NOW_MS + 500
    assert kit.watch.steady_now_of(kit.clock()) == NOW_MS + 500
    assert [(step.ms, step.phy_offset) for step in kit.watch.steps] == [(step_ms, 1_000)]
    (record,) = caplog.records
    assert f"{'back' if step_ms < 0 else 'ahead'} by {duration_text(abs(step_ms))}" in record.getMessage()


def test_what_was_stored_before_a_step_is_as_old_as_it_was() -> None:
    kit = Kit()
    kit.step(HOUR_MS)
    kit.log_end = 2_000
    kit.step(-3 * HOUR_MS)
    assert kit.watch.steady_of(NOW_MS, 999) == NOW_MS
    assert kit.watch.steady_of(NOW_MS + HOUR_MS, 1_000) == NOW_MS
    assert kit.watch.steady_of(NOW_MS - 2 * HOUR_MS, 2_000) == NOW_MS
    assert kit.clock() == NOW_MS - 2 * HOUR_MS


def test_a_clock_that_is_set_in_turn_for_ever_fills_no_memory() -> None:
    kit = Kit()
    for number in range(1_001):
        kit.log_end += 10
        kit.step(HOUR_MS if number % 2 else -HOUR_MS)
    assert len(kit.watch.steps) <= 100 and kit.watch.step_count == 1_001
    assert kit.watch.steady_of(kit.clock(), kit.log_end) == NOW_MS
    assert kit.watch.steady_of(NOW_MS, 0) == NOW_MS


@pytest.mark.parametrize(
    ("step_ms", "born_ms", "age_ms"),
    [
        (0, NOW_MS, 5_000),
        (0, NOW_MS + 5_001, None),
        (-HOUR_MS, NOW_MS, 5_000),  # born before the step
        (-HOUR_MS, NOW_MS - HOUR_MS, 5_000),  # after it
        (30 * 24 * HOUR_MS, NOW_MS, 5_000),
        (30 * 24 * HOUR_MS, NOW_MS + 30 * 24 * HOUR_MS, 5_000),
    ],
)
def test_an_age_is_the_same_on_both_sides_of_a_step(step_ms: int, born_ms: int, age_ms: int | None) -> None:
    kit = Kit()
    kit.step(step_ms)
    kit.clock.advance(5_000)
    assert kit.watch.age_ms(born_ms) == age_ms


@pytest.mark.parametrize(("ahead_ms", "count"), [(-5_000, 0), (999, 0), (HOUR_MS, 1)])
def test_a_clock_that_was_set_back_while_the_broker_was_down(
    ahead_ms: int, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Kit(NOW_MS + ahead_ms).watch
    assert (watch.step_count, len(caplog.records)) == (count, count)
    assert watch.steps == [] and watch.steady_ms() == NOW_MS
    if count:
        assert "set back by at least 1h" in caplog.records[0].getMessage()
        assert watch.last_step is not None and watch.last_step.ms == -HOUR_MS


@pytest.mark.parametrize(
    ("ms", "text"),
    [(1_000, "1.0s"), (59_949, "59.9s"), (59_999, "1m"), (3_605_400, "1h 5s"), (2_592_000_000, "30d")],
)
def test_durations_are_written_for_people(ms: int, text: str) -> None:
    assert duration_text(ms) == text


# -- files of the log ----------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS, 50 * 365 * 24 * HOUR_MS])
def test_files_of_this_process_expire_after_a_step_as_before_it(step_ms: int) -> None:
    kit = Kit()
    before_ms, kit.log_end = kit.clock(), 2_000
    kit.step(step_ms)
    after_ms = kit.clock()
    kit.clock.advance(HOUR_MS)
    assert kit.watch.file_age_ms(before_ms, 2_000) == HOUR_MS
    assert kit.watch.file_age_ms(after_ms, 3_000) == HOUR_MS


def test_a_step_ahead_makes_older_files_no_older_and_they_expire_all_the_same() -> None:
    kit = Kit()
    kit.step(30 * 24 * HOUR_MS)
    assert kit.watch.file_age_ms(NOW_MS - HOUR_MS, 1_000) == HOUR_MS
    assert kit.watch.file_age_ms(kit.clock(), 1_000) == 0  # written by a clock that was right
    kit.clock.advance(72 * HOUR_MS)
    assert kit.watch.file_age_ms(kit.clock(), 1_000) == 72 * HOUR_MS


def test_a_step_back_makes_older_files_no_older() -> None:
    kit = Kit()
    kit.step(-30 * 24 * HOUR_MS)
    assert kit.watch.file_age_ms(kit.clock() - HOUR_MS, 1_000) == HOUR_MS
