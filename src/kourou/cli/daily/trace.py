"""`kourou trace`: the trace of a message, and the export of traces as OpenTelemetry spans."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import click

from kourou.admin.messages.otlp import OtlpExporter, headers_of, traces_url
from kourou.admin.messages.trace import MessageTrace, message_trace, traces_of_key
from kourou.admin.messages.trace_export import EXPORT_GROUP, TraceExport, TraceExportOptions
from kourou.cli.daily.cluster_command import Session, cluster_command
from kourou.cli.daily.missing_names import existing_route
from kourou.cli.daily.names import complete_topics
from kourou.cli.daily.times import EARLIEST, LATEST, format_time, parse_time_ms
from kourou.cli.usage import OneLineGroup
from kourou.client.push.consumer_options import ConsumeFrom
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC
from kourou.wording import counted

trace_app = OneLineGroup("trace", help="Show the trace of a message; export traces to OpenTelemetry.")

_trace_topic = click.option(
    "--trace-topic",
    default=RMQ_SYS_TRACE_TOPIC,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Topic that clients write their traces to.",
)
_STOP_S: Final = 5.0
_HEADINGS: Final = ("TIME", "MS", "EVENT", "GROUP", "CLIENT", "COST", "STATUS")


# -- show --------------------------------------------------------------------------------------------


@trace_app.command("show")
@click.argument("word", metavar="ID")
@click.option("is_key", "--key", is_flag=True, help="ID is a key: show all messages with it.")
@click.option("--topic", shell_complete=complete_topics, help="With --key: only messages of this topic.")
@_trace_topic
@cluster_command
async def show(session: Session, *, word: str, is_key: bool, topic: str | None, trace_topic: str) -> None:
    """Show the sends and deliveries of a message.

    ID is the unique id of the message. Clients write a trace if it is switched on (trace=True, in Java
    enableMsgTrace), up to five seconds after the event.
    """
    if is_key:
        traces = await traces_of_key(session.admin, word, topic=topic, trace_topic=trace_topic)
    else:
        traces = [await message_trace(session.admin, word, trace_topic=trace_topic)]

    def show_all() -> None:
        for number, trace in enumerate(traces):
            if number:
                session.screen.line()
            _show(session, trace)

    session.show(traces if is_key else traces[0], show_all)


def _show(session: Session, trace: MessageTrace) -> None:
    session.screen.line(f"{trace.msg_id} {trace.topic or '(topic unknown: its send is not recorded)'}")
    rows = sorted(_rows(trace), key=lambda row: row[0])
    shown = [(format_time(time_ms), f"+{time_ms - trace.begin_ms}", *row) for time_ms, row in rows]
    session.table(_HEADINGS, shown)
    for problem in dict.fromkeys(trace.problems):
        session.note(problem)


def _rows(trace: MessageTrace) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The time of each event, and its cells after that."""
    for send in trace.sends:
        event = "send" if send.message_type == "normal" else f"send ({send.message_type})"
        yield send.begin_ms, (event, send.group, send.client_host, f"{send.cost_ms}ms", send.status)
    for end in trace.transactions:
        cause = "check" if end.is_from_check else "transaction"
        yield end.time_ms, (cause, end.group, end.client_host, "-", end.state)
    for recall in trace.recalls:
        yield recall.time_ms, ("recall", recall.group, recall.client_host, "-", recall.status)
    for group in trace.consumers:
        for attempt in group.attempts:
            event = f"consume (retry {attempt.retry_times})" if attempt.retry_times else "consume"
            cost = "-" if attempt.cost_ms is None else f"{attempt.cost_ms}ms"
            yield attempt.begin_ms, (event, group.consumer_group, attempt.client_host, cost, attempt.status)


# -- export ------------------------------------------------------------------------------------------


@trace_app.command("export")
@click.option(
    "--otlp",
    metavar="URL",
    help="OTLP/HTTP address of the collector; default: OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318.",
)
@_trace_topic
@click.option("--group", default=EXPORT_GROUP, metavar="GROUP", help="Consumer group that reads the topic.")
@click.option(
    "begin",
    "--from",
    default=LATEST,
    metavar="WHERE",
    help="Where a new group begins: earliest, latest, -10m (before now), or a time.",
)
@click.option(
    "--skip-with-context",
    is_flag=True,
    help="Leave out messages that carry a traceparent: their clients export spans themselves.",
)
@click.option(
    "lookup",
    "--lookup/--no-lookup",
    default=True,
    show_default=False,
    help="Read each message for its traceparent (the default), or make each message a trace of its own.",
)
@cluster_command
async def export(
    session: Session,
    *,
    otlp: str | None,
    trace_topic: str,
    group: str,
    begin: str,
    skip_with_context: bool,
    lookup: bool,
) -> None:
    """Export traces as spans to an OpenTelemetry collector.

    Runs until Ctrl-C, with the traces of all clients. Sends and deliveries become spans, with the times that
    the clients recorded; those of a message that carries a traceparent join its trace. The group's offsets
    are stored, so the next run continues. Headers are taken from OTEL_EXPORTER_OTLP_HEADERS.
    """
    url = traces_url(otlp, os.environ)
    exporter = OtlpExporter(url, headers_of(os.environ), on_trouble=session.note)
    await existing_route(session.admin, trace_topic)
    options = TraceExportOptions(
        trace_topic=trace_topic,
        group=group,
        consume_from=_begin(begin),
        with_context=not skip_with_context,
        lookup=lookup,
    )
    running = TraceExport(session.admin, exporter.export, options)
    session.note(f"exporting {trace_topic} to {url}; stop with Ctrl-C")
    await _until_stopped(running)
    session.show(running.stats, lambda: session.screen.line(_summary(running, exporter)))


def _begin(text: str) -> ConsumeFrom:
    if text == LATEST:
        return "last"
    if text == EARLIEST:
        return "first"
    return datetime.fromtimestamp(parse_time_ms("--from", text) / 1000, UTC)


async def _until_stopped(running: TraceExport) -> None:
    """Run until Ctrl-C or SIGTERM; then finish the current export, unless the collector is away."""
    task = asyncio.create_task(running.run(), name="trace-export")
    loop = asyncio.get_running_loop()

    def stop() -> None:
        running.stop()
        loop.call_later(_STOP_S, task.cancel)

    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, nor in other threads
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await task


def _summary(running: TraceExport, exporter: OtlpExporter) -> str:
    stats = running.stats
    parts = [f"{counted(exporter.exported, 'span')} of {counted(stats.records, 'record')} exported"]
    for count, what in (
        (exporter.rejected, "rejected by the collector"),
        (stats.left_out, "left out"),
        (stats.unreadable, "unreadable"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return ", ".join(parts)
