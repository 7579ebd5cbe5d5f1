"""Monitoring of all consumer groups: messages that wait, fail or were deleted before consumption.

Every group is checked once per round. Between rounds, events of brokers that moved a group's offset past
deleted messages are consumed as group __MONITOR_CONSUMER.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from kourou.admin.consume_stats import GroupProgress, QueueProgress, consume_stats
from kourou.admin.groups import group_names
from kourou.admin.running_info import GroupStatus, group_status
from kourou.admin.session import Admin
from kourou.admin.topics import topic_status
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.errors import KourouError, ProtocolError, ResponseError
from kourou.protocol.bodies import OffsetMovedEvent, decode_body
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.names import MONITOR_CONSUMER_GROUP, RMQ_SYS_OFFSET_MOVED_EVENT

INTERVAL_S: Final = 60.0
"""Between the starts of rounds."""
_MAX_WAITING_EVENTS: Final = 1000
"""When this many events wait, further ones stay at the broker."""
_NOTHING_TO_SEE: Final = frozenset(
    {
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.BROADCAST_CONSUMPTION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoundBegin:
    """The start of a round."""

    timestamp_ms: int
    kind: str = "beginRound"


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The end of a round."""

    groups: int
    spent_ms: int
    kind: str = "endRound"


@dataclass(frozen=True, slots=True)
class UndoneMessages:
    """Messages of a topic that a group has not consumed."""

    group: str
    topic: str
    total: int
    single_queue: int
    """Of the queue that has most."""
    delay_ms: int
    """Between the newest and the last consumed message, of the queue where it is longest."""
    kind: str = "undoneMsgs"


@dataclass(frozen=True, slots=True)
class FailedMessages:
    """Messages of a topic on which the handlers of a group failed within an hour."""

    group: str
    topic: str
    total: int
    kind: str = "failedMsgs"


@dataclass(frozen=True, slots=True)
class DeletedMessages:
    """A group requested messages that were deleted before it consumed them, and its offset was moved."""

    group: str
    topic: str
    broker_name: str
    queue_id: int
    offset_request: int
    offset_new: int
    kind: str = "deleteMsgsEvent"


@dataclass(frozen=True, slots=True)
class GroupFinding:
    """A problem with the members of a group, or a group that could not be checked."""

    group: str
    text: str
    kind: str = "finding"


MonitorEvent: TypeAlias = (
    RoundBegin | RoundEnd | UndoneMessages | FailedMessages | DeletedMessages | GroupFinding
)


async def monitor(admin: Admin, *, interval_s: float = INTERVAL_S) -> AsyncGenerator[MonitorEvent, None]:
    """Monitor until closed, even through outages; at the start a name server must respond."""
    await admin.cluster_info()
    deletions: asyncio.Queue[DeletedMessages] = asyncio.Queue(_MAX_WAITING_EVENTS)
    loop = asyncio.get_running_loop()
    async with _watching(admin, deletions):
        while True:
            next_round = loop.time() + interval_s
            async with contextlib.aclosing(monitor_round(admin)) as events:
                async for event in events:
                    yield event
            while (deletion := await _next_until(deletions, next_round)) is not None:
                yield deletion


async def _next_until(deletions: asyncio.Queue[DeletedMessages], end_s: float) -> DeletedMessages | None:
    try:
        async with asyncio.timeout_at(end_s):
            return await deletions.get()
    except TimeoutError:
        return None


@contextlib.asynccontextmanager
async def _watching(admin: Admin, deletions: asyncio.Queue[DeletedMessages]) -> AsyncIterator[None]:
    """Consume the events of brokers that moved a group's offset."""

    async def on_message(message: MessageExt) -> ConsumeResult:
        try:
            event = decode_body(message.body, OffsetMovedEvent)
        except ProtocolError as error:
            _log.warning("%s: %s is not an event: %s", message.topic, message.msg_id, error)
            return ConsumeResult.SUCCESS
        await deletions.put(_deletion(event))
        return ConsumeResult.SUCCESS

    consumer = AsyncPushConsumer(MONITOR_CONSUMER_GROUP, **admin.options)
    await consumer.subscribe(RMQ_SYS_OFFSET_MOVED_EVENT, handler=on_message)
    async with consumer:
        yield


