"""Commands that change the offsets of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.admin.group_offsets import (
    TO_THE_END,
    MovedQueue,
    QueueOffset,
    clone_offsets,
    reset_offsets_either_way,
    reset_offsets_old,
    reset_queue,
)
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut, parse_time, truth
from kourou.cli.admin.options import Option, ParsedArgs, flag, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.clock import wall_ms

_NOW: Final = "now"


@dataclass(frozen=True, slots=True)
class _Reset:
    """The result of a reset. After one by the old request `old_way` has the rows, and `queues` is empty."""

    group: str
    topic: str
    is_force: bool
    time_text: str
    timestamp_ms: int
    queues: list[QueueOffset]
    old_way: list[MovedQueue] | None = None


@dataclass(frozen=True, slots=True)
class _QueueReset:
    """The result of a reset in one queue."""

    group: str
    topic: str
    queue_id: int
    broker: str
    time_text: str
    timestamp_ms: int
    offset: int


# -- resetOffsetByTime -------------------------------------------------------------------------------


async def _reset_offset_by_time(call: Call) -> _Reset | _QueueReset:
    args = call.args
    if "broker" in args or "queue" in args or "offset" in args:
        return await _reset_queue(call)
    return await _reset(call, args.text("timestamp"), _timestamp_of(args, is_v4=call.is_v4))


async def _reset_queue(call: Call) -> _QueueReset:
    args = call.args
    group, topic, broker = args.text("group"), args.text("topic"), args.get("broker")
    if broker is None or "queue" not in args:
        raise UsageError("-b, -q and -o reset one queue: -b and -q are both needed")
    timestamp_ms, queue_id = _timestamp_of(args, is_v4=call.is_v4), args.number("queue")
    queue_offset = await reset_queue(
        call.admin,
        broker,
        group,
        topic,
        queue_id,
        timestamp_ms=timestamp_ms,
        queue_offset=args.number("offset") if "offset" in args else None,
    )
    return _QueueReset(group, topic, queue_id, broker, args.text("timestamp"), timestamp_ms, queue_offset)


async def _reset(call: Call, time_text: str, timestamp_ms: int) -> _Reset:
    """Reset a group; the old way if the new one needs online members and there are none."""
    args = call.args
    group, topic, is_force = args.text("group"), args.text("topic"), args.truth("force", True)
    route_of = args.get("cluster") or None
    moved = await reset_offsets_either_way(
        call.admin,
        group,
        topic,
        timestamp_ms,
        is_force=is_force,
        is_cpp=args.flag("cplus") or args.get("cluster") == "",
        route_of=route_of,
    )
    queues = [queue for queue in moved if isinstance(queue, QueueOffset)]
    old_way = [queue for queue in moved if isinstance(queue, MovedQueue)]
    return _Reset(group, topic, is_force, time_text, timestamp_ms, queues, old_way or None)


async def _reset_offset_by_time_old(call: Call) -> _Reset:
    args = call.args
    group, topic, is_force = args.text("group"), args.text("topic"), args.truth("force", True)
    timestamp_ms = _timestamp_of(args, is_v4=call.is_v4)
    moved = await reset_offsets_old(call.admin, group, topic, timestamp_ms, is_force=is_force)
    return _Reset(group, topic, is_force, args.text("timestamp"), timestamp_ms, [], moved)


def _timestamp_of(args: ParsedArgs, *, is_v4: bool) -> int:
    """For `now`, 4.9 means the end of the queue, including messages that arrive meanwhile; 5.x the current
    time."""
    text = args.text("timestamp")
    if text == _NOW:
        return TO_THE_END if is_v4 else wall_ms()
    return parse_time(text)


def _show_reset(reset: _Reset | _QueueReset, screen: Screen) -> None:
    if isinstance(reset, _QueueReset):
        screen.line(
            f"start reset consumer offset by specified, group[{reset.group}], topic[{reset.topic}], "
            f"queueId[{reset.queue_id}], broker[{reset.broker}], {_times(reset)}"
        )
        screen.line(f"reset consumer offset to {reset.offset}")
    elif reset.old_way is not None:
        screen.line(
            f"{'rollback' if screen.is_v4 else 'reset'} consumer offset by specified "
            f"consumerGroup[{reset.group}], topic[{reset.topic}], force[{truth(reset.is_force)}], "
            f"{_times(reset)}"
        )
        _show_moved(reset.old_way, "#rollbackOffset" if screen.is_v4 else "#resetOffset", screen)
    else:
        begin = "rollback consumer offset by specified " if screen.is_v4 else _BEGIN
        screen.line(
            f"{begin}group[{reset.group}], topic[{reset.topic}], force[{truth(reset.is_force)}], "
            f"{_times(reset)}"
        )
        _show_queues(reset.queues, screen)


_BEGIN: Final = "start reset consumer offset by specified, "


def _times(reset: _Reset | _QueueReset) -> str:
    return f"timestamp(string)[{reset.time_text}], timestamp(long)[{reset.timestamp_ms}]"


def _show_queues(queues: list[QueueOffset], screen: Screen) -> None:
    screen.table(
        "{:<40}  {:<40}  {:<40}",
        ("#brokerName", "#queueId", "#offset"),
        ((cut(queue.broker_name, 32), queue.queue_id, queue.offset) for queue in queues),
    )


def _show_moved(queues: list[MovedQueue], last_name: str, screen: Screen) -> None:
    screen.table(
        "  ".join(["{:<20}"] * 6),
        ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", last_name),
        (
            (
                cut(queue.broker_name, 32),
                queue.queue_id,
                queue.broker_offset,
                queue.consumer_offset,
                queue.timestamp_offset,
                queue.reset_offset,
            )
            for queue in queues
        ),
    )


# -- skipAccumulatedMessage, cloneGroupOffset --------------------------------------------------------


async def _skip(call: Call) -> _Reset:
    return await _reset(call, "", TO_THE_END)


def _show_skip(reset: _Reset, screen: Screen) -> None:
    if reset.old_way is not None:
        _show_moved(reset.old_way, "#rollbackOffset", screen)
    else:
        _show_queues(reset.queues, screen)


@dataclass(frozen=True, slots=True)
class _Clone:
    source: str
    target: str
    topic: str
    queues: list[QueueOffset]


async def _clone(call: Call) -> _Clone:
    args = call.args
    source, target, topic = args.text("srcGroup"), args.text("destGroup"), args.text("topic")
    return _Clone(source, target, topic, await clone_offsets(call.admin, source, target, topic))


def _show_clone(clone: _Clone, screen: Screen) -> None:
    screen.write(
        f"clone group offset success. srcGroup[{clone.source}], destGroup=[{clone.target}], "
        f"topic[{clone.topic}]"
    )


# -- what they take ----------------------------------------------------------------------------------

_GROUP_AND_TOPIC: Final = (
    required("g", "group", "consumer group"),
    required("t", "topic", "topic"),
)
_FORCE: Final = value("f", "force", "false: only backwards (default: true)")
_TIME: Final = required("s", "timestamp", "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS; -1 for the end")
_CPLUS: Final = flag("", "cplus", "members are C++ clients of RocketMQ 4")
_CLUSTER: Final = value("c", "cluster", "cluster or topic whose brokers are queried")
_CLUSTER_OR_CPLUS: Final = Option(
    "c", "cluster", f"{_CLUSTER.about}; without a value the same as --cplus", is_value_optional=True
)


def _reset_question(args: ParsedArgs) -> str:
    where = f" queue {args.text('queue')} of {args.text('broker')}" if "broker" in args else ""
    text = args.text("timestamp")
    to = {"0": "the earliest message", "-1": "the end"}.get(text, text)
    return f"Reset {args.text('group')} on {args.text('topic')}{where} to {to}?"


def _skip_question(args: ParsedArgs) -> str:
    return f"Skip all messages of {args.text('topic')} that {args.text('group')} has not consumed?"


def _clone_question(args: ParsedArgs) -> str:
    return (
        f"Set the offsets of {args.text('destGroup')} on {args.text('topic')} to those of "
        f"{args.text('srcGroup')}?"
    )


OFFSET_COMMANDS: Final = (
    AdminCommand(
        name="resetOffsetByTime",
        about="Reset a consumer group's offsets to a time, in all queues of a topic or in one.",
        example="resetOffsetByTime -n 127.0.0.1:9876 -g OrderService -t Orders -s 2026-01-31#08:00:00:000",
        options=(
            *_GROUP_AND_TOPIC,
            _TIME,
            _FORCE,
            _CLUSTER_OR_CPLUS,
            _CPLUS,
            value("b", "broker", "address of the broker, to reset one queue"),
            value("q", "queue", "queue id"),
            value("o", "offset", "offset to reset to, instead of a time"),
        ),
        ask=_reset_offset_by_time,
        show=_show_reset,
        question=_reset_question,
    ),
    AdminCommand(
        name="resetOffsetByTimeOld",
        about="Reset the offsets of an offline consumer group to a time.",
        example="resetOffsetByTimeOld -n 127.0.0.1:9876 -g OrderService -t Orders -s 2026-01-31#08:00:00:000",
        options=(*_GROUP_AND_TOPIC, _TIME, _FORCE),
        ask=_reset_offset_by_time_old,
        show=_show_reset,
        question=_reset_question,
    ),
    AdminCommand(
        name="skipAccumulatedMessage",
        about="Reset a consumer group to the end of a topic, skipping what it has not consumed.",
        example="skipAccumulatedMessage -n 127.0.0.1:9876 -g OrderService -t Orders",
        options=(*_GROUP_AND_TOPIC, _FORCE, _CLUSTER),
        ask=_skip,
        show=_show_skip,
        question=_skip_question,
    ),
    AdminCommand(
        name="cloneGroupOffset",
        about="Set a consumer group's offsets in a topic to those of another group.",
        example="cloneGroupOffset -n 127.0.0.1:9876 -s OrderService -d OrderServiceCopy -t Orders",
        options=(
            required("s", "srcGroup", "consumer group to copy the offsets from"),
            required("d", "destGroup", "consumer group to copy them to"),
            required("t", "topic", "topic"),
            value("o", "offline", "ignored; accepted for compatibility"),
        ),
        ask=_clone,
        show=_show_clone,
        question=_clone_question,
    ),
)
