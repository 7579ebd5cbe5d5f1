"""The status of a message in each group that consumes its topic."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.connections import consumer_connection, consumers_of_topic
from kourou.admin.consume_stats import consume_stats
from kourou.admin.running_info import running_info
from kourou.admin.session import Admin
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import ConsumerConnection, ConsumeType, MessageModel, MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL


class TrackType(enum.StrEnum):
    """The status of a message in a group; RocketMQ's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


_BY_CODE: Final = {
    int(ResponseCode.CONSUMER_NOT_ONLINE): TrackType.NOT_ONLINE,
    int(ResponseCode.BROADCAST_CONSUMPTION): TrackType.CONSUME_BROADCASTING,
}


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """The status of a message in one group."""

    consumer_group: str
    track_type: TrackType
    exception_desc: str | None = None
    """Why the status is not known."""
    consumer_offset: int | None = None
    """The group's offset in the queue of the message; None if it has none or was not queried."""
    client_id: str | None = None
    """The owner of the queue; None if there is none or it was not queried."""


async def track(admin: Admin, message: MessageExt) -> list[MessageTrack]:
    """The status of a message in every group that consumes its topic, sorted by group."""
    tracker = _Tracker(admin, message)
    return [await tracker.track(group) for group in await consumers_of_topic(admin, message.topic)]


async def track_with_clients(admin: Admin, message: MessageExt) -> list[MessageTrack]:
    """Like `track`, with the current owner of the message's queue in each group."""
    tracker = _Tracker(admin, message)
    tracks = []
    for group in await consumers_of_topic(admin, message.topic):
        found = await tracker.track(group)
        if found.track_type is not TrackType.NOT_ONLINE:
            found = replace(found, client_id=await _holder(admin, group, await tracker.queue()))
        tracks.append(found)
    return tracks


class _Tracker:
    """Finds the status of one message in several groups."""

    def __init__(self, admin: Admin, message: MessageExt) -> None:
        self._admin = admin
        self._message = message
        self._queue: MessageQueue | None = None

    async def track(self, group: str) -> MessageTrack:
        """The status of the message in one group."""
        try:
            connection = await consumer_connection(self._admin, group)
            if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
                return MessageTrack(group, TrackType.PULL)
            if connection.message_model is MessageModel.BROADCASTING:
                return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
            consumer_offset = await self._progress(group)
        except ResponseError as error:
            kind = _BY_CODE.get(error.code, TrackType.UNKNOWN)
            return MessageTrack(group, kind, _description(error, kind))
        except RemotingError as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        if consumer_offset is None or consumer_offset <= self._message.queue_offset:
            return MessageTrack(group, TrackType.NOT_CONSUME_YET, consumer_offset=consumer_offset)
        is_wanted = _is_wanted(connection, self._message)
        kind = TrackType.CONSUMED if is_wanted else TrackType.CONSUMED_BUT_FILTERED
        return MessageTrack(group, kind, consumer_offset=consumer_offset)

    async def _progress(self, group: str) -> int | None:
        """The offset of an online group in the queue; None if it has none there."""
        try:
            stats = await consume_stats(self._admin, group)
        except ResponseError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None  # no offset in any queue
            raise
        queue = await self.queue()
        for progress in stats.queues:
            if progress.message_queue == queue:
                return progress.consumer_offset
        return None

    async def queue(self) -> MessageQueue:
        """The queue of the message; looked up once, on demand."""
        if self._queue is None:
            broker_name = self._message.broker_name or await self._broker_name()
            self._queue = MessageQueue(self._message.topic, broker_name, self._message.queue_id)
        return self._queue

    async def _broker_name(self) -> str:
        """The broker of a message: one found by position has only its address.

        The address may differ from the registered one, if the broker has several; then a topic on one broker
        only leaves no choice.
        """
        for broker in await self._admin.brokers():
            if broker.address == self._message.store_host:
                return broker.broker_name
        names = {broker.broker_name for broker in (await self._admin.route(self._message.topic)).broker_datas}
        return names.pop() if len(names) == 1 else ""


def _description(error: ResponseError, kind: TrackType) -> str:
    """Apache's two formats of an error: its own text for expected ones."""
    remark = error.remark.partition("\n")[0]
    if kind is TrackType.UNKNOWN:
        return f"CODE: {error.code}  DESC: {remark}"
    return f"CODE:{error.code} DESC:{remark}"


def _is_wanted(connection: ConsumerConnection, message: MessageExt) -> bool:
    """Whether the group's subscription accepts the message's tag; also if the group no longer subscribes
    to the topic."""
    subscription = connection.subscription_table.get(message.topic)
    if subscription is None or subscription.expression_type != "TAG":
        return True
    tags = subscription.tags_set
    return not tags or SUB_ALL in tags or message.tags in tags


async def _holder(admin: Admin, group: str, queue: MessageQueue) -> str | None:
    """The member of a group that owns a queue; None if none reports it."""
    try:
        members = sorted(
            found.client_id for found in (await consumer_connection(admin, group)).connection_set
        )
    except KourouError:
        return None
    for client_id in members:
        try:
            info = await running_info(admin, group, client_id)
        except (RemotingError, ResponseError):
            continue
        held = info.mq_table.get(queue)
        if (held is not None and not held.dropped) or queue in info.mq_pop_table:
            return client_id
    return None
