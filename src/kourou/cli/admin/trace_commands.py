"""Commands about message traces: queryMsgTraceById."""

from __future__ import annotations

from typing import Final

from kourou.admin.messages.message_queries import FOR_EVER_MS, MAX_FOUND
from kourou.admin.messages.trace import MessageTrace, TraceStatus, message_trace
from kourou.cli.admin import formatting
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.message.query_commands import time_of
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC

_LAYOUT: Final = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"


async def _trace(call: Call) -> MessageTrace:
    args = call.args
    return await message_trace(
        call.admin,
        args.text("msgId"),
        trace_topic=args.text("traceTopic", RMQ_SYS_TRACE_TOPIC),
        begin_ms=time_of(args, "beginTimestamp", 0),
        end_ms=time_of(args, "endTimestamp", FOR_EVER_MS),
        max_num=args.number("maxNum", MAX_FOUND),
    )


def _show_trace(trace: MessageTrace, screen: Screen) -> None:
    for send in trace.sends:
        row = _row("Pub", send.group, send.client_host, send.begin_ms, send.cost_ms, send.status)
        _show_rows("#ProducerGroup", "#SendTime", [row], screen)
    for group in trace.consumers:
        # As Apache's: by the time of the end, and without deliveries that have none.
        rows = [
            _row("Sub", group.consumer_group, each.client_host, each.end_ms, each.cost_ms, each.status)
            for each in group.attempts
            if each.end_ms is not None and each.cost_ms is not None
        ]
        if rows:
            _show_rows("#ConsumerGroup", "#ConsumerTime", rows, screen)
    for problem in trace.problems:
        screen.note(problem)


def _show_rows(group: str, when: str, rows: list[tuple[str, ...]], screen: Screen) -> None:
    screen.table(_LAYOUT, ("#Type", group, "#ClientHost", when, "#CostTimes", "#Status"), rows)
    screen.line()


def _row(
    kind: str, group: str, client_host: str, time_ms: int, cost_ms: int, status: TraceStatus
) -> tuple[str, ...]:
    shown = "success" if status is TraceStatus.SUCCESS else "failed"
    return kind, group, client_host, formatting.format_time(time_ms), f"{cost_ms}ms", shown


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
        ask=_trace,
        show=_show_trace,
        aliases=("QueryMsgTraceById",),
    ),
)
