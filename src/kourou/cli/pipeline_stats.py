"""`kourou pipeline stats`: what goes through topics, minute by minute."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kourou.cli.pipeline_options import MasterOption, NamesrvOption, SourceOptions
from kourou.cli.pipeline_sql import printer_of, source_options
from kourou.cli.problems import run_command
from kourou.errors import ConfigError, NameServerNotGivenError

if TYPE_CHECKING:
    from kourou.spark.pipelines.sql import RowPrinter

_PROGRAM: Final = "kourou pipeline stats"
_AGO: Final = re.compile(r"(\d+)\s*([smhd])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="stats")(stats)


def stats(
    namesrv_addr: NamesrvOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC",
            help="A topic; may be repeated. All, if not given, but RocketMQ's own.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Count what is there, and end; so it is anyway.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only messages stored since: 90s, 15m, 2h, 3d ago, or a time."),
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Send each minute there, as JSON, once it is over.")
    ] = None,
    parquet: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Add each minute to a table of Parquet, once it is over."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="How far it is; _checkpoint in the folder of --parquet if not given."
        ),
    ] = None,
    late: Annotated[
        int,
        typer.Option(
            metavar="SECONDS", min=0, help="A minute is over when newer messages are so much after it."
        ),
    ] = 60,
    window: Annotated[
        int, typer.Option(metavar="SECONDS", min=1, max=86_400, help="What is counted together.")
    ] = 60,
    top: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="How many keys are named.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object in each line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many lines; for looks.")
    ] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --follow: between batches.")
    ] = 10.0,
    option: SourceOptions = None,
    master: MasterOption = "local[*]",
) -> None:
    """Count what goes through topics: messages, bytes, latency and keys of each minute.

    Latency is from the producer's clock to the broker's. With --to-topic or --parquet minutes are kept:
    started again it goes on where it was, and minutes that are not over yet wait for the next run.
    """

    def action() -> None:
        from kourou.spark.pipelines.progress import ProgressOutput
        from kourou.spark.pipelines.stats import StatsRequest, run_stats

        if once and follow:
            raise ConfigError("--once and --follow exclude each other")
        namesrv = namesrv_addr or os.environ.get("NAMESRV_ADDR", "")
        if not namesrv:
            raise NameServerNotGivenError("no name server is given: use -n host:9876, or set NAMESRV_ADDR")
        source = source_options(namesrv, option or [])
        if since is not None:
            source["startingTimestamp"] = since_option(since, time.time())
        request = StatsRequest(
            source=source,
            topics=tuple(topic or ()),
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

    run_command(_PROGRAM, action)


def stats_printer(as_json: bool, as_csv: bool, is_stream: bool) -> RowPrinter:
    """What writes statistics: those for people fit their terminal."""
    from kourou.cli.pipeline_stats_table import StatsTable
    from kourou.cli.row_printers import TablePrinter

    printer = printer_of(as_json, as_csv, is_stream)
    return StatsTable(printer) if isinstance(printer, TablePrinter) else printer


def since_option(text: str, now_s: float) -> str:
    """What `--since` says as the source's startingTimestamp: so long ago, or the time itself. ConfigError: it
    is neither."""
    match = _AGO.fullmatch(text.strip().lower())
    if match is None:
        from kourou.spark.pipelines.start_point import A_TIME, parse_time_ms

        parse_time_ms("--since", text, f"so long ago, such as 90s, 15m, 2h or 3d, or {A_TIME}")
        return text
    return str(round((now_s - int(match[1]) * _UNIT_SECONDS[match[2]]) * 1000))
