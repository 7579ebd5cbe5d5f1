"""Commands about message traces: queryMsgTraceById."""

from __future__ import annotations

from typing import Final

from kourou.admin.messages.message_queries import FOR_EVER_MS, MAX_FOUND
from kourou.admin.messages.trace import MessageTraces, TraceEvent, message_traces
from kourou.cli.admin import formatting
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.message.query_commands import time_of
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC

_LAYOUT: Final = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"


async def _traces(call: Call) -> MessageTraces:
    args = call.args
    return await message_traces(
        call.admin,
        args.text("msgId"),
        trace_topic=args.text("traceTopic", RMQ_SYS_TRACE_TOPIC),
        begin_ms=time_of(args, "beginTimestamp", 0),
        end_ms=time_of(args, "endTimestamp", FOR_EVER_MS),
        max_num=args.number("maxNum", MAX_FOUND),
    )


def _show_traces(found: MessageTraces, screen: Screen) -> None:
    for event in found.sent:
        _show_events("Pub", "#ProducerGroup", "#SendTime", [event], screen)
    for group in found.consumed:
        _show_events("Sub", "#ConsumerGroup", "#ConsumerTime", group.events, screen)


def _show_events(kind: str, group: str, when: str, events: list[TraceEvent], screen: Screen) -> None:
    screen.table(
        _LAYOUT,
        ("#Type", group, "#ClientHost", when, "#CostTimes", "#Status"),
        [_row(kind, event) for event in events],
    )
    screen.line()


def _row(kind: str, event: TraceEvent) -> tuple[str, ...]:
    return (
        kind,
        event.group,
        event.client_host,
        formatting.format_time(event.time_ms),
        f"{event.cost_ms}ms",
        "success" if event.is_success else "failed",
    )


TRACE_COMMANDS: Final = (
    AdminCommand(
        name="queryMsgTraceById",
        about="Show the trace of a message: which producer sent it and which consumers processed it.",
        example="queryMsgTraceById -n 127.0.0.1:9876 -i 7F00000159805FFD2B2748C1FF0207A2",
        options=(
            required("i", "msgId", "unique id of the message"),
            value("t", "traceTopic", f"topic of the traces (default: {RMQ_SYS_TRACE_TOPIC})"),
            value("b", "beginTimestamp", "recorded at or after this time, milliseconds (default: 0)"),
            value("e", "endTimestamp", "recorded before this time, milliseconds (default: no limit)"),
            value("c", "maxNum", "maximum number of records per broker (default: 64)"),
        ),
        ask=_traces,
        show=_show_traces,
        aliases=("QueryMsgTraceById",),
    ),
)
