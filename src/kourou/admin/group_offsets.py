"""Resetting the offsets of a consumer group: to a time, to the end, to those of another group.

The new way requests it from the brokers, which notify the members; brokers of RocketMQ 4 need online members
for it. The old way writes the group's offsets, which running members overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.admin.connections import replica_addresses
from kourou.admin.consume_stats import STATS_TIMEOUT_FACTOR, consume_stats
from kourou.admin.namesrvs import properties_of
from kourou.admin.session import Admin, replica_address
from kourou.errors import ConfigError, KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    BrokerData,
    ConsumeStats,
    GetConsumerStatusBody,
    MessageQueue,
    OffsetWrapper,
    ResetOffsetBody,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
)
from kourou.protocol.codes import LanguageCode, RequestCode, ResponseCode
from kourou.protocol.headers import (
    GetConsumerStatusRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from kourou.protocol.versions import V5_0_0, version_desc

_SERVER_SIDE_KEY: Final = "useServerSideResetOffset"
TO_THE_END: Final = -1
"""Instead of a time: after the newest message."""


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The offset of a group in a queue."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class MovedQueue:
    """A queue in which a group was reset the old way."""

    broker_name: str
    queue_id: int
    broker_offset: int
    """The next queue_offset to be written."""
    consumer_offset: int
    """The previous offset of the group."""
    timestamp_offset: int
    """The first queue_offset at or after the time."""
    reset_offset: int
    """The new offset of the group."""


@dataclass(frozen=True, slots=True)
class ClientOffset:
    """The offset of one member of a group in a queue."""

    client_id: str
    broker_name: str
    queue_id: int
    offset: int


# -- the new way -------------------------------------------------------------------------------------


async def reset_offsets(
    admin: Admin,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    is_force: bool = True,
    is_cpp: bool = False,
    route_of: str | None = None,
) -> list[QueueOffset]:
    """Reset a group to a time in all queues of a topic, by request to the brokers; returns the new offsets.

    ResponseError CONSUMER_NOT_ONLINE from brokers that need online members. `is_cpp`: these are C++ clients
    of RocketMQ 4, which expect another format. `route_of`: a topic or cluster whose brokers are used.
    """
    moved: dict[MessageQueue, int] = {}
    for address in replica_addresses(await admin.route(route_of or topic)):
        moved |= await reset_broker(
            admin, address, group, topic, timestamp_ms, is_force=is_force, is_cpp=is_cpp
        )
    return [_queue_offset(queue, moved[queue]) for queue in sorted(moved)]


async def reset_broker(
    admin: Admin,
    address: str,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    is_force: bool = True,
    is_cpp: bool = False,
) -> dict[MessageQueue, int]:
    """Like `reset_offsets`, in the queues of one broker."""
    header = ResetOffsetRequestHeader(
        topic=topic,
        group=group,
        timestamp=timestamp_ms,
        is_force=is_force,
        queue_id=-1,
        queue_offset=-1,
    )
    return await _reset_at(admin, address, header, is_cpp)


async def _reset_at(
    admin: Admin, address: str, header: ResetOffsetRequestHeader, is_cpp: bool = False
) -> dict[MessageQueue, int]:
    command = admin.api.command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    if is_cpp:
        command.language = LanguageCode.CPP
    answer = await admin.api.remoting.call(address, command, admin.settings.request_timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise admin.api.response_error(answer, address)
    return decode_body(answer.body, ResetOffsetBody).offset_table


def _queue_offset(queue: MessageQueue, offset: int) -> QueueOffset:
    return QueueOffset(queue.topic, queue.broker_name, queue.queue_id, offset)


async def reset_queue(
    admin: Admin,
    broker: str,
    group: str,
    topic: str,
    queue_id: int,
    *,
    timestamp_ms: int,
    queue_offset: int | None = None,
) -> int:
    """Reset a group in one queue, to a time or to an offset; returns the new offset.

    ConfigError for a broker that would reset the group in all queues: of RocketMQ 4, or with
    `useServerSideResetOffset=false`.
    """
    address = await admin.broker_address(broker)
    answer = await admin.call(
        address,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=max(0, timestamp_ms)),
    )
    if answer.version < V5_0_0:
        raise ConfigError(
            f"{address} runs RocketMQ {version_desc(answer.version)}, which resets a group in all queues of "
            "a topic or in none; omit -b, -q and -o"
        )
    if await _is_reset_by_clients(admin, address):
        raise ConfigError(
            f"{address} has {_SERVER_SIDE_KEY}=false and resets a group in all queues of a topic or in none; "
            "omit -b, -q and -o, or set it to true"
        )
    if queue_offset is None:
        queue_offset = (
            await admin.api.max_offset(address, MessageQueue(topic, "", queue_id))
            if timestamp_ms == TO_THE_END
            else answer.header(SearchOffsetResponseHeader).queue_offset
        )
    header = ResetOffsetRequestHeader(
        topic=topic,
        group=group,
        timestamp=timestamp_ms,
        is_force=True,
        queue_id=queue_id,
        queue_offset=queue_offset,
    )
    await _reset_at(admin, address, header)
    return queue_offset


async def _is_reset_by_clients(admin: Admin, address: str) -> bool:
    """Whether a broker of version 5 only passes a reset on to the members, which reset all queues."""
    try:
        answer = await admin.call(address, RequestCode.GET_BROKER_CONFIG)
    except ResponseError:
        return False  # accounts that may reset may not read the configuration
    return properties_of(answer.body).get(_SERVER_SIDE_KEY) == "false"


async def reset_offsets_either_way(
    admin: Admin,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    is_force: bool = True,
    is_cpp: bool = False,
    route_of: str | None = None,
) -> list[QueueOffset] | list[MovedQueue]:
    """Reset a group; the old way, with MovedQueue as result, if the new one needs members and there are
    none."""
    try:
        return await reset_offsets(
            admin, group, topic, timestamp_ms, is_force=is_force, is_cpp=is_cpp, route_of=route_of
        )
    except ResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
    return await reset_offsets_old(admin, group, topic, timestamp_ms, is_force=is_force, route_of=route_of)


# -- the old way -------------------------------------------------------------------------------------


async def reset_offsets_old(
    admin: Admin,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    is_force: bool = True,
    route_of: str | None = None,
) -> list[MovedQueue]:
    """Write a group's offsets in all queues of a topic; without `is_force` only backwards."""
    route = await admin.route(route_of or topic)
    moved = [
        await _move_queue(admin, address, group, queue, offsets, timestamp_ms, is_force)
        for broker in route.broker_datas
        if (address := replica_address(broker)) is not None
        for queue, offsets in await _offsets_at(admin, address, group, topic, broker, route)
    ]
    return sorted(moved, key=lambda queue: (queue.broker_name, queue.queue_id))