def _deletion(event: OffsetMovedEvent) -> DeletedMessages:
    queue = event.message_queue
    return DeletedMessages(
        event.consumer_group,
        queue.topic if queue is not None else "",
        queue.broker_name if queue is not None else "",
        queue.queue_id if queue is not None else -1,
        event.offset_request,
        event.offset_new,
    )


async def monitor_round(admin: Admin) -> AsyncGenerator[MonitorEvent, None]:
    """Check all groups once; yields what it finds, between RoundBegin and RoundEnd."""
    begin_ns = time.time_ns()
    yield RoundBegin(begin_ns // 1_000_000)
    groups: list[str] = []
    try:
        groups = [group for group in await group_names(admin) if group != MONITOR_CONSUMER_GROUP]
    except KourouError as error:
        yield GroupFinding("", f"groups are not known now: {error}")
    for group in groups:
        try:
            events = await _look_at(admin, group)
        except KourouError as error:
            events = [GroupFinding(group, str(error))]
        for event in events:
            yield event
    yield RoundEnd(len(groups), (time.time_ns() - begin_ns) // 1_000_000)


async def _look_at(admin: Admin, group: str) -> list[MonitorEvent]:
    events: list[MonitorEvent] = []
    try:
        progress = await consume_stats(admin, group)
        events += [await undone_messages(admin, progress, topic) for topic in _topics(progress)]
    except ResponseError as error:
        events += _unexpected(group, error)
    try:
        events += member_events(await group_status(admin, group))
    except ResponseError as error:
        events += _unexpected(group, error)
    return events


def _unexpected(group: str, error: ResponseError) -> Iterator[MonitorEvent]:
    if error.code not in _NOTHING_TO_SEE:
        yield GroupFinding(group, str(error))


def _topics(progress: GroupProgress) -> list[str]:
    return list(dict.fromkeys(queue.topic for queue in progress.queues))


async def undone_messages(admin: Admin, progress: GroupProgress, topic: str) -> UndoneMessages:
    """Messages of a topic that a group has not consumed."""
    queues = [queue for queue in progress.queues if queue.topic == topic]
    lags = [max(0, queue.diff) for queue in queues]
    return UndoneMessages(
        progress.group, topic, sum(lags), max(lags, default=0), await _delay_ms(admin, topic, queues)
    )


async def _delay_ms(admin: Admin, topic: str, queues: list[QueueProgress]) -> int:
    waiting = [queue for queue in queues if queue.diff > 0 and queue.last_timestamp > 0]
    if not waiting:
        return 0
    newest = {
        (status.broker_name, status.queue_id): status.last_update_timestamp
        for status in (await topic_status(admin, topic)).queues
    }
    return max(
        0,
        *(newest.get((queue.broker_name, queue.queue_id), 0) - queue.last_timestamp for queue in waiting),
    )


def member_events(status: GroupStatus) -> Iterator[MonitorEvent]:
    """Problems that the members of a group report."""
    failed: dict[str, int] = {}
    for client in status.clients:
        if client.info is None:
            yield GroupFinding(status.group, f"{client.client_id}: {client.problem}")
            continue
        for topic, rates in client.info.status.items():
            failed[topic] = failed.get(topic, 0) + rates.consume_failed_msgs
    for topic, total in failed.items():
        if total > 0:
            yield FailedMessages(status.group, topic, total)
    if not status.is_subscription_same:
        yield GroupFinding(status.group, "Different subscription in the same group of consumer")
    for text in status.findings:
        yield GroupFinding(status.group, text)
