"""`kourou pipeline archive`: topics to Parquet, Delta or Iceberg."""

from __future__ import annotations

import click

from kourou.cli.option_types import IntRange, parse_duration_ms
from kourou.cli.pipeline.options import (
    master_option,
    namesrv_option,
    pairs_option,
    parse_options,
    parse_size_bytes,
)
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineCommand

_PROGRAM = "kourou pipeline archive"


@click.command(cls=OneLineCommand)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--to", default="", show_default=False, metavar="DIR", help="The archive's folder; created if missing."
)
@namesrv_option
@click.option("--pattern", metavar="REGEX", help="All topics whose names match, including new ones.")
@click.option("--format", metavar="NAME", help="parquet (default), delta or iceberg.")
@click.option("--follow", is_flag=True, help="Keep archiving new messages; default: exit at the current end.")
@click.option(
    "--every",
    default="30s",
    metavar="TIME",
    help="With --follow: interval between batches, such as 30s or 5m.",
)
@click.option(
    "start",
    "--from",
    default="earliest",
    metavar="WHERE",
    help="Start of a new archive: earliest, latest, or a time such as 2026-01-31T08:00:00+00:00.",
)
@click.option(
    "--batch-messages",
    type=IntRange(1),
    default=1_000_000,
    metavar="N",
    help="Maximum messages per batch.",
)
@click.option("--compact/--no-compact", default=True, help="Combine small files into large ones.")
@click.option("--file-size", default="128m", metavar="SIZE", help="Target size of compacted files.")
@click.option(
    "--keep-replaced",
    default="1h",
    metavar="TIME",
    help="How long to keep replaced files for readers.",
)
@click.option("--table", metavar="NAME", help="Iceberg: the table's name (archive.messages).")
@click.option("--catalog", metavar="NAME", help="Iceberg: a catalog of pyiceberg's configuration.")
@click.option(
    "--group", metavar="NAME", help="Consumer group that shows the progress, in mqadmin and the console."
)
@pairs_option("source")
@master_option
@click.option("as_json", "--json", is_flag=True, help="Print progress and summary as JSON.")
def archive(
    *,
    topics: tuple[str, ...],
    to: str,
    namesrv: str | None,
    pattern: str | None,
    format: str | None,
    follow: bool,
    every: str,
    start: str,
    batch_messages: int,
    compact: bool,
    file_size: str,
    keep_replaced: str,
    table: str | None,
    catalog: str | None,
    group: str | None,
    options: tuple[str, ...],
    master: str,
    as_json: bool,
) -> None:
    """Archive topics in a folder of Parquet, Delta or Iceberg, partitioned by topic and day.

    TOPIC is one to archive; later runs include earlier topics.

    A new run continues where the last one ended, even if it was killed: every message is archived exactly
    once. Ctrl-C stops after the current batch. Exit code 1: it failed.
    """

    def action() -> None:
        from kourou.spark.pipelines.archive.archive import ArchiveRequest, run_archive

        run_archive(
            ArchiveRequest(
                to=to,
                topics=topics,
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
                options=parse_options(options),
                master=master,
                as_json=as_json,
            )
        )

    run_command(_PROGRAM, action)