async def _offsets_at(
    admin: Admin, address: str, group: str, topic: str, broker: BrokerData, route: TopicRouteData
) -> list[tuple[MessageQueue, OffsetWrapper]]:
    """The offsets of a group in the queues of one broker; the first offset of queues it never consumed."""
    answer = await admin.call(
        address,
        RequestCode.GET_CONSUME_STATS,
        GetConsumeStatsRequestHeader(consumer_group=group),
        timeout_ms=STATS_TIMEOUT_FACTOR * admin.settings.request_timeout_ms,
    )
    table = decode_body(answer.body, ConsumeStats).offset_table
    consumed = [(queue, offsets) for queue, offsets in table.items() if queue.topic == topic]
    if consumed:
        return consumed
    answer = await admin.call(
        address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic)
    )
    of_topic = decode_body(answer.body, TopicStatsTable).offset_table
    read_queue_nums = sum(
        queues.read_queue_nums for queues in route.queue_datas if queues.broker_name == broker.broker_name
    )
    return [
        (queue, OffsetWrapper(offsets.max_offset, offsets.min_offset))
        for queue, offsets in of_topic.items()
        if queue.queue_id < read_queue_nums
    ]


async def _move_queue(
    admin: Admin,
    address: str,
    group: str,
    queue: MessageQueue,
    offsets: OffsetWrapper,
    timestamp_ms: int,
    is_force: bool,
) -> MovedQueue:
    if timestamp_ms == TO_THE_END:
        found = await admin.api.max_offset(address, queue)
    else:
        found = await admin.api.search_offset(address, queue, timestamp_ms)
    reset_offset = offsets.consumer_offset
    if is_force or found <= offsets.consumer_offset:
        await admin.api.update_consumer_offset(address, group, queue, found)
        reset_offset = found
    return MovedQueue(
        queue.broker_name,
        queue.queue_id,
        offsets.broker_offset,
        offsets.consumer_offset,
        found,
        reset_offset,
    )


async def clone_offsets(admin: Admin, source: str, target: str, topic: str) -> list[QueueOffset]:
    """Set a group's offsets in a topic to those of another group; returns them.

    Only in that topic: Apache's tool copies the offsets of all topics of the source, including its retry
    topic. ResponseError CONSUMER_NOT_ONLINE if the source has no offset in the topic.
    """
    progress = await consume_stats(admin, source)
    route = await admin.route(topic)
    addresses = {broker.broker_name: replica_address(broker) for broker in route.broker_datas}
    queues = [queue for queue in progress.queues if queue.topic == topic and queue.consumer_offset >= 0]
    if not queues:
        raise ResponseError(
            ResponseCode.CONSUMER_NOT_ONLINE, f"{source} has no offset in {topic}: it has not consumed it"
        )
    for queue in queues:
        address = addresses.get(queue.broker_name)
        if address is not None:
            await admin.api.update_consumer_offset(
                address, target, queue.message_queue, queue.consumer_offset
            )
    return [_queue_offset(queue.message_queue, queue.consumer_offset) for queue in queues]


# -- offsets of members ------------------------------------------------------------------------------


async def client_offsets(
    admin: Admin, group: str, topic: str, client_id: str | None = None
) -> list[ClientOffset]:
    """The offsets in memory of a group's members, from all brokers of the topic that know members."""
    header = GetConsumerStatusRequestHeader(topic=topic, group=group, client_addr=client_id or "")
    found: dict[tuple[str, MessageQueue], int] = {}
    failures: list[KourouError] = []
    addresses = replica_addresses(await admin.route(topic))
    for address in addresses:
        try:
            answer = await admin.call(address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        except (RemotingError, ResponseError) as error:
            failures.append(error)
            continue
        table = decode_body(answer.body, GetConsumerStatusBody).consumer_table
        found |= {(client, queue): table[client][queue] for client in table for queue in table[client]}
    if failures and len(failures) == len(addresses):
        raise failures[0]
    return [
        ClientOffset(client, queue.broker_name, queue.queue_id, found[client, queue])
        for client, queue in sorted(found)
    ]
