"""`kourou pipeline sql`: SQL over topics and archives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kourou.cli.pairs import parse_pairs
from kourou.cli.pipeline_options import MasterOption, NamesrvOption, SourceOptions
from kourou.cli.problems import run_command
from kourou.errors import ConfigError, NameServerNotGivenError

if TYPE_CHECKING:
    from kourou.spark.pipelines.sql import RowPrinter, SqlRequest

TABLE_LIMIT: Final = 100
"""Rows of a table that is printed for people, unless they say otherwise."""
_PROGRAM: Final = "kourou pipeline sql"
_FOLLOW_FROM: Final = "latest"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="sql")(sql)


def sql(
    query: Annotated[str, typer.Argument(metavar="SQL", help="A query; tables have the names of topics.")],
    namesrv_addr: NamesrvOption = None,
    archive: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="An archive of topics, to be read as well; may be repeated."),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TOPIC=]FORM",
            help="What bodies are: json (columns by a sample), json:SCHEMA, string (if not given), binary.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help=f"So many rows; 0: all. {TABLE_LIMIT} for tables, else all, if not given.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="With --follow: latest (if not given), earliest, or a time (2026-01-31T08:00:00).",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --follow: between batches.")
    ] = 1.0,
    option: SourceOptions = None,
    master: MasterOption = "local[*]",
) -> None:
    """Ask topics by SQL: a topic is a table, with a row for each message.

    `SHOW TABLES` lists the topics. Names with other signs than letters, digits and _ go in backquotes.
    With --archive a table has live and archived messages, each once; NAME__live and NAME__archive have one
    side.
    """

    def action() -> None:
        from kourou.spark.pipelines.progress import ProgressOutput
        from kourou.spark.pipelines.sql import run_sql

        if start is not None and not follow:
            raise ConfigError(
                "--from goes with --follow; in what is there already, SQL chooses: "
                "WHERE store_timestamp >= '2026-01-31 08:00:00'"
            )
        request = sql_request(
            query,
            namesrv=namesrv_addr or os.environ.get("NAMESRV_ADDR", ""),
            archives=archive or [],
            values=value or [],
            options=option or [],
            limit=_limit(limit, is_table=not as_json and not as_csv and not follow),
            follow_from=(start or _FOLLOW_FROM) if follow else None,
            interval=interval,
            master=master,
        )
        run_sql(request, printer_of(as_json, as_csv, follow), ProgressOutput.standard(as_json=as_json))

    run_command(_PROGRAM, action)


def sql_request(
    query: str,
    *,
    namesrv: str,
    archives: Sequence[str],
    values: Sequence[str],
    options: Sequence[str],
    limit: int | None,
    follow_from: str | None,
    interval: float,
    master: str,
) -> SqlRequest:
    """What the command was told. ConfigError: something of it is wrong."""
    from kourou.spark.pipelines.sql import SqlRequest
    from kourou.spark.pipelines.start_point import start_option
    from kourou.spark.pipelines.tables import TableOptions
    from kourou.spark.pipelines.value_forms import parse_value_forms

    if not namesrv and (not archives or follow_from is not None):
        raise NameServerNotGivenError("no name server is given: use -n host:9876, or set NAMESRV_ADDR")
    source = source_options(namesrv, options)
    if follow_from is not None:
        source |= start_option("--from", follow_from)
    return SqlRequest(
        sql=query,
        tables=TableOptions(
            source=source,
            archives=tuple(archives),
            values=parse_value_forms(values),
            is_stream=follow_from is not None,
        ),
        limit=limit,
        master=master,
        interval_seconds=interval,
    )


def source_options(namesrv: str, options: Sequence[str]) -> dict[str, str]:
    """Options of the source, from `NAME=VALUE` texts."""
    return {**({"namesrv": namesrv} if namesrv else {}), **parse_pairs("--option", options)}


def _limit(limit: int | None, *, is_table: bool) -> int | None:
    if limit is None:
        return TABLE_LIMIT if is_table else None
    return limit or None


def printer_of(as_json: bool, as_csv: bool, is_stream: bool) -> RowPrinter:
    """What writes rows in the form that options ask for."""
    from kourou.cli.row_printers import CsvPrinter, JsonPrinter, TablePrinter

    if as_json and as_csv:
        raise ConfigError("--json and --csv exclude each other")
    if as_json:
        return JsonPrinter()
    return CsvPrinter() if as_csv else TablePrinter(skip_empty=is_stream)
