"""`kourou pipeline sql` and `stats` without Spark: options, and how rows are printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kourou.cli.pipeline.command import pipeline_app
from kourou.cli.pipeline.row_printers import CsvPrinter, JsonPrinter, TablePrinter
from kourou.cli.pipeline.sql import sql_request
from kourou.cli.pipeline.stats import since_option
from kourou.errors import ConfigError
from tests.needed import need_module

ROWS: list[tuple[str | None, ...]] = [("a", "1"), (None, "20"), ("[x]\x1b", "3")]


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert TablePrinter().print_rows(["tags", "n"], [False, True], ROWS) == 3
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["tags", "n"]
    assert set(rule) == {"─"}
    assert rows == ["a          1", "NULL      20", "[x]\\x1b    3"]


def test_a_stream_prints_no_empty_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert TablePrinter(skip_empty=True).print_rows(["n"], [True], []) == 0
    assert capsys.readouterr().out == ""
    TablePrinter().print_rows(["n"], [True], [])
    assert "n" in capsys.readouterr().out


def test_csv_has_its_names_once(capsys: pytest.CaptureFixture[str]) -> None:
    printer = CsvPrinter()
    printer.print_rows(["a", "b"], [False, False], [("x,y", None)])
    printer.print_rows(["a", "b"], [False, False], [('"', "2")])
    assert capsys.readouterr().out == 'a,b\n"x,y",\n"""",2\n'


def test_json_is_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert JsonPrinter().print_rows(["row"], [False], [('{"a":1}',), ('{"a":2}',)]) == 2
    assert [json.loads(line)["a"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("90s", "999910000"),
        ("15m", "999100000"),
        ("2h", "992800000"),
        ("1d", "913600000"),
        ("2026-01-31T08:00:00", "2026-01-31T08:00:00"),
        ("1700000000000", "1700000000000"),
    ],
)
def test_since(text: str, option: str) -> None:
    assert since_option(text, 1_000_000.0) == option


def test_a_request_for_sql() -> None:
    need_module("pyspark")
    request = sql_request(
        "SELECT 1",
        namesrv="n:9876",
        archives=["a"],
        values=["json"],
        options=["failOnDataLoss=false"],
        limit=None,
        follow_from="2026-01-31T08:00:00",
        interval=2.0,
        master="local[2]",
    )
    assert request.tables.source == {
        "namesrv": "n:9876",
        "failOnDataLoss": "false",
        "startingTimestamp": "2026-01-31T08:00:00",
    }
    assert request.tables.is_stream
    assert request.tables.archives == ("a",)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["sql", "SELECT 1"], "no name server given: use -n host:9876, or set NAMESRV_ADDR"),
        (["sql", "SELECT 1", "--archive", "a", "--follow"], "no name server given"),
        (["sql", "SELECT 1", "-n", "n:1", "--from", "earliest"], "--from requires --follow"),
        (["sql", "SELECT 1", "-n", "n:1", "-o", "x"], "--option x: must be KEY=VALUE"),
        (["sql", "SELECT 1", "-n", "n:1", "--param", "x"], "--param x: must be NAME=VALUE"),
        (["sql", "-n", "n:1"], "give the SQL, or --file with a file of it"),
        (["sql", "SELECT 1", "--file", "x.sql", "-n", "n:1"], "give the SQL, or --file with a file of it"),
        (["sql", "--file", "nowhere.sql", "-n", "n:1"], "--file nowhere.sql: "),
        (["sql", "SELECT 1", "-n", "n:1", "--value", "jsno"], "--value 'jsno'"),
        (["sql", "SELECT 1", "-n", "n:1", "--csv", "--json"], "--json and --csv are mutually exclusive"),
        (
            ["sql", "SELECT 1", "-n", "127.0.0.1:1", "--follow", "--from", "noon"],
            "--from noon: must be earliest, latest, a time such as 2026-01-31T08:00:00+00:00",
        ),
        (
            ["stats", "-n", "127.0.0.1:1", "-t", "s", "--since", "yesterday"],
            "--since yesterday: must be a duration ago such as 90s, 15m, 2h or 3d, or a time such as",
        ),
        (["sql", "DELETE FROM x", "-n", "n:1"], "DELETE is not supported"),
        (["sql", "SELECT 1", "--archive", "nowhere"], "nowhere: no such folder"),
        (["stats"], "no name server given"),
        (["stats", "-n", "n:1", "--once", "--follow"], "--once and --follow are mutually exclusive"),
        (["stats", "-n", "n:1", "--to-topic", "s"], "--checkpoint is missing"),
        (["stats", "-n", "n:1", "--checkpoint", "c"], "--checkpoint requires --to-topic or --parquet"),
        (["stats", "-n", "n:1", "-t", "s", "--to-topic", "s", "--checkpoint", "c"], "is also read"),
        (["stats", "-n", "127.0.0.1:1", "-t", "s", "-o", "failOnDatloss=1"], "did you mean failOnDataLoss?"),
    ],
)
def test_mistakes_are_reported_before_spark_starts(
    words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module("pyspark")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    result = CliRunner().invoke(pipeline_app, words)
    is_usage = any(words in problem for words in ("=VALUE", "mutually exclusive", "give the SQL"))
    assert result.exit_code == (2 if is_usage else 1)
    assert problem in result.output
    assert "Traceback" not in result.output
    assert "startingTimestamp" not in result.output


def test_a_checkpoint_lies_beside_the_rows_of_parquet() -> None:
    need_module("pyspark")
    from kourou.spark.pipelines.sql.stats import StatsRequest, checked

    here = Path.cwd()
    assert checked(StatsRequest(source={}, parquet="out/")).checkpoint == str(here / "out" / "_checkpoint")
    assert checked(StatsRequest(source={}, parquet="out", checkpoint="c")).checkpoint == str(here / "c")
    assert checked(StatsRequest(source={}, parquet="file:///out")).parquet == "file:///out"
    with pytest.raises(ConfigError, match="--to-topic"):
        checked(StatsRequest(source={}, to_topic="no/such", checkpoint="c"))


def test_a_closed_pipe_ends_a_query_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("kourou.spark.pipelines.sql.sql.run_sql", closed)
    monkeypatch.setattr("kourou.cli.problems.drop_output", lambda: None)
    result = CliRunner().invoke(pipeline_app, ["sql", "SELECT 1", "-n", "127.0.0.1:1"])
    assert (result.exit_code, result.output) == (0, "")
