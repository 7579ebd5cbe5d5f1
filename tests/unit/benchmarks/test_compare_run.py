"""How `compare` goes over rows: rounds in turn, within a time; what cannot run is said."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks._broker_loadgen import LoadgenError
from benchmarks._broker_peers import Launcher
from benchmarks._compare_result import Result
from benchmarks._compare_rows import QUICK, Outcome, Reading, RowLeftOut, Scale
from benchmarks._compare_run import Budget, Comparison

NAMES = ["Kourou", "Apache 5.5.0"]


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeRow:
    """A row that takes as long as it says."""

    clock: Clock
    cost: float = 10.0
    round_count: int = 2
    name: str = "row"
    is_quick: bool = True
    failing: str = ""
    error: Exception = field(default_factory=lambda: LoadgenError("refused\nlong story"))
    seen: list[str] = field(default_factory=list)

    def rounds(self, scale: Scale) -> int:
        return self.round_count

    def cost_s(self, scale: Scale) -> float:
        return self.cost

    def measure(self, name: str) -> Outcome:
        self.seen.append(name)
        self.clock.now_s += self.cost
        if name == self.failing:
            raise self.error
        return Outcome((Reading("row", "rate", float(len(self.seen))),), (0.2,), detail={"raw": 1})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def result() -> Result:
    return Result(list(NAMES), "quick", "command", "2026-11-15T10:00:00+00:00", "xeon-2c", "setting")


def comparison(result: Result, clock: Clock, budget_s: float) -> Comparison:
    launcher = Launcher(Path("unused"), Path("unused"))
    return Comparison(result, QUICK, Budget(budget_s, clock), launcher)


def test_rounds_go_over_all_brokers_in_turn(result: Result, clock: Clock) -> None:
    row = FakeRow(clock)
    comparison(result, clock, 100.0).measure(row, row.measure)
    assert row.seen == ["Kourou", "Apache 5.5.0", "Kourou", "Apache 5.5.0"]
    assert result.figures[0].rounds == {"Kourou": [1.0, 3.0], "Apache 5.5.0": [2.0, 4.0]}
    assert result.other_cores == {"row": [0.2] * 4}
    assert [detail["round"] for detail in result.details] == [0, 0, 1, 1]


def test_a_row_without_time_is_left_out_and_reported(result: Result, clock: Clock) -> None:
    row = FakeRow(clock)
    comparison(result, clock, 19.0).measure(row, row.measure)
    assert row.seen == []
    assert result.left_out == ["row: would take 20 s, 19 s were left"]


def test_a_row_ends_after_the_rounds_for_which_there_is_time(result: Result, clock: Clock) -> None:
    row = FakeRow(clock, round_count=3)
    comparison(result, clock, 45.0).measure(row, row.measure)
    assert row.seen == ["Kourou", "Apache 5.5.0"] * 2
    assert result.left_out == ["row: rounds from 3 on: would take 20 s, 5 s were left"]


def test_one_broker_that_fails_leaves_the_others_their_figures(result: Result, clock: Clock) -> None:
    row = FakeRow(clock, failing="Apache 5.5.0")
    comparison(result, clock, 100.0).measure(row, row.measure)
    figure = result.figures[0]
    assert figure.rounds["Kourou"] == [1.0, 3.0]
    assert math.isnan(figure.median("Apache 5.5.0"))
    assert result.troubles == ["Apache 5.5.0, row: LoadgenError: refused long story"] * 2


def test_a_row_that_cannot_run_here_is_left_out_at_once(result: Result, clock: Clock) -> None:
    row = FakeRow(clock, failing="Kourou", error=RowLeftOut("needs 9 GB of disk"))
    comparison(result, clock, 100.0).measure(row, row.measure)
    assert row.seen == ["Kourou"]
    assert result.left_out == ["row: needs 9 GB of disk"]


def test_a_mistake_of_ours_ends_the_run(result: Result, clock: Clock) -> None:
    row = FakeRow(clock, failing="Kourou", error=KeyError("p99"))
    with pytest.raises(KeyError):
        comparison(result, clock, 100.0).measure(row, row.measure)


def test_budget_counts_from_its_beginning(clock: Clock) -> None:
    clock.now_s = 1_000.0
    budget = Budget(60.0, clock)
    clock.now_s = 1_050.0
    assert budget.spent_s == 50.0
    assert budget.allows(10.0)
    assert not budget.allows(10.1)
