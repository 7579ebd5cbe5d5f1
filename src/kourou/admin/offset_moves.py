"""A reset of offsets in two steps: first the move in each queue, then the moves themselves, broker by broker.

Unlike the commands of group_offsets.py, a broker that fails does not hide what was done on others.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.connections import consumer_connection_at
from kourou.admin.consume_stats import STATS_TIMEOUT_FACTOR
from kourou.admin.each import map_each
from kourou.admin.group_offsets import TO_THE_END, reset_broker, reset_queue
from kourou.admin.session import Admin, replica_address
from kourou.admin.targets import Outcome
from kourou.errors import ConfigError, KourouError, ResponseError
from kourou.protocol.bodies import (
    ConsumeStats,
    MessageQueue,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import GetConsumeStatsRequestHeader, GetTopicStatsInfoRequestHeader

EARLIEST: Final = 0
"""A time before every message."""


class ResetTo(enum.StrEnum):
    """What the offsets are reset to."""

    TIME = "time"
    """The first message stored at or after a time."""
    EARLIEST = "earliest"
    LATEST = "latest"
    """After the newest message: all others are skipped."""
    OFFSET = "offset"
    """An offset given for each queue."""


@dataclass(frozen=True, slots=True)
class QueueMove:
    """The move of a group in one queue."""

    broker_name: str
    address: str
    queue_id: int
    min_offset: int
    max_offset: int
    """The next queue_offset to be written."""
    old_offset: int | None
    """Where the group is; None if it has no offset in the queue."""
    new_offset: int

    @property
    def skipped(self) -> int:
        """Messages that the group does not get any more."""
        return max(0, self.new_offset - max(self._start, self.min_offset))

    @property
    def repeated(self) -> int:
        """Messages that the group gets again."""
        return max(0, self._start - max(self.new_offset, self.min_offset))

    @property
    def _start(self) -> int:
        """Without an offset, where the group would begin is up to its members: counted from the new one."""
        return self.new_offset if self.old_offset is None else self.old_offset


@dataclass(frozen=True, slots=True)
class MovePlan:
    """All moves of a group in a topic, sorted, and brokers whose queues are unknown."""

    moves: list[QueueMove]
    silent: list[Outcome]


async def plan_moves(
    admin: Admin,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    timestamp_ms: int = 0,
    offsets: dict[tuple[str, int], int] | None = None,
) -> MovePlan:
    """The moves of a reset. `offsets`, by broker name and queue id, is for ResetTo.OFFSET: other queues stay.

    ConfigError for an offset outside of its queue, or a queue that the topic does not have.
    """
    route = await admin.route(topic)
    places = {
        broker.broker_name: address
        for broker in route.broker_datas
        if (address := replica_address(broker)) is not None
    }
    found = await asyncio.gather(
        *(_ranges(admin, group, topic, address) for address in places.values()), return_exceptions=True
    )
    moves: list[QueueMove] = []
    silent: list[Outcome] = []
    for (name, address), ranges in zip(places.items(), found, strict=True):
        if isinstance(ranges, KourouError):
            silent.append(Outcome(address, str(ranges)))
        elif isinstance(ranges, BaseException):
            raise ranges
        else:
            read_queues = _read_queues(route, name)
            moves += [
                QueueMove(name, address, queue_id, low, high, old, old or low)
                for queue_id, (low, high, old) in sorted(ranges.items())
                if queue_id < read_queues
            ]
    if not moves and silent:
        raise ResponseError(ResponseCode.SYSTEM_ERROR, silent[0].problem, silent[0].address)
    return MovePlan(await _with_targets(admin, topic, moves, to, timestamp_ms, offsets or {}), silent)


async def _ranges(
    admin: Admin, group: str, topic: str, address: str
) -> dict[int, tuple[int, int, int | None]]:
    """The first offset, the end, and the group's offset of each queue on one broker."""
    of_topic = await admin.call(
        address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic)
    )
    of_group = await admin.call(
        address,
        RequestCode.GET_CONSUME_STATS,
        # Asked for one topic, brokers report 0 for queues without an offset.
        GetConsumeStatsRequestHeader(consumer_group=group),
        timeout_ms=STATS_TIMEOUT_FACTOR * admin.settings.request_timeout_ms,
    )
    consumed = {
        queue.queue_id: offsets.consumer_offset
        for queue, offsets in decode_body(of_group.body, ConsumeStats).offset_table.items()
        if queue.topic == topic and offsets.consumer_offset >= 0
    }
    return {
        queue.queue_id: (offsets.min_offset, offsets.max_offset, consumed.get(queue.queue_id))
        for queue, offsets in decode_body(of_topic.body, TopicStatsTable).offset_table.items()
    }


