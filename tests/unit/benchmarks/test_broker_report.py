"""Figures: medians, ratios and their spread, also where rounds are missing; names of machines."""

from __future__ import annotations

import math

import pytest
from benchmarks._broker_report import Figure, machine_name, number, spread, table

OURS, THEIRS = "Kourou", "Apache 5.5.0"


def rates(ours: list[float], theirs: list[float]) -> Figure:
    return Figure("send", "1/s", True, {OURS: ours, THEIRS: theirs}, kind="rate")


def test_ratio_compares_what_ran_in_the_same_round() -> None:
    figure = rates([200.0, 90.0], [100.0, 30.0])
    assert figure.ratios(OURS, THEIRS) == [2.0, 3.0]


def test_ratio_of_a_time_is_above_one_when_ours_is_shorter() -> None:
    figure = Figure("start", "s", False, {OURS: [1.0], THEIRS: [5.0]})
    assert figure.ratios(OURS, THEIRS) == [5.0]


def test_a_failed_round_counts_neither_in_the_median_nor_in_the_ratios() -> None:
    figure = rates([200.0, math.nan, 400.0], [100.0, 100.0, 100.0])
    assert figure.median(OURS) == 300.0
    assert figure.ratios(OURS, THEIRS) == [2.0, 4.0]


def test_a_value_stays_in_its_round_when_the_rounds_before_it_failed() -> None:
    figure = rates([], [10.0, 20.0])
    figure.put(OURS, 1, 60.0)
    assert figure.ratios(OURS, THEIRS) == [3.0]


def test_a_broker_without_any_round_is_a_dash() -> None:
    figure = rates([100.0], [])
    assert math.isnan(figure.median(THEIRS))
    assert table([figure], [OURS, THEIRS]).splitlines()[-1] == "| send | 1/s | 100 | – | – |"


def test_nothing_against_nothing_is_no_division() -> None:
    assert rates([5.0], [0.0]).ratios(OURS, THEIRS) == [math.inf]


def test_table_has_a_column_for_each_broker_and_each_ratio() -> None:
    lines = table([rates([200.0, 300.0], [100.0, 100.0])], [OURS, THEIRS]).splitlines()
    assert lines[0] == "|  | unit | Kourou | Apache 5.5.0 | Kourou : Apache 5.5.0 |"
    assert lines[2] == "| send | 1/s | 250 | 100 | 2.50 (2.00–3.00) |"


def test_spread_of_one_round_has_no_brackets() -> None:
    assert spread([1.234]) == "1.23"


@pytest.mark.parametrize(
    ("value", "shown"), [(123456.7, "123,457"), (99.96, "100.0"), (9.876, "9.88"), (math.nan, "–")]
)
def test_numbers_have_the_digits_that_are_worth_reading(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("model", "cores", "name"),
    [
        ("Intel(R) Xeon(R) Processor @ 2.50GHz", 2, "xeon-2.50ghz-2c"),
        ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", 12, "core-i7-8700-3.20ghz-12c"),
        ("AMD EPYC 7B13 64-Core Processor", 8, "epyc-7b13-8c"),
        ("aarch64", 4, "aarch64-4c"),
    ],
)
def test_machine_name_consists_of_processor_and_cores(model: str, cores: int, name: str) -> None:
    assert machine_name(model, cores) == name
