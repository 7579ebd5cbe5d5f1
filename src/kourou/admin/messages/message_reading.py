"""Reading queues from an offset or a time on, without changing offsets of a group.

Uses single requests, so that no consumer is registered with brokers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.session import Admin, replica_address
from kourou.client.core.routes import topic_route
from kourou.client.core.subscription import ExpressionType, subscription_data
from kourou.client.pull.pulls import PullStatus, pull
from kourou.errors import ConfigError, ProtocolError, ResponseError
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.codes import PullSysFlag, ResponseCode
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import TOOLS_CONSUMER_GROUP
from kourou.protocol.properties import MessageConst
from kourou.protocol.tags import SUB_ALL

PULL_BATCH: Final = 32
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION.value
_SUSPEND: Final = PullSysFlag.SUSPEND.value


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A queue, and the address of its broker."""

    queue: MessageQueue
    address: str


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """The range of offsets to read; `end_offset` is exclusive."""

    place: QueuePlace
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of one pull: messages, and the next offset."""

    queue: MessageQueue
    status: PullStatus
    next_offset: int
    messages: list[MessageExt]

    @property
    def is_end(self) -> bool:
        """Whether the end of the queue was reached."""
        return self.status in (PullStatus.NO_NEW_MSG, PullStatus.OFFSET_ILLEGAL)


async def readable_queues(admin: Admin, topic: str, *, route_of: str | None = None) -> list[QueuePlace]:
    """All readable queues of a topic, sorted. ResponseError if there is no such topic."""
    route = await admin.route(route_of or topic)
    addresses = {broker.broker_name: replica_address(broker) for broker in route.broker_datas}
    places = []
    for queue in topic_route(topic, route).subscribe_queues:
        address = addresses.get(queue.broker_name)
        if address is not None:
            places.append(QueuePlace(queue, address))
    return places


async def queue_place(
    admin: Admin, topic: str, broker: str, queue_id: int, *, route_of: str | None = None
) -> QueuePlace:
    """One queue of a topic. ResponseError if the topic is not on that broker."""
    broker_name = await admin.broker_name(broker)
    route = await admin.route(route_of or topic)
    for data in route.broker_datas:
        address = replica_address(data)
        if data.broker_name == broker_name and address is not None:
            return QueuePlace(MessageQueue(topic, broker_name, queue_id), address)
    names = ", ".join(sorted(data.broker_name for data in route.broker_datas)) or "no broker"
    raise ResponseError(
        ResponseCode.TOPIC_NOT_EXIST, f"The broker[{broker}] not exist for topic {topic}: it is on {names}"
    )


async def queue_span(
    admin: Admin, place: QueuePlace, *, begin_ms: int | None = None, end_ms: int | None = None
) -> QueueSpan:
    """Everything in a queue, or the messages stored between two times."""
    begin = await admin.api.min_offset(place.address, place.queue)
    end = await admin.api.max_offset(place.address, place.queue)
    if begin_ms is not None:
        begin = await admin.api.search_offset(place.address, place.queue, begin_ms)
    if end_ms is not None:
        end = await admin.api.search_offset(place.address, place.queue, end_ms)
    return QueueSpan(place, begin, end)


def subscription_of(topic: str, expression: str, expression_type: ExpressionType = "TAG") -> SubscriptionData:
    """An expression as a subscription. ConfigError if it is invalid."""
    try:
        return subscription_data(topic, expression, expression_type)
    except (ValueError, ProtocolError) as error:
        raise ConfigError(f"{expression}: {error}") from None


async def pull_once(
    admin: Admin,
    place: QueuePlace,
    queue_offset: int,
    *,
    count: int = PULL_BATCH,
    expression: str = SUB_ALL,
    expression_type: ExpressionType = "TAG",
    group: str = TOOLS_CONSUMER_GROUP,
    suspend_ms: int = 0,
) -> Pulled:
    """Pull once. Messages carry the minimum and maximum offset of their queue, as in consumers.

    With `suspend_ms` the broker holds a pull that finds nothing for that long.
    """
    queue = place.queue
    subscription = subscription_of(queue.topic, expression, expression_type)
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue_offset,
        max_msg_nums=count,
        sys_flag=_SUBSCRIPTION | _SUSPEND if suspend_ms else _SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription=subscription.sub_string,
        sub_version=0,
        expression_type=subscription.expression_type,
    )
    result = await pull(
        admin.api,
        place.address,
        queue.broker_name,
        header,
        timeout_ms=suspend_ms + admin.settings.request_timeout_ms,
    )
    messages = replace(result, tags=frozenset(subscription.tags_set)).messages()
    for message in messages:
        message.properties[MessageConst.PROPERTY_MIN_OFFSET] = str(result.min_offset)
        message.properties[MessageConst.PROPERTY_MAX_OFFSET] = str(result.max_offset)
    return Pulled(queue, result.status, result.next_begin_offset, messages)


async def read_span(
    admin: Admin, span: QueueSpan, *, expression: str = SUB_ALL, group: str = TOOLS_CONSUMER_GROUP
) -> AsyncIterator[Pulled]:
    """Pull repeatedly until the span is read or the queue ends."""
    queue_offset = span.begin_offset
    while queue_offset < span.end_offset:
        pulled = await pull_once(admin, span.place, queue_offset, expression=expression, group=group)
        within = [message for message in pulled.messages if message.queue_offset < span.end_offset]
        yield replace(pulled, messages=within)
        if pulled.is_end or pulled.next_offset <= queue_offset:
            return
        queue_offset = pulled.next_offset


async def read_all(admin: Admin, span: QueueSpan) -> list[MessageExt]:
    """The messages of a span, which must not be long."""
    return [message async for pulled in read_span(admin, span) for message in pulled.messages]


async def message_at(admin: Admin, place: QueuePlace, queue_offset: int) -> MessageExt:
    """The message at an offset of a queue. ResponseError NO_MESSAGE if there is none."""
    pulled = await pull_once(admin, place, queue_offset, count=1)
    for message in pulled.messages:
        if message.queue_offset == queue_offset:
            return message
    raise ResponseError(
        ResponseCode.NO_MESSAGE,
        f"no message at offset {queue_offset} of queue {place.queue.queue_id} of {place.queue.topic} on "
        f"{place.queue.broker_name}: {pulled.status.name}, next offset {pulled.next_offset}",
    )