def _read_queues(route: TopicRouteData, broker_name: str) -> int:
    return sum(data.read_queue_nums for data in route.queue_datas if data.broker_name == broker_name)


async def _with_targets(
    admin: Admin,
    topic: str,
    moves: Sequence[QueueMove],
    to: ResetTo,
    timestamp_ms: int,
    offsets: dict[tuple[str, int], int],
) -> list[QueueMove]:

    async def target(move: QueueMove) -> int:
        if to is ResetTo.EARLIEST:
            return move.min_offset
        if to is ResetTo.LATEST:
            return move.max_offset
        queue = MessageQueue(topic, move.broker_name, move.queue_id)
        return await admin.api.search_offset(move.address, queue, timestamp_ms)

    if to is ResetTo.OFFSET:
        return _exact(topic, moves, offsets)
    targets = await map_each(moves, target)
    return [replace(move, new_offset=new) for move, new in zip(moves, targets, strict=True)]


def _exact(topic: str, moves: Sequence[QueueMove], offsets: dict[tuple[str, int], int]) -> list[QueueMove]:
    known = {(move.broker_name, move.queue_id): move for move in moves}
    chosen = []
    for place, new in sorted(offsets.items()):
        move = known.get(place)
        if move is None:
            raise ConfigError(f"topic {topic} has no queue {place[1]} to read on {place[0]}")
        if not move.min_offset <= new <= move.max_offset:
            raise ConfigError(
                f"{place[0]}, queue {place[1]}: {new} is outside of its offsets, {move.min_offset} to "
                f"{move.max_offset}"
            )
        chosen.append(replace(move, new_offset=new))
    return chosen


# -- execution ---------------------------------------------------------------------------------------


async def apply_moves(
    admin: Admin, group: str, topic: str, moves: Sequence[QueueMove], to: ResetTo, *, timestamp_ms: int = 0
) -> list[Outcome]:
    """Reset a group. Returns the outcome on each broker, or of each queue for ResetTo.OFFSET."""
    if to is ResetTo.OFFSET:
        return [await _apply_one(admin, group, topic, move) for move in moves]
    time_ms = {ResetTo.TIME: timestamp_ms, ResetTo.EARLIEST: EARLIEST, ResetTo.LATEST: TO_THE_END}[to]
    return [
        await _apply_at(
            admin, group, topic, address, [move for move in moves if move.address == address], time_ms
        )
        for address in dict.fromkeys(move.address for move in moves)
    ]


async def _apply_at(
    admin: Admin, group: str, topic: str, address: str, moves: Sequence[QueueMove], timestamp_ms: int
) -> Outcome:
    """All queues of one broker: by the broker, which notifies the members; if it needs members and there are
    none, by writing the offsets."""
    try:
        try:
            await reset_broker(admin, address, group, topic, timestamp_ms)
        except ResponseError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            for move in moves:
                await _write(admin, group, topic, move)
    except KourouError as error:
        return Outcome(address, str(error))
    return Outcome(address)


async def _apply_one(admin: Admin, group: str, topic: str, move: QueueMove) -> Outcome:
    where = f"{move.broker_name}, queue {move.queue_id}"
    try:
        try:
            await reset_queue(
                admin,
                move.address,
                group,
                topic,
                move.queue_id,
                timestamp_ms=EARLIEST,
                queue_offset=move.new_offset,
            )
        except ConfigError:
            # The broker cannot reset one queue. Written offsets would be overwritten by online members.
            if await _is_online(admin, group, move.address):
                return Outcome(
                    where,
                    f"{move.address} resets a group in all queues of a topic or in none, and {group} has "
                    "members online: stop them first, or reset all queues",
                )
            await _write(admin, group, topic, move)
    except KourouError as error:
        return Outcome(where, str(error))
    return Outcome(where)


async def _is_online(admin: Admin, group: str, address: str) -> bool:
    try:
        return bool((await consumer_connection_at(admin, group, [address])).connection_set)
    except ResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return False


async def _write(admin: Admin, group: str, topic: str, move: QueueMove) -> None:
    queue = MessageQueue(topic, move.broker_name, move.queue_id)
    await admin.api.update_consumer_offset(move.address, group, queue, move.new_offset)
