"""`kourou pipeline replay`: sends archived messages to a topic again."""

from __future__ import annotations

import click

from kourou.cli.pipeline.options import master_option, namesrv_option, pairs_option, parse_options
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineCommand

_PROGRAM = "kourou pipeline replay"


@click.command(cls=OneLineCommand)
@click.argument("archive", metavar="DIR")
@click.option("--to", metavar="TOPIC", help="Topic for all messages.")
@click.option("--same-topics", is_flag=True, help="Instead: each message to its original topic.")
@namesrv_option
@click.option(
    "topics", "--topic", multiple=True, metavar="TOPIC", help="Only messages of this topic; may be repeated."
)
@click.option(
    "begin",
    "--from",
    metavar="TIME",
    help="Stored at or after this time: 2026-01-31T08:00:00+00:00 (UTC without a zone), or "
    "milliseconds since 1970.",
)
@click.option("--until", metavar="TIME", help="Stored before this time.")
@click.option("--rate", type=float, metavar="N", help="Maximum messages per second; default: unlimited.")
@click.option(
    "--origin",
    metavar="NAME",
    help="Add a property NAME with the original topic/broker/queue/offset.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be sent.")
@click.option("--restart", is_flag=True, help="Start over, even if an earlier run was interrupted.")
@pairs_option("sink")
@master_option
@click.option("as_json", "--json", is_flag=True, help="Print plan, progress and summary as JSON.")
def replay(
    *,
    archive: str,
    to: str | None,
    same_topics: bool,
    namesrv: str | None,
    topics: tuple[str, ...],
    begin: str | None,
    until: str | None,
    rate: float | None,
    origin: str | None,
    dry_run: bool,
    restart: bool,
    options: tuple[str, ...],
    master: str,
    as_json: bool,
) -> None:
    """Send archived messages again: by topic and time, in the order of their queues.

    DIR is the archive's folder.

    Delivery is at least once: an interrupted run continues when it is run again with the same archive, topics
    and times, and repeats some messages. Exit code 1: it failed, or there is nothing to send.
    """

    def action() -> None:
        from kourou.spark.pipelines.replay.replay import ReplayRequest, run_replay
        from kourou.spark.pipelines.start_option import parse_time_ms

        run_replay(
            ReplayRequest(
                archive=archive,
                to=to,
                same_topics=same_topics,
                namesrv=namesrv,
                topics=topics,
                from_ms=None if begin is None else parse_time_ms("--from", begin),
                until_ms=None if until is None else parse_time_ms("--until", until),
                rate=rate,
                origin=origin,
                dry_run=dry_run,
                restart=restart,
                options=parse_options(options),
                master=master,
                as_json=as_json,
            )
        )

    run_command(_PROGRAM, action)
