"""`kourou pipeline stats`: traffic of topics per minute."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

import click

from kourou.cli.option_types import FloatRange, IntRange
from kourou.cli.pipeline.options import (
    master_option,
    namesrv_missing,
    namesrv_option,
    pairs_option,
    resolved_namesrv,
)
from kourou.cli.pipeline.sql import printer_of, source_options
from kourou.cli.problems import UsageError, run_command
from kourou.cli.usage import OneLineCommand

if TYPE_CHECKING:
    from kourou.spark.pipelines.sql.sql import RowPrinter

_PROGRAM: Final = "kourou pipeline stats"
_AGO: Final = re.compile(r"(\d+)\s*([smhd])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@click.command(cls=OneLineCommand)
@namesrv_option
@click.option(
    "-t",
    "--topic",
    multiple=True,
    metavar="TOPIC",
    help="A topic; may be repeated. Default: all except for system topics.",
)
@click.option("--once", is_flag=True, help="Count stored messages and exit (the default).")
@click.option("--follow", is_flag=True, help="Keep counting new messages until Ctrl-C.")
@click.option("--since", metavar="WHEN", help="Only messages stored since: 90s, 15m, 2h, 3d ago, or a time.")
@click.option("--to-topic", metavar="TOPIC", help="Send each complete minute to this topic, as JSON.")
@click.option("--parquet", metavar="DIR", help="Append each complete minute to a Parquet table.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Folder of the progress; default _checkpoint in the folder of --parquet.",
)
@click.option(
    "--late",
    type=IntRange(0),
    default=60,
    metavar="SECONDS",
    help="A minute is complete when messages are newer than it by this much.",
)
@click.option(
    "--window",
    type=IntRange(1, 86_400),
    default=60,
    metavar="SECONDS",
    help="Length of a window.",
)
@click.option("--top", type=IntRange(1, 1_000), default=5, metavar="N", help="Number of keys to list.")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per line.")
@click.option("as_csv", "--csv", is_flag=True, help="Print CSV.")
@click.option(
    "--limit",
    type=IntRange(1),
    metavar="N",
    help="Exit after this many lines; not with --to-topic or --parquet.",
)
@click.option(
    "--interval",
    type=FloatRange(0),
    default=10.0,
    metavar="SECONDS",
    help="With --follow: interval between batches.",
)
@pairs_option("source")
@master_option
def stats(
    *,
    namesrv: str | None,
    topic: tuple[str, ...],
    once: bool,
    follow: bool,
    since: str | None,
    to_topic: str | None,
    parquet: str | None,
    checkpoint: str | None,
    late: int,
    window: int,
    top: int,
    as_json: bool,
    as_csv: bool,
    limit: int | None,
    interval: float,
    options: tuple[str, ...],
    master: str,
) -> None:
    """Count the traffic of topics: messages, bytes, latency and keys of each minute.

    Latency is from the producer's clock to the broker's. With --to-topic or --parquet minutes are stored: a
    new run continues where the last one ended, and incomplete minutes wait for the next run.
    """

    def action() -> None:
        from kourou.spark.pipelines.progress import ProgressOutput
        from kourou.spark.pipelines.sql.stats import StatsRequest, run_stats

        if once and follow:
            raise UsageError("--once and --follow are mutually exclusive")
        where = resolved_namesrv(namesrv)
        if not where:
            raise namesrv_missing()
        source = source_options(where, options)
        if since is not None:
            source["startingTimestamp"] = since_option(since, time.time())
        request = StatsRequest(
            source=source,
            topics=topic,
            follow=follow,
            top=top,
            window_seconds=window,
            late_seconds=late,
            to_topic=to_topic,
            parquet=parquet,
            checkpoint=checkpoint,
            limit=limit,
            master=master,
            interval_seconds=interval,
        )
        run_stats(request, stats_printer(as_json, as_csv, follow), ProgressOutput.standard(as_json=as_json))

    run_command(_PROGRAM, action, is_output_all=to_topic is None and parquet is None)


def stats_printer(as_json: bool, as_csv: bool, is_stream: bool) -> RowPrinter:
    """The printer of statistics; tables are fitted to the terminal."""
    from kourou.cli.pipeline.row_printers import TablePrinter
    from kourou.cli.pipeline.stats_table import StatsTable

    printer = printer_of(as_json, as_csv, is_stream)
    return StatsTable(printer) if isinstance(printer, TablePrinter) else printer


def since_option(text: str, now_s: float) -> str:
    """`--since` as the source's startingTimestamp: a duration ago, or a time. ConfigError: it
    is neither."""
    match = _AGO.fullmatch(text.strip().lower())
    if match is None:
        from kourou.spark.pipelines.start_option import A_TIME, parse_time_ms

        parse_time_ms("--since", text, f"a duration ago such as 90s, 15m, 2h or 3d, or {A_TIME}")
        return text
    return str(round((now_s - int(match[1]) * _UNIT_SECONDS[match[2]]) * 1000))
