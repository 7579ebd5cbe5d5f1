"""`kourou pipeline stats` for people: a row is a line, however wide the terminal is."""

from __future__ import annotations

import sys

import pytest
from rich.text import Text

from kourou.cli.pipeline.row_printers import CsvPrinter, JsonPrinter, Row, TablePrinter
from kourou.cli.pipeline.stats import stats_printer
from kourou.cli.pipeline.stats_table import StatsTable, compact

NAMES = [
    "minute",
    "topic",
    "messages",
    "bytes",
    "messages_per_second",
    "bytes_per_second",
    "latency_p50_ms",
    "latency_p99_ms",
    "latency_max_ms",
    "top_keys",
]
ARE_NUMBERS = [name not in ("minute", "topic", "top_keys") for name in NAMES]
# As large as they come, with latency of a clock that is ahead.
BUSY: Row = (
    "2026-11-16 09:08:00",
    "order-service-payments-settled-v2",
    "1234567",
    "987654321012",
    "20576.12",
    "1.64609053502E10",
    "-1",
    "120",
    "-34000",
    "customer-100017: 5123, customer-100018: 5100, customer-7: 4000",
)
QUIET: Row = ("2026-11-16 09:09:00", "plain", "1", "6", "0.02", "0.1", "0", "2", "2", "")


def lines(capsys: pytest.CaptureFixture[str], width: int | None, *rows: Row) -> list[str]:
    assert StatsTable(TablePrinter(), lambda: width).print_rows(NAMES, ARE_NUMBERS, rows) == len(rows)
    return capsys.readouterr().out.splitlines()


def test_all_columns_fit_into_120(capsys: pytest.CaptureFixture[str]) -> None:
    head, rule, busy, quiet = lines(capsys, 120, BUSY, QUIET)
    assert max(map(len, (head, rule, busy, quiet))) <= 120
    assert head.split() == [
        "minute", "topic", "messages", "bytes", "msgs/s", "bytes/s", "p50_ms", "p99_ms", "max_ms", "top_keys",
    ]  # fmt: skip
    assert busy.split()[2:10] == [
        "order-service-pay…",
        "1.23M",
        "988G",
        "20.6k",
        "16.5G",
        "-1",
        "120",
        "-34000",
    ]
    assert busy.endswith("   customer-10…")
    assert quiet.split()[2:] == ["plain", "1", "6", "0.02", "0.1", "0", "2", "2"]


def test_keys_take_the_room_that_topics_leave(capsys: pytest.CaptureFixture[str]) -> None:
    short: Row = (BUSY[0], "t", *BUSY[2:])
    *_, row = lines(capsys, 120, short)
    assert row.endswith("   customer-100017: 5123, c…") and len(row) <= 120


@pytest.mark.parametrize(
    ("width", "left"),
    [
        (100, ["msgs/s", "bytes/s", "p99_ms", "max_ms"]),
        (80, ["msgs/s", "p99_ms"]),
        (60, []),
    ],
)
def test_on_narrow_terminals_columns_are_left_out(
    capsys: pytest.CaptureFixture[str], width: int, left: list[str]
) -> None:
    printed = lines(capsys, width, BUSY, QUIET)
    assert len(printed) == 4 and max(map(len, printed)) <= width
    assert printed[0].split() == ["minute", "topic", "messages", "bytes", *left]


def test_in_a_file_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    *_, busy = lines(capsys, None, BUSY)
    assert str(BUSY[1]) in busy and busy.endswith(str(BUSY[-1]))


def test_signs_that_are_wide_or_none_are_measured_as_they_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for key in ("客户" * 30, "\x1b[31m" * 30, "[bold]" * 30):
        printed = lines(capsys, 120, (*QUIET[:-1], key))
        assert len(printed) == 3, printed
        assert printed[-1].endswith("…") and "\x1b" not in printed[-1]


@pytest.mark.parametrize("columns", [120, 80])
def test_a_terminal_is_asked_how_wide_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    stats_printer(False, False, True).print_rows(NAMES, ARE_NUMBERS, [BUSY, QUIET])
    printed = [Text.from_ansi(line).plain for line in capsys.readouterr().out.splitlines()]
    assert len(printed) == 4 and max(map(len, printed)) <= columns


def test_programs_get_all_digits() -> None:
    assert isinstance(stats_printer(True, False, True), JsonPrinter)
    assert isinstance(stats_printer(False, True, True), CsvPrinter)


@pytest.mark.parametrize(
    ("number", "short"),
    [
        ("0", "0"),
        ("999999", "999999"),
        ("1000000", "1M"),
        ("-1234567", "-1.23M"),
        ("9223372036854775807", "9.22E"),
        ("0.02", "0.02"),
        ("205.84", "206"),
        ("999.96", "1k"),
        ("999999.9", "1M"),
        ("1.0E7", "10M"),
    ],
)
def test_numbers_are_short(number: str, short: str) -> None:
    assert compact(number) == short


def test_keys_that_are_approximate_have_a_sign(capsys: pytest.CaptureFixture[str]) -> None:
    names, are_numbers = [*NAMES, "top_keys_approximate"], [*ARE_NUMBERS, False]
    rows = [(*BUSY, "true"), (*BUSY, "false")]
    assert StatsTable(TablePrinter(), lambda: None).print_rows(names, are_numbers, rows) == 2
    head, _, approximate, exact = capsys.readouterr().out.splitlines()
    assert head.rstrip().endswith("top_keys")
    assert "  ≈ customer-100017: 5123" in approximate and "  customer-100017: 5123" in exact
