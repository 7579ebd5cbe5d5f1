"""Delay levels: Apache's table, odd texts, when a level is due."""

from __future__ import annotations

import pytest

from kourou.errors import ConfigError
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS, deliver_timestamp, parse_delay_levels


def test_the_default_table_has_18_levels_from_a_second_to_two_hours() -> None:
    assert len(DEFAULT_DELAY_LEVELS) == 18
    assert DEFAULT_DELAY_LEVELS[0] == 1_000
    assert DEFAULT_DELAY_LEVELS[4] == 60_000
    assert DEFAULT_DELAY_LEVELS[-1] == 7_200_000
    assert list(DEFAULT_DELAY_LEVELS) == sorted(DEFAULT_DELAY_LEVELS)


def test_every_unit_is_read() -> None:
    assert parse_delay_levels("1s 2m 3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)


@pytest.mark.parametrize("text", ["1", "s", "1w", "-1s", "1.5s", "x1s", "1s ²m"])
def test_a_text_that_is_no_delay_is_refused_with_the_word(text: str) -> None:
    with pytest.raises(ConfigError, match=r"messageDelayLevel=.* is not a delay; write a number"):
        parse_delay_levels(text)


def test_a_level_is_due_after_its_delay() -> None:
    assert deliver_timestamp(DEFAULT_DELAY_LEVELS, 1, 500) == 1_500
    assert deliver_timestamp(DEFAULT_DELAY_LEVELS, 18, 500) == 7_200_500


def test_a_level_above_the_highest_is_the_highest() -> None:
    assert deliver_timestamp(DEFAULT_DELAY_LEVELS, 30, 0) == 7_200_000


@pytest.mark.parametrize(
    ("levels", "level"), [(DEFAULT_DELAY_LEVELS, 0), (DEFAULT_DELAY_LEVELS, -3), ((), 1)]
)
def test_a_level_that_is_not_in_the_table_is_due_after_a_second(levels: tuple[int, ...], level: int) -> None:
    assert deliver_timestamp(levels, level, 7) == 1_007
