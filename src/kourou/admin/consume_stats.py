"""The progress of a consumer group: offsets of each queue, lag, rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.admin.connections import consumer_connection, replica_addresses
from kourou.admin.session import Admin
from kourou.admin.targets import call_each
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    MessageModel,
    MessageQueue,
    OffsetWrapper,
    TopicRouteData,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import GetConsumeStatsRequestHeader
from kourou.protocol.names import retry_topic
from kourou.protocol.versions import version_desc
from kourou.wording import counted

STATS_TIMEOUT_FACTOR: Final = 3
"""Statistics may take longer than other requests: the broker reads a message of every queue."""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    """The next queue_offset to be written."""
    consumer_offset: int
    """The next queue_offset to be consumed."""
    pull_offset: int
    """The next queue_offset to be delivered; 0 from brokers of RocketMQ 4."""
    last_timestamp: int
    """The store time of the message before `consumer_offset`, in milliseconds; 0 if unknown."""
    diff: int
    """Messages not yet consumed."""
    inflight: int
    """Messages delivered and not yet consumed."""
    client_ip: str | None = None
    """Address of the queue's owner, if requested and known."""

    @property
    def message_queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group in all its queues, sorted by topic, broker and queue."""

    group: str
    consume_tps: float
    diff_total: int
    inflight_total: int
    queues: list[QueueProgress]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in one line. `problem` is what could not be determined."""

    group: str
    count: int
    """Number of online members."""
    version: str
    """The lowest client version; empty if no member is online."""
    consume_type: str
    message_model: str
    consume_tps: float
    diff_total: int | None
    """The lag; None if no offset is known."""
    problem: str = ""


async def consume_stats(
    admin: Admin,
    group: str,
    topic: str | None = None,
    *,
    route_of: str | None = None,
    is_partial: bool = False,
) -> GroupProgress:
    """A group's progress in one topic or in all. `route_of`: a topic or cluster whose brokers are queried.
    `is_partial`: unreachable brokers are left out, unless all are.

    For a group without offsets: ResponseError BROADCAST_CONSUMPTION if its members broadcast,
    CONSUMER_NOT_ONLINE otherwise.
    """
    addresses = replica_addresses(await _route(admin, group, topic, route_of))
    answers = await call_each(addresses, lambda address: _stats_at(admin, address, group, topic))
    found: list[ConsumeStats] = []
    for _, answer in answers:
        if not isinstance(answer, KourouError):
            found.append(answer)
        elif not (is_partial and isinstance(answer, RemotingError)):
            raise answer
    table = {queue: offsets for stats in found for queue, offsets in stats.offset_table.items()}
    if not table:
        raise await _reason_for_none(admin, group)
    queues = [_queue_progress(queue, table[queue]) for queue in sorted(table)]
    return GroupProgress(
        group,
        sum(stats.consume_tps for stats in found),
        sum(queue.diff for queue in queues),
        sum(queue.inflight for queue in queues),
        queues,
    )


async def group_summary(admin: Admin, group: str) -> GroupSummary:
    """A group in one line; unknown values are empty, 0 or None."""
    problems: list[str] = []
    progress: GroupProgress | None = None
    connection = ConsumerConnection()
    try:
        progress = await consume_stats(admin, group)
    except (RemotingError, ResponseError) as error:
        problems += _reportable(error)
    try:
        connection = await consumer_connection(admin, group)
    except (RemotingError, ResponseError) as error:
        problems += _reportable(error)
    members = connection.connection_set
    return GroupSummary(
        group,
        len(members),
        version_desc(min(member.version for member in members)) if members else "",
        connection.consume_type or "",
        connection.message_model or "",
        progress.consume_tps if progress is not None else 0.0,
        progress.diff_total if progress is not None else None,
        "; ".join(dict.fromkeys(problems)),
    )


def _reportable(error: KourouError) -> list[str]:
    """Errors worth reporting: not that a group is offline, broadcasts or was deleted meanwhile."""
    expected = (
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.BROADCAST_CONSUMPTION,
        ResponseCode.TOPIC_NOT_EXIST,
    )
    return [] if isinstance(error, ResponseError) and error.code in expected else [str(error)]


async def _route(admin: Admin, group: str, topic: str | None, route_of: str | None) -> TopicRouteData:
    """The brokers of a group: by its retry topic, else by the topic."""
    if route_of is not None:
        return await admin.route(route_of)
    try:
        return await admin.route(retry_topic(group))
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST or topic is None:
            raise
        return await admin.route(topic)


async def _stats_at(admin: Admin, address: str, group: str, topic: str | None) -> ConsumeStats:
    answer = await admin.call(
        address,
        RequestCode.GET_CONSUME_STATS,
        GetConsumeStatsRequestHeader(consumer_group=group, topic=topic),
        timeout_ms=STATS_TIMEOUT_FACTOR * admin.settings.request_timeout_ms,
    )
    return decode_body(answer.body, ConsumeStats)


def _queue_progress(queue: MessageQueue, offsets: OffsetWrapper) -> QueueProgress:
    return QueueProgress(
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        offsets.broker_offset,
        offsets.consumer_offset,
        offsets.pull_offset,
        offsets.last_timestamp,
        diff=offsets.broker_offset - offsets.consumer_offset,
        inflight=offsets.pull_offset - offsets.consumer_offset,
    )


async def _reason_for_none(admin: Admin, group: str) -> ResponseError:
    """Why no broker has an offset of a group: its members keep them, or there are none."""
    connection = await consumer_connection(admin, group)
    if connection.message_model is MessageModel.BROADCASTING:
        return ResponseError(
            ResponseCode.BROADCAST_CONSUMPTION,
            f"{group} consumes in broadcasting mode: each member keeps its own offsets, brokers have none",
        )
    members = counted(len(connection.connection_set), "member")
    return ResponseError(
        ResponseCode.CONSUMER_NOT_ONLINE,
        f"group {group} has {members} online and no committed offset yet: members commit their offsets every "
        "5 s by default, so try again in a few seconds",
    )
