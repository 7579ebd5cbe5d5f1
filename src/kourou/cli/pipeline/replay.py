"""`kourou pipeline replay`: messages of an archive into a topic again."""

from __future__ import annotations

import click

from kourou.cli.pairs import parse_pairs
from kourou.cli.pipeline.options import master_option, namesrv_option, pairs_option
from kourou.cli.problems import run_command
from kourou.cli.usage import OneLineCommand

_PROGRAM = "kourou pipeline replay"


@click.command(cls=OneLineCommand)
@click.argument("archive", metavar="DIR")
@click.option("--to", metavar="TOPIC", help="Where all messages go.")
@click.option("--same-topics", is_flag=True, help="Instead: each message to the topic that it was in.")
@namesrv_option
@click.option(
    "topics", "--topic", multiple=True, metavar="TOPIC", help="Only messages of this topic; may be repeated."
)
@click.option(
    "begin",
    "--from",
    metavar="TIME",
    help="Stored at this time or later: 2026-01-31T08:00:00+00:00 (without a zone: UTC), or "
    "milliseconds since 1970.",
)
@click.option("--until", metavar="TIME", help="Stored before this time.")
@click.option(
    "--rate", type=float, metavar="N", help="Messages a second, at most; without it as fast as it goes."
)
@click.option(
    "--origin",
    metavar="NAME",
    help="Give each message a property NAME: topic/broker/queue/offset where it was.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option("--restart", is_flag=True, help="Begin anew, even if an earlier run was ended in the middle.")
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
    """Send messages of an archive again: by topic and time, in the order of their queues.

    DIR is the archive's folder.

    At least once: a run that was ended in the middle goes on when it is run again with the same archive,
    topics and times, and sends some messages once more. Exit code 1: it failed, or there is nothing to send.
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
                options=parse_pairs("--option", options),
                master=master,
                as_json=as_json,
            )
        )

    run_command(_PROGRAM, action)
