"""What pipelines show: lines, a terminal's line, JSON."""

from __future__ import annotations

import io
import json
from dataclasses import asdict

import pytest

from kourou.spark.pipelines.progress import (
    LINE_INTERVAL_S,
    Breakdown,
    PipelineProgress,
    ProgressOutput,
    Reading,
    SinkRows,
    Summary,
    describe_reading,
)


class Clock:
    """A clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def output(as_json: bool = False, is_terminal: bool = False) -> ProgressOutput:
    return ProgressOutput(as_json, io.StringIO(), is_terminal)


def lines(to: ProgressOutput) -> list[str]:
    assert isinstance(to.stream, io.StringIO)
    return to.stream.getvalue().splitlines()


def test_in_a_file_there_is_a_line_every_ten_seconds_and_a_summary() -> None:
    to, clock = output(), Clock()
    with PipelineProgress("archive", to, clock) as progress:
        progress.show(Reading(rows=10))
        clock.now += LINE_INTERVAL_S
        progress.show(Reading(1_200, 300.0, 2, 1_500, 7, 3.0))
        clock.now += 1
        progress.show(Reading(1_250, 300.0, 3, 100, 0, 0.0))
        progress.finish()
    assert lines(to) == [
        "archive: 10 s, 1,200 rows, 300 rows/s, 7 messages (3 s) behind, batch 2 took 1.5 s",
        "archive: 1,250 rows in 3 batches, 11.0 s (114 rows/s); no lag",
    ]


def test_as_json_every_reading_is_a_line_and_the_last_is_the_summary() -> None:
    to, clock = output(as_json=True), Clock()
    with PipelineProgress("archive", to, clock) as progress:
        progress.show(Reading(10, 5.0, 1, 20, 3, 1.5))
        progress.say("not for programs")
        clock.now += 2
        summary = progress.finish("stopped")
    first, last = map(json.loads, lines(to))
    assert first == {
        "type": "progress", "title": "archive", "rows": 10, "rows_per_second": 5.0, "batches": 1,
        "batch_ms": 20, "lag_messages": 3, "lag_seconds": 1.5, "note": "", "rows_written": None,
    }  # fmt: skip
    assert last == summary.to_json() == {
        "type": "summary", "title": "archive", "ended": "stopped", "rows": 10, "batches": 1, "seconds": 2.0,
        "rows_per_second": 5.0, "lag_messages": 3, "lag_seconds": 1.5, "rows_written": None,
    }  # fmt: skip


def test_on_a_terminal_one_line_is_written_again_and_only_the_summary_stays() -> None:
    to = output(is_terminal=True)
    with PipelineProgress("archive", to, Clock()) as progress:
        progress.show(Reading(rows=4))
        progress.say("words that stay")
        progress.finish()
    assert "archive: words that stay" in lines(to)
    assert lines(to)[-1].endswith("archive: 4 rows, 0.0 s (0 rows/s)")


def test_a_job_may_count_its_own_rows() -> None:
    to, clock = output(), Clock()
    with PipelineProgress("replay", to, clock) as progress:
        clock.now += 10
        progress.add(50, "12:03")
        progress.add(50)
        assert progress.finish().rows == 100
    assert lines(to)[0] == "replay: 10 s, 50 rows, 5 rows/s, 12:03"


def test_a_summary_says_what_was_written_and_what_was_read_if_that_is_more() -> None:
    to, clock = output(), Clock()
    with PipelineProgress("large", to, clock) as progress:
        clock.now += 2
        progress.show(Reading(1_000, 500.0, 1, 1_500, 0, 0.0, rows_written=12))
        assert progress.finish().rows_written == 12
        progress.show(Reading(1_000, 500.0, 1, 1_500, 0, 0.0, rows_written=1_000))
        progress.finish()
    assert lines(to) == [
        "large: 12 rows written, 1,000 read in 1 batch, 2.0 s (500 rows read/s); no lag",
        "large: 1,000 rows in 1 batch, 2.0 s (500 rows/s); no lag",
    ]


def test_a_job_that_counts_its_own_rows_may_have_written_less() -> None:
    to = output()
    with PipelineProgress("replay", to, Clock()) as progress:
        progress.add(50, written=48)
        progress.add(50)
        progress.finish(note="words for people")
    assert lines(to) == ["replay: 98 rows written, 100 read, 0.0 s (0 rows read/s); words for people"]


def test_an_error_inside_leaves_no_summary() -> None:
    to = output()
    with pytest.raises(ValueError), PipelineProgress("x", to):
        raise ValueError
    assert lines(to) == []


def test_words_of_a_reading_without_rows_are_its_note() -> None:
    assert describe_reading(Reading(note="3 of 8 tasks")) == "3 of 8 tasks"
    assert describe_reading(Reading()) == "0 rows, 0 rows/s"
    assert describe_reading(Reading(rows=1)) == "1 row, 0 rows/s"


def test_a_summary_says_how_it_ended() -> None:
    stopped = Summary("x", "stopped", 1, 1, 2.0, 0.5, 1, None)
    assert stopped.words() == "x: 1 row in 1 batch, 2.0 s (0 rows/s); 1 message behind; stopped"


@pytest.mark.parametrize(
    ("breakdown", "words"),
    [
        (
            Breakdown([SinkRows("topic-out", 9, 4)], 2, "topic orders-bad"),
            "4 rows written, 9 read in 3 batches, 2.0 s (4 rows read/s); 2 bad records to topic orders-bad",
        ),
        (
            Breakdown([SinkRows("a", 9, 4), SinkRows("b", 9, 0)], 0, "folder /bad"),
            "9 rows read; 4 written to a, 0 to b in 3 batches, 2.0 s; no bad records",
        ),
        (
            Breakdown([SinkRows("a", 9, 4), SinkRows("b", 1_000, None)]),
            "4 of 9 rows written to a, an unknown number of 1,000 to b in 3 batches, 2.0 s",
        ),
        (
            Breakdown([SinkRows("a", None, 4), SinkRows("b", None, 5)], None, "topic bad"),
            "4 rows written to a, 5 to b in 3 batches, 2.0 s",
        ),
    ],
)
def test_a_summary_has_the_rows_of_each_sink_and_bad_records(breakdown: Breakdown, words: str) -> None:
    summary = Summary("x", "finished", 9, 3, 2.0, 4.5, None, None, 4, breakdown)
    assert summary.words() == f"x: {words}"
    reported = summary.to_json()
    assert (reported["rows"], reported["rows_written"], reported["bad_records"]) == (
        9,
        4,
        breakdown.bad_records,
    )
    assert reported["sinks"][0] == asdict(breakdown.sinks[0]) and "breakdown" not in reported


def test_json_goes_to_standard_output_and_words_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (True, False):
        with PipelineProgress("x", ProgressOutput.standard(as_json=as_json)) as progress:
            progress.finish()
    shown = capsys.readouterr()
    assert shown.out.startswith('{"type": "summary"')
    assert shown.err.startswith("x: 0 rows")
