"""`kourou pipeline archive`: topics to Parquet, Delta or Iceberg."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.pairs import parse_pairs
from kourou.cli.pipeline_options import (
    MasterOption,
    NamesrvOption,
    SourceOptions,
    parse_duration_ms,
    parse_size_bytes,
)
from kourou.cli.problems import run_command

_PROGRAM = "kourou pipeline archive"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="archive")(archive)


def archive(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics; later runs know those of before."),
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The archive's folder; made if new.")] = "",
    namesrv: NamesrvOption = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="All topics whose names match, also new ones.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(metavar="NAME", help="parquet (if not given), delta or iceberg.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes; else end behind what is there.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="With --follow: between batches, such as 30s or 5m.")
    ] = "30s",
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where a new archive begins: earliest, latest, or a time such as 2026-01-31T08:00:00+00:00.",
        ),
    ] = "earliest",
    batch_messages: Annotated[
        int, typer.Option(metavar="N", min=1, help="Messages in one batch, at most.")
    ] = 1_000_000,
    compact: Annotated[bool, typer.Option(help="Make large files of small ones.")] = True,
    file_size: Annotated[
        str, typer.Option(metavar="SIZE", help="How large compacted files become, about.")
    ] = "128m",
    keep_replaced: Annotated[
        str, typer.Option(metavar="TIME", help="How long files stay that were compacted, for their readers.")
    ] = "1h",
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Iceberg: the table's name (archive.messages).")
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(metavar="NAME", help="Iceberg: a catalog of pyiceberg's configuration.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="A group to show progress by, to mqadmin and console.")
    ] = None,
    options: SourceOptions = None,
    master: MasterOption = "local[*]",
    as_json: Annotated[bool, typer.Option("--json", help="Print progress and summary as JSON.")] = False,
) -> None:
    """Keep topics in a folder of Parquet, Delta or Iceberg, apart by topic and day.

    Run again it goes on where it was, after a kill too: every message is there once. Ctrl-C ends it
    behind the batch that is under way. Exit code 1: it failed.
    """

    def action() -> None:
        from kourou.spark.pipelines.archive import ArchiveRequest, run_archive

        run_archive(
            ArchiveRequest(
                to=to,
                topics=tuple(topics or ()),
                namesrv=namesrv,
                pattern=pattern,
                format=format,
                follow=follow,
                every_ms=parse_duration_ms("--every", every),
                start=start,
                batch_messages=batch_messages,
                compact=compact,
                target_file_bytes=parse_size_bytes("--file-size", file_size),
                retain_ms=parse_duration_ms("--keep-replaced", keep_replaced),
                table=table,
                catalog=catalog,
                group=group,
                options=parse_pairs("--option", options or []),
                master=master,
                as_json=as_json,
            )
        )

    run_command(_PROGRAM, action)
