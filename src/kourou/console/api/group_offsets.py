"""Offsets of groups: reset to a time, the beginning, the end or exact offsets, and copied between groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from kourou.admin.consume_stats import consume_stats
from kourou.admin.offset_moves import MovePlan, QueueMove, ResetTo, apply_moves, plan_moves
from kourou.admin.session import replica_address
from kourou.console.api.places import mqadmin
from kourou.console.api_errors import bad_input, not_found
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan, TargetOutcome
from kourou.wording import counted, suggestion

Offset = Annotated[int, msgspec.Meta(ge=0)]


class QueueTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new offset of a queue."""

    broker_name: str
    queue_id: int
    offset: Offset


class OffsetReset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reset of groups in a topic."""

    groups: Annotated[list[str], msgspec.Meta(min_length=1)]
    to: ResetTo
    timestamp_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """For `time`."""
    queues: list[QueueTarget] = []
    """For `offset`; other queues stay as they are."""


class OffsetClone(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The offsets of another group, copied in one topic."""

    source: str
    topic: str


class MoveRow(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a group in one queue. A group without an offset there has `old_offset` null."""

    group: str
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    old_offset: int | None
    new_offset: int
    skipped: int
    repeated: int


class MoveDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The moves of all queues, and their sums. Offsets go on while messages are sent and consumed."""

    skipped: int
    repeated: int
    moves: list[MoveRow]


# -- reset -------------------------------------------------------------------------------------------


async def _reset(call: Call[NoQuery, OffsetReset]) -> Plan:
    topic, body = call.path["topic"], call.body
    groups = list(dict.fromkeys(body.groups))
    if body.to is ResetTo.TIME and body.timestamp_ms is None:
        raise bad_input("timestamp_ms", "needed for a reset to a time")
    if body.to is ResetTo.OFFSET and not body.queues:
        raise bad_input("queues", "needed for a reset to offsets")
    await _check_groups(call, groups)
    targets = {(queue.broker_name, queue.queue_id): queue.offset for queue in body.queues}
    plans = await asyncio.gather(
        *(
            plan_moves(
                call.admin, group, topic, body.to, timestamp_ms=body.timestamp_ms or 0, offsets=targets
            )
            for group in groups
        )
    )
    by_group = dict(zip(groups, plans, strict=True))
    return Plan(
        effects=[_effect(group, topic, plan, body) for group, plan in by_group.items()],
        warnings=await _warnings(call, by_group),
        commands=[line for group in groups for line in await _commands(call, group, topic)],
        details=_details(by_group),
        run=lambda: _run(call, topic, by_group, body.to, body.timestamp_ms or 0),
    )


async def _check_groups(call: Call[Any, Any], groups: Sequence[str]) -> None:
    """ApiError 404 for a group that no broker knows: a reset would create it."""
    known = (await call.view.groups(is_new=True)).data
    for group in groups:
        if group not in known:
            hint = suggestion(group, known).removeprefix("; ")
            raise not_found(f"group {group} does not exist", hint)


def _effect(group: str, topic: str, plan: MovePlan, body: OffsetReset) -> str:
    brokers = ", ".join(dict.fromkeys(move.broker_name for move in plan.moves))
    match body.to:
        case ResetTo.TIME:
            to = f"the first message stored at or after {_time_text(body.timestamp_ms or 0)}"
        case ResetTo.EARLIEST:
            to = "the first message that still exists"
        case ResetTo.LATEST:
            to = "the end: messages that it has not consumed are skipped"
        case ResetTo.OFFSET:
            to = ", ".join(f"{one.broker_name}/{one.queue_id} to {one.new_offset}" for one in plan.moves)
    queues = counted(len(plan.moves), "queue")
    return f"Resets group {group} in topic {topic}, {queues} on {brokers}, to {to}"


def _time_text(timestamp_ms: int) -> str:
    return (
        datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


async def _warnings(call: Call[Any, Any], by_group: dict[str, MovePlan]) -> list[str]:
    silent = {
        f"{outcome.address}: {outcome.problem}; its queues are not reset"
        for plan in by_group.values()
        for outcome in plan.silent
    }
    members = await asyncio.gather(*map(call.view.members, by_group))
    online = [
        f"{group} has {counted(found.count, 'member')} online; consumption continues at the new offsets"
        for group, found in zip(by_group, members, strict=True)
        if found.count
    ]
    return sorted(silent) + online


async def _commands(call: Call[NoQuery, OffsetReset], group: str, topic: str) -> list[str]:
    body = call.body
    where = ("-g", group, "-t", topic)
    match body.to:
        case ResetTo.LATEST:
            return [mqadmin(call, "skipAccumulatedMessage", *where)]
        case ResetTo.TIME | ResetTo.EARLIEST:
            return [mqadmin(call, "resetOffsetByTime", *where, "-s", str(body.timestamp_ms or 0))]
        case ResetTo.OFFSET:
            route = await call.admin.route(topic)
            addresses = {data.broker_name: replica_address(data) or "" for data in route.broker_datas}
            return [
                mqadmin(
                    call,
                    "resetOffsetByTime",
                    *where,
                    *("-s", "0", "-b", addresses[queue.broker_name]),
                    *("-q", str(queue.queue_id), "-o", str(queue.offset)),
                )
                for queue in body.queues
            ]


def _details(by_group: dict[str, MovePlan]) -> MoveDetails:
    rows = [_row(group, move) for group, plan in by_group.items() for move in plan.moves]
    return MoveDetails(
        skipped=sum(row.skipped for row in rows), repeated=sum(row.repeated for row in rows), moves=rows
    )


def _row(group: str, move: QueueMove) -> MoveRow:
    return MoveRow(
        group=group,
        broker_name=move.broker_name,
        queue_id=move.queue_id,
        min_offset=move.min_offset,
        max_offset=move.max_offset,
        old_offset=move.old_offset,
        new_offset=move.new_offset,
        skipped=move.skipped,
        repeated=move.repeated,
    )


async def _run(
    call: Call[Any, Any], topic: str, by_group: dict[str, MovePlan], to: ResetTo, timestamp_ms: int = 0
) -> Done:
    outcomes: list[TargetOutcome] = []
    for group, plan in by_group.items():
        names = {move.address: f"{move.broker_name} ({move.address})" for move in plan.moves}
        done = await apply_moves(call.admin, group, topic, plan.moves, to, timestamp_ms=timestamp_ms)
        outcomes += [
            TargetOutcome(f"{group} on {names.get(one.address, one.address)}", one.is_done, one.problem)
            for one in [*done, *plan.silent]
        ]
    return Done(outcomes=outcomes, result=_details(by_group))


# -- clone -------------------------------------------------------------------------------------------


async def _clone(call: Call[NoQuery, OffsetClone]) -> Plan:
    group, source, topic = call.path["group"], call.body.source, call.body.topic
    if group == source:
        raise bad_input("source", "the group itself; choose another one")
    await _check_groups(call, [group, source])
    progress = await consume_stats(call.admin, source, topic)
    offsets = {
        (queue.broker_name, queue.queue_id): queue.consumer_offset
        for queue in progress.queues
        if queue.topic == topic and queue.consumer_offset >= 0
    }
    if not offsets:
        raise bad_input("topic", f"group {source} has no offset in {topic}")
    found = await plan_moves(call.admin, group, topic, ResetTo.EARLIEST)
    # The source may be at messages that have expired.
    moves = [
        replace(move, new_offset=min(max(offsets[place], move.min_offset), move.max_offset))
        for move in found.moves
        if (place := (move.broker_name, move.queue_id)) in offsets
    ]
    by_group = {group: MovePlan(moves, found.silent)}
    return Plan(
        effects=[
            f"Sets the offsets of group {group} in topic {topic} to those of group {source}: "
            f"{counted(len(moves), 'queue')}"
        ],
        warnings=await _warnings(call, by_group),
        commands=[mqadmin(call, "cloneGroupOffset", "-s", source, "-d", group, "-t", topic)],
        details=_details(by_group),
        run=lambda: _run(call, topic, by_group, ResetTo.OFFSET),
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(
        path="/topics/{topic}/offsets",
        summary="Reset the offsets of groups in a topic; also of groups without members",
        body=OffsetReset,
        planner=_reset,
    ),
    Change(
        path="/groups/{group}/offset-copies",
        summary="Set the offsets of a group in a topic to those of another group",
        body=OffsetClone,
        planner=_clone,
    ),
)
