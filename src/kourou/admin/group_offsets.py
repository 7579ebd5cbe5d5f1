"""Moving a consumer group: to a time, to the end, to where another group is.

The new way asks the brokers to move a group, and they tell its members; brokers of RocketMQ 4 do so only if
it has some. The old way writes a group's offsets, which members that are running overwrite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.admin.connections import replica_addresses
from kourou.admin.consume_stats import STATS_TIMEOUT_FACTOR, consume_stats
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

TO_THE_END: Final = -1
"""Instead of a time: after the newest message."""


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """Where a group is in a queue."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class MovedQueue:
    """A queue in which a group was moved the old way."""

    broker_name: str
    queue_id: int
    broker_offset: int
    """The next queue_offset to be written."""
    consumer_offset: int
    """Where the group was."""
    timestamp_offset: int
    """The first queue_offset at the time."""
    reset_offset: int
    """Where the group is now."""


@dataclass(frozen=True, slots=True)
class ClientOffset:
    """Where one member of a group is in a queue."""

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
    """Have the brokers move a group to a time in all queues of a topic; where it is then.

    ResponseError CONSUMER_NOT_ONLINE from brokers that need members for it. `is_cpp`: they are C++ clients of
    RocketMQ 4, which are told in another form. `route_of`: a topic, or cluster, whose brokers are asked.
    """
    header = ResetOffsetRequestHeader(
        topic=topic,
        group=group,
        timestamp=timestamp_ms,
        is_force=is_force,
        queue_id=-1,
        queue_offset=-1,
    )
    moved: dict[MessageQueue, int] = {}
    for address in replica_addresses(await admin.route(route_of or topic)):
        moved |= await _reset_at(admin, address, header, is_cpp)
    return [_queue_offset(queue, moved[queue]) for queue in sorted(moved)]


async def _reset_at(
    admin: Admin, address: str, header: ResetOffsetRequestHeader, is_cpp: bool = False
) -> dict[MessageQueue, int]:
    command = admin.api.command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    if is_cpp:
        command.language = LanguageCode.CPP
    answer = await admin.api.remoting.call(address, command, admin.settings.request_timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark or "", address)
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
    """Have a broker move a group in one queue, to a time or to an offset; where it is then.

    ConfigError from a broker of RocketMQ 4: it would move the group in all queues.
    """
    address = await admin.broker_address(broker)
    answer = await admin.call(
        address,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=max(0, timestamp_ms)),
    )
    if answer.version < V5_0_0:
        raise ConfigError(
            f"{address} runs RocketMQ {version_desc(answer.version)}, which moves a group in all queues of a "
            "topic or in none; leave -b, -q and -o out"
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
    """Move a group; the old way, with MovedQueue as result, where the new one needs members and has none."""
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
    """Where a group is in the queues of one broker: at their beginning if it never consumed them."""
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
    """Move a group to where another one is in a topic; the offsets of each queue.

    Only that topic: Apache's tool writes the offsets of all topics that the source consumes, its retries too.
    ResponseError CONSUMER_NOT_ONLINE if the source has no offset in it.
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


# -- asking the members ------------------------------------------------------------------------------


async def client_offsets(
    admin: Admin, group: str, topic: str, client_id: str | None = None
) -> list[ClientOffset]:
    """Where the members of a group say that they are, by all brokers of the topic that know some."""
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
