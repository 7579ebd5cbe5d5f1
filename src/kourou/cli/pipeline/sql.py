"""`kourou pipeline sql`: SQL over topics and archives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kourou.cli.option_types import FloatRange, IntRange
from kourou.cli.pairs import parse_pairs
from kourou.cli.pipeline.options import (
    master_option,
    namesrv_missing,
    namesrv_option,
    pairs_option,
    parse_options,
    resolved_namesrv,
)
from kourou.cli.problems import UsageError, run_command
from kourou.cli.usage import OneLineCommand
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.spark.pipelines.sql.sql import RowPrinter, SqlRequest

TABLE_LIMIT: Final = 100
"""The default limit of rows in a printed table."""
_PROGRAM: Final = "kourou pipeline sql"
_FOLLOW_FROM: Final = "latest"


@click.command(cls=OneLineCommand)
@click.argument("query", metavar="SQL", required=False)
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="A file with the SQL."
)
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=VALUE",
    help="A text for :NAME in the SQL; may be repeated.",
)
@namesrv_option
@click.option(
    "--archive",
    multiple=True,
    metavar="DIR",
    help="An archive to read as well; may be repeated.",
)
@click.option(
    "--value",
    multiple=True,
    metavar="[TOPIC=]FORM",
    help="Format of bodies: json (columns from a sample), json:SCHEMA, string (default), binary.",
)
@click.option("as_json", "--json", is_flag=True, help="Print a JSON object for each row.")
@click.option("as_csv", "--csv", is_flag=True, help="Print CSV.")
@click.option(
    "--limit",
    type=IntRange(0),
    metavar="N",
    help=f"Maximum rows; 0 for all. Default: {TABLE_LIMIT} for tables, otherwise all.",
)
@click.option("--follow", is_flag=True, help="Keep printing new rows until Ctrl-C.")
@click.option(
    "start",
    "--from",
    metavar="WHERE",
    help="With --follow: latest (default), earliest, or a time (2026-01-31T08:00:00).",
)
@click.option(
    "--interval",
    type=FloatRange(0),
    default=1.0,
    metavar="SECONDS",
    help="With --follow: interval between batches.",
)
@pairs_option("source")
@master_option
def sql(
    *,
    query: str | None,
    file: Path | None,
    param: tuple[str, ...],
    namesrv: str | None,
    archive: tuple[str, ...],
    value: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
    limit: int | None,
    follow: bool,
    start: str | None,
    interval: float,
    options: tuple[str, ...],
    master: str,
) -> None:
    """Query topics with SQL: a topic is a table, with a row for each message.

    SQL is a query; tables have the names of topics.

    `SHOW TABLES` lists the topics. Quote names with characters other than letters, digits and _ in backticks.
    With --archive a table has live and archived messages, each once; NAME__live and NAME__archive have one
    side.
    """

    def action() -> None:
        from kourou.spark.pipelines.progress import ProgressOutput
        from kourou.spark.pipelines.sql.sql import run_sql

        if start is not None and not follow:
            raise ConfigError(
                "--from requires --follow; for stored messages use SQL: "
                "WHERE store_timestamp >= '2026-01-31 08:00:00'"
            )
        request = sql_request(
            _query(query, file),
            params=param,
            namesrv=resolved_namesrv(namesrv),
            archives=archive,
            values=value,
            options=options,
            limit=_limit(limit, is_table=not as_json and not as_csv and not follow),
            follow_from=(start or _FOLLOW_FROM) if follow else None,
            interval=interval,
            master=master,
        )
        run_sql(request, printer_of(as_json, as_csv, follow), ProgressOutput.standard(as_json=as_json))

    run_command(_PROGRAM, action, is_output_all=True)


def sql_request(
    query: str,
    *,
    params: Sequence[str] = (),
    namesrv: str,
    archives: Sequence[str],
    values: Sequence[str],
    options: Sequence[str],
    limit: int | None,
    follow_from: str | None,
    interval: float,
    master: str,
) -> SqlRequest:
    """The request for the given arguments. ConfigError if they are invalid."""
    from kourou.spark.pipelines.sql.sql import SqlRequest
    from kourou.spark.pipelines.sql.tables import TableOptions
    from kourou.spark.pipelines.sql.value_forms import parse_value_forms
    from kourou.spark.pipelines.start_option import start_option

    if not namesrv and (not archives or follow_from is not None):
        raise namesrv_missing()
    source = source_options(namesrv, options)
    if follow_from is not None:
        source |= start_option("--from", follow_from)
    return SqlRequest(
        sql=query,
        params=parse_pairs("--param", params, form="NAME=VALUE"),
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


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise UsageError("give the SQL, or --file with a file of it")
    if file is None:
        return query or ""
    try:
        return file.read_text("utf-8").rstrip().removesuffix(";")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {file}: {error}") from error


def source_options(namesrv: str, options: Sequence[str]) -> dict[str, str]:
    """Options of the source, from `NAME=VALUE` texts."""
    return {**({"namesrv": namesrv} if namesrv else {}), **parse_options(options)}


def _limit(limit: int | None, *, is_table: bool) -> int | None:
    if limit is None:
        return TABLE_LIMIT if is_table else None
    return limit or None


def printer_of(as_json: bool, as_csv: bool, is_stream: bool) -> RowPrinter:
    """The printer for the requested format."""
    from kourou.cli.pipeline.row_printers import CsvPrinter, JsonPrinter, TablePrinter

    if as_json and as_csv:
        raise UsageError("--json and --csv are mutually exclusive")
    if as_json:
        return JsonPrinter()
    return CsvPrinter() if as_csv else TablePrinter(skip_empty=is_stream)
