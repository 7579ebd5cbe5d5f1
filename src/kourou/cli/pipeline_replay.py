"""`kourou pipeline replay`: messages of an archive into a topic again."""

from __future__ import annotations

from typing import Annotated

import typer

from kourou.cli.pairs import parse_pairs
from kourou.cli.pipeline_options import MasterOption, NamesrvOption
from kourou.cli.problems import run_command

_PROGRAM = "kourou pipeline replay"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="replay")(replay)


def replay(
    archive: Annotated[str, typer.Argument(metavar="DIR", help="The archive's folder.")],
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Where all messages go.")] = None,
    same_topics: Annotated[
        bool, typer.Option("--same-topics", help="Instead: each message to the topic that it was in.")
    ] = False,
    namesrv: NamesrvOption = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only messages of this topic; may be repeated."),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Stored at this time or later: 2026-01-31T08:00:00+00:00 (without a zone: UTC), or "
            "milliseconds since 1970.",
        ),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Stored before this time.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Messages a second, at most; without it as fast as it goes."),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Give each message a property NAME: topic/broker/queue/offset where it was."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, even if an earlier run was ended in the middle.")
    ] = False,
    options: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", metavar="KEY=VALUE", help="An option of the sink; may be repeated."),
    ] = None,
    master: MasterOption = "local[*]",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print plan, progress and summary as JSON.")
    ] = False,
) -> None:
    """Send messages of an archive again: by topic and time, in the order of their queues.

    At least once: a run that was ended in the middle goes on when it is run again with the same archive,
    topics and times, and sends some messages once more. Exit code 1: it failed, or there is nothing to send.
    """

    def action() -> None:
        from kourou.spark.pipelines.replay import ReplayRequest, run_replay
        from kourou.spark.pipelines.start_point import parse_time_ms

        run_replay(
            ReplayRequest(
                archive=archive,
                to=to,
                same_topics=same_topics,
                namesrv=namesrv,
                topics=tuple(topics or ()),
                from_ms=None if begin is None else parse_time_ms("--from", begin),
                until_ms=None if until is None else parse_time_ms("--until", until),
                rate=rate,
                origin=origin,
                dry_run=dry_run,
                restart=restart,
                options=parse_pairs("--option", options or []),
                master=master,
                as_json=as_json,
            )
        )

    run_command(_PROGRAM, action)
