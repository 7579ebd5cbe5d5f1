"""Commands about progress: lag of consumer groups, traffic of topics, monitoring of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from kourou.admin.consume_stats import (
    GroupProgress,
    GroupSummary,
    QueueProgress,
    consume_stats,
    group_summary,
)
from kourou.admin.monitoring import (
    DeletedMessages,
    FailedMessages,
    GroupFinding,
    MonitorEvent,
    RoundBegin,
    RoundEnd,
    UndoneMessages,
    monitor,
)
from kourou.admin.running_info import with_client_ips
from kourou.admin.topic_stats import TopicFlow, TopicFlows, all_flows
from kourou.admin.topics import topic_names
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut, format_time, java_message_queue
from kourou.cli.admin.options import flag, value
from kourou.cli.admin.screen import Screen
from kourou.protocol.bodies import ConsumeType, MessageQueue
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX, is_retry_topic

_AT_ONCE: Final = 8
"""Groups queried in parallel."""
_QUEUE_NAMES: Final = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
_QUEUE_LAYOUT: Final = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}"

# -- consumerProgress --------------------------------------------------------------------------------


async def _consumer_progress(call: Call) -> GroupProgress | list[GroupSummary]:
    args = call.args
    group = args.get("groupName")
    if group is None:
        return await _all_groups(call)
    progress = await consume_stats(call.admin, group, args.get("topicName"), route_of=args.get("cluster"))
    return await with_client_ips(call.admin, progress) if args.truth("showClientIP") else progress


async def _all_groups(call: Call) -> list[GroupSummary]:
    # One for each retry topic, those of POP included, as Apache lists them.
    groups = [
        name.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        for name in await topic_names(call.admin)
        if is_retry_topic(name)
    ]
    found: list[GroupSummary] = []
    for begin in range(0, len(groups), _AT_ONCE):
        call.screen.progress(f"{begin} of {len(groups)} groups")
        some = groups[begin : begin + _AT_ONCE]
        found += await asyncio.gather(*(group_summary(call.admin, group) for group in some))
    return found


def _show_consumer_progress(data: GroupProgress | list[GroupSummary], screen: Screen) -> None:
    if isinstance(data, list):
        _show_groups(data, screen)
    elif screen.is_v4:
        _show_progress_v4(data, screen)
    else:
        _show_progress(data, screen)


def _show_groups(groups: list[GroupSummary], screen: Screen) -> None:
    screen.table(
        "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}",
        ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"),
        (
            (
                cut(group.group, 64),
                group.count,
                group.version or "OFFLINE",
                _type_of(group),
                group.message_model if group.consume_type == ConsumeType.CONSUME_PASSIVELY else "",
                int(group.consume_tps),
                group.diff_total or 0,  # Apache's text for an unknown value
            )
            for group in groups
        ),
    )
    for group in groups:
        if group.problem:
            screen.trouble(f"{group.group}: {group.problem}")


def _type_of(group: GroupSummary) -> str:
    if not group.count:
        return ""
    return "PULL" if group.consume_type == ConsumeType.CONSUME_ACTIVELY else "PUSH"


def _show_progress(progress: GroupProgress, screen: Screen) -> None:
    has_ip = screen.args.truth("showClientIP")
    ip = ("#Client IP",) if has_ip else ()
    fields = _QUEUE_LAYOUT + " {:<20}" + (" {:<20}" if has_ip else "")
    screen.table(
        # As in Apache's output: no space before the last heading, and one before the last field.
        fields + "{}",
        (*_QUEUE_NAMES, *ip, "#Diff", "#Inflight", "#LastTime"),
        (
            (*_cells(queue, has_ip), queue.diff, queue.inflight, _last_time(queue))
            for queue in progress.queues
        ),
        rows_layout=fields + " {}",
    )
    screen.line()
    screen.line(f"Consume TPS: {progress.consume_tps:.2f}")
    screen.line(f"Consume Diff Total: {progress.diff_total}")
    screen.line(f"Consume Inflight Total: {progress.inflight_total}")


def _show_progress_v4(progress: GroupProgress, screen: Screen) -> None:
    has_ip = screen.args.truth("showClientIP")
    ip = ("#Client IP",) if has_ip else ()
    screen.table(
        _QUEUE_LAYOUT + (" {:<20}" if has_ip else "") + "  {}",
        (*_QUEUE_NAMES, *ip, "#Diff", "#LastTime"),
        ((*_cells(queue, has_ip), queue.diff, _last_time(queue)) for queue in progress.queues),
    )
    screen.line()
    screen.line(f"Consume TPS: {progress.consume_tps:.2f}")
    screen.line(f"Diff Total: {progress.diff_total}")


def _cells(queue: QueueProgress, has_ip: bool) -> tuple[object, ...]:
    cells = (
        cut(queue.topic, 64),
        cut(queue.broker_name, 32),
        queue.queue_id,
        queue.broker_offset,
        queue.consumer_offset,
    )
    return (*cells, queue.client_ip or "N/A") if has_ip else cells


def _last_time(queue: QueueProgress) -> str:
    return format_time(queue.last_timestamp) if queue.last_timestamp > 0 else "N/A"


# -- statsAll ----------------------------------------------------------------------------------------

_FLOW_LAYOUT: Final = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}"
_FLOW_NAMES: Final = (
    "#Topic",
    "#Consumer Group",
    "#Accumulation",
    "#InTPS",
    "#OutTPS",
    "#InMsg24Hour",
    "#OutMsg24Hour",
)


async def _stats_all(call: Call) -> AsyncIterator[TopicFlows]:
    async for flows in all_flows(
        call.admin, call.args.get("topic"), only_active=call.args.flag("activeTopic")
    ):
        yield flows
        if flows.done < flows.total:
            call.screen.progress(f"{flows.done} of {flows.total} topics")


def _show_stats_all(flows: TopicFlows, screen: Screen) -> None:
    if flows.done == 1:
        screen.head(_FLOW_LAYOUT.format(*_FLOW_NAMES))
    for row in flows.rows:
        if row.problem:
            screen.trouble(f"{row.topic}: {row.problem}")
        if not row.problem or row.group is not None:
            screen.line(_FLOW_LAYOUT.format(*_flow_cells(row)))


def _flow_cells(row: TopicFlow) -> tuple[object, ...]:
    topic, in_tps = cut(row.topic, 64), f"{row.in_tps:.2f}"
    if row.group is None:
        return topic, "", 0, in_tps, "", row.in_24_hours, "NO_CONSUMER"
    return (
        topic,
        cut(row.group, 64),
        row.accumulation,
        in_tps,
        f"{row.out_tps:.2f}",
        row.in_24_hours,
        row.out_24_hours,
    )


# -- startMonitoring ---------------------------------------------------------------------------------

_MONITOR: Final = "[MONITOR] "
_NOTIFY: Final = "[MONITOR]  [NOTIFY] "


def _start_monitoring(call: Call) -> AsyncIterator[MonitorEvent]:
    return monitor(call.admin)


def _show_event(event: MonitorEvent, screen: Screen) -> None:
    """Like Apache's, prints nothing to stdout."""
    screen.trouble(event_text(event))


def event_text(event: MonitorEvent) -> str:
    """The log line of Apache's monitor."""
    match event:
        case RoundBegin():
            return f"{_MONITOR}{'=' * 41}beginRound"
        case RoundEnd():
            return f"{_MONITOR}{'=' * 41}endRound, {event.groups} groups in {event.spent_ms}ms"
        case UndoneMessages():
            return (
                f"{_MONITOR}reportUndoneMsgs: UndoneMsgs [consumerGroup={event.group}, topic={event.topic}, "
                f"undoneMsgsTotal={event.total}, undoneMsgsSingleMQ={event.single_queue}, "
                f"undoneMsgsDelayTimeMills={event.delay_ms}]"
            )
        case FailedMessages():
            return (
                f"{_MONITOR}reportFailedMsgs: FailedMsgs [consumerGroup={event.group}, topic={event.topic}, "
                f"failedMsgsTotalRecently={event.total}]"
            )
        case DeletedMessages():
            queue = java_message_queue(MessageQueue(event.topic, event.broker_name, event.queue_id))
            return (
                f"{_MONITOR}reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent "
                f"[consumerGroup={event.group}, messageQueue={queue}, "
                f"offsetRequest={event.offset_request}, offsetNew={event.offset_new}]]"
            )
        case GroupFinding():
            return f"{_NOTIFY}reportConsumerRunningInfo: ConsumerGroup: {event.group}, {event.text}"


STATS_COMMANDS: Final = (
    AdminCommand(
        name="consumerProgress",
        about="Show consumer progress and lag: all groups, a line each, or one group queue by queue.",
        example="consumerProgress -n 127.0.0.1:9876 -g OrderService",
        options=(
            value("g", "groupName", "consumer group (default: all)"),
            value("t", "topicName", "only this topic"),
            value("s", "showClientIP", "true: include the address of each queue's owner"),
            value(
                "c", "cluster", "cluster or topic whose brokers are queried, for a group without retry topic"
            ),
        ),
        ask=_consumer_progress,
        show=_show_consumer_progress,
    ),
    AdminCommand(
        name="statsAll",
        about="Show messages in and out of each topic, and the lag of each consumer group.",
        example="statsAll -n 127.0.0.1:9876 -a",
        options=(
            flag("a", "activeTopic", "only topics with messages in the last 24 hours"),
            value("t", "topic", "only this topic"),
        ),
        stream=_stats_all,
        show=_show_stats_all,
    ),
    AdminCommand(
        name="startMonitoring",
        about="Watch all consumer groups every minute until interrupted: lag, failures, stuck queues.",
        example="startMonitoring -n 127.0.0.1:9876",
        stream=_start_monitoring,
        show=_show_event,
    ),
)
