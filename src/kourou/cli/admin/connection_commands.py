"""Commands about connected clients: their connections, and the status they report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.admin.connections import consumer_connection, producer_connection, producers_of_broker
from kourou.admin.group_offsets import ClientOffset, client_offsets
from kourou.admin.running_info import ClientStatus, GroupStatus, RunningInfo, client_status, group_status
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut, or_null, truth
from kourou.cli.admin.options import flag, required, value
from kourou.cli.admin.screen import Screen
from kourou.errors import ConfigError
from kourou.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ConsumeStatus,
    MessageQueue,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    ProducerTableInfo,
)
from kourou.protocol.versions import version_desc

# -- consumerConnection ------------------------------------------------------------------------------


async def _consumer_connection(call: Call) -> ConsumerConnection:
    return await consumer_connection(call.admin, call.args.text("consumerGroup"), call.args.get("brokerAddr"))


def _show_consumer_connection(connection: ConsumerConnection, screen: Screen) -> None:
    screen.table(
        "{:<36} {:<22} {:<10} {}",
        ("#ClientId", "#ClientAddr", "#Language", "#Version"),
        (
            (member.client_id, member.client_addr, or_null(member.language), version_desc(member.version))
            for member in sorted(connection.connection_set, key=lambda member: member.client_id)
        ),
    )
    screen.line()
    screen.line("Below is subscription:")
    table = connection.subscription_table
    screen.table(
        "{:<20} {}",
        ("#Topic", "#SubExpression"),
        ((topic, table[topic].sub_string) for topic in sorted(table)),
    )
    screen.line()
    screen.line(f"ConsumeType: {or_null(connection.consume_type)}")
    screen.line(f"MessageModel: {or_null(connection.message_model)}")
    screen.line(f"ConsumeFromWhere: {or_null(connection.consume_from_where)}")


# -- producers ---------------------------------------------------------------------------------------


async def _producer_connection(call: Call) -> list[Connection]:
    return await producer_connection(call.admin, call.args.text("producerGroup"), call.args.text("topic"))


def _show_producer_connection(connections: list[Connection], screen: Screen) -> None:
    for index, member in enumerate(connections, 1):
        screen.line(
            f"{index:04d}  {member.client_id:<32} {member.client_addr:<22} "
            f"{or_null(member.language):<8} {version_desc(member.version)}"
        )


async def _producer(call: Call) -> ProducerTableInfo:
    return await producers_of_broker(call.admin, call.args.text("broker"))


def _show_producer(producers: ProducerTableInfo, screen: Screen) -> None:
    for group in sorted(producers.data):
        if not producers.data[group]:
            screen.line(f"producer group ({group}) instances are empty")
        for member in sorted(producers.data[group], key=lambda member: member.client_id):
            screen.line(
                f"producer group ({group}) instance : clientId={member.client_id},"
                f"remoteIP={member.remote_ip}, language={or_null(member.language)}, "
                f"version={member.version}, lastUpdateTimestamp={member.last_update_timestamp}"
            )


# -- consumerStatus ----------------------------------------------------------------------------------


async def _consumer_status(call: Call) -> ClientStatus | GroupStatus:
    args = call.args
    group, broker, with_stacks = args.text("consumerGroup"), args.get("brokerAddr"), args.flag("jstack")
    client_id = args.get("clientId")
    if client_id is not None:
        return await client_status(call.admin, group, client_id, broker=broker, with_stacks=with_stacks)
    return await group_status(call.admin, group, broker=broker, with_stacks=with_stacks)


def _show_consumer_status(status: ClientStatus | GroupStatus, screen: Screen) -> None:
    if isinstance(status, GroupStatus):
        _show_group_status(status, screen)
    elif status.info is not None:
        screen.write(running_info_text(status.info, is_v4=screen.is_v4))


def _show_group_status(status: GroupStatus, screen: Screen) -> None:
    answered = [client for client in status.clients if client.info is not None]
    screen.table(
        "{:<10} {:<40} {:<20} {}",
        ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"),
        (
            (index, client.client_id, client.version, _write_file(status, client, screen.is_v4))
            for index, client in enumerate(answered, 1)
        ),
    )
    for client in status.clients:
        if client.problem:
            screen.trouble(f"{client.client_id}: {client.problem}")
    if not answered:
        return
    screen.write("\n\n")
    if not status.is_subscription_same:
        screen.write("WARN: Different subscription in the same group of consumer!!!")
        return
    screen.line("Same subscription in the same group of consumer")
    screen.line()
    screen.line(f"Rebalance {'OK' if status.is_rebalance_ok else 'Failed'}")
    for finding in status.findings:
        screen.line(finding)


def _write_file(status: GroupStatus, client: ClientStatus, is_v4: bool) -> str:
    """Write a client's report to a file under the working directory; returns its path."""
    assert client.info is not None
    path = Path(str(status.timestamp_ms), _file_name(client.client_id))
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(running_info_text(client.info, is_v4=is_v4), "utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; change to a writable folder, "
            f"or use -i {client.client_id} to print it"
        ) from None
    return str(path)


def _file_name(client_id: str) -> str:
    """Client ids come from the network and must not select another folder."""
    name = client_id.replace("/", "_").replace("\0", "_")
    return name if name.strip(".") else f"_{name}"


# -- getConsumerStatus -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MemberOffsets:
    group: str
    topic: str
    origin_client_id: str
    offsets: list[ClientOffset]


async def _get_consumer_status(call: Call) -> _MemberOffsets:
    group, topic = call.args.text("group"), call.args.text("topic")
    client_id = call.args.text("originClientId")
    return _MemberOffsets(group, topic, client_id, await client_offsets(call.admin, group, topic, client_id))


def _show_get_consumer_status(members: _MemberOffsets, screen: Screen) -> None:
    screen.line(
        f"get consumer status from client. group={members.group}, topic={members.topic}, "
        f"originClientId={members.origin_client_id}"
    )
    screen.table(
        "{:<50}  {:<15}  {:<15}  {:<20}",
        ("#clientId", "#brokerName", "#queueId", "#offset"),
        (
            (cut(one.client_id, 50), cut(one.broker_name, 15), one.queue_id, one.offset)
            for one in members.offsets
        ),
    )


CONNECTION_COMMANDS: Final = (
    AdminCommand(
        name="consumerConnection",
        about="List the online members of a consumer group and their subscriptions.",
        example="consumerConnection -n 127.0.0.1:9876 -g OrderService",
        options=(
            required("g", "consumerGroup", "consumer group"),
            value("b", "brokerAddr", "broker to query (default: the group's brokers, until one knows it)"),
        ),
        ask=_consumer_connection,
        show=_show_consumer_connection,
    ),
    AdminCommand(
        name="producerConnection",
        about="List the online producers of a group.",
        example="producerConnection -n 127.0.0.1:9876 -g OrderProducer -t Orders",
        options=(
            required("g", "producerGroup", "producer group"),
            required("t", "topic", "topic it sends to"),
        ),
        ask=_producer_connection,
        show=_show_producer_connection,
    ),
    AdminCommand(
        name="producer",
        about="List all producers connected to a broker.",
        example="producer -n 127.0.0.1:9876 -b 127.0.0.1:10911",
        options=(required("b", "broker", "address of the broker"),),
        ask=_producer,
        show=_show_producer,
    ),
    AdminCommand(
        name="consumerStatus",
        about="Show what the members of a consumer group report, and whether their subscriptions agree.",
        example="consumerStatus -n 127.0.0.1:9876 -g OrderService",
        options=(
            required("g", "consumerGroup", "consumer group"),
            value("i", "clientId", "only this member, printed instead of written to a file"),
            value("b", "brokerAddr", "broker to query for the members"),
            flag("s", "jstack", "include the threads of each member"),
        ),
        ask=_consumer_status,
        show=_show_consumer_status,
    ),
    AdminCommand(
        name="getConsumerStatus",
        about="Show a topic's offsets as the members of a consumer group hold them in memory.",
        example="getConsumerStatus -n 127.0.0.1:9876 -g OrderService -t Orders",
        options=(
            required("g", "group", "consumer group"),
            required("t", "topic", "topic"),
            value("i", "originClientId", "only this member"),
        ),
        ask=_get_consumer_status,
        show=_show_get_consumer_status,
    ),
)


def running_info_text(info: RunningInfo, *, is_v4: bool = False) -> str:
    """All sections, separated by two empty lines. RocketMQ 4.9 has fewer."""
    sections = [
        ["#Consumer Properties#", *_pairs(info.properties)],
        [
            "#Consumer Subscription#",
            *(
                f"{index:03d} Topic: {one.topic:<40} ClassFilter: {truth(one.class_filter_mode):<8} "
                f"SubExpression: {one.sub_string}"
                for index, one in enumerate(info.subscriptions, 1)
            ),
        ],
        [
            "#Consumer Offset#",
            _head("#Consumer Offset"),
            *(_row(32, running.queue, running.info.commit_offset) for running in info.queues),
        ],
        [
            "#Consumer MQ Detail#",
            _head("#ProcessQueueInfo"),
            *(_row(64, running.queue, _process_queue(running.info)) for running in info.queues),
        ],
    ]
    if not is_v4:
        sections.append(
            [
                "#Consumer Pop Detail#",
                _head("#ProcessQueueInfo", 32),
                *(_row(32, popped.queue, _pop_queue(popped.info)) for popped in info.pop_queues),
            ]
        )
    sections.append(["#Consumer RT&TPS#", *_rates(info.status)])
    if not is_v4:
        sections.append(["#User Consume Info#", *_pairs(info.user_consumer_info)])
    if info.jstack is not None:
        sections.append(["#Consumer jstack#", info.jstack])
    return "\n\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _pairs(values: Mapping[str, str]) -> Iterable[str]:
    return (f"{name:<40}: {values[name]}" for name in sorted(values))


def _head(last: str, topic_width: int = 64) -> str:
    return f"{'#Topic':<{topic_width}}  {'#Broker Name':<32}  {'#QID':<4}  {last:<20}"


def _row(topic_width: int, queue: MessageQueue, last: object) -> str:
    return f"{queue.topic:<{topic_width}}  {queue.broker_name:<32}  {queue.queue_id:<4}  {last!s:<20}"


def _rates(status: Mapping[str, ConsumeStatus]) -> Iterable[str]:
    yield (
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} {'#ConsumeOK TPS':>14} "
        f"{'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    )
    for topic, of_topic in status.items():
        yield (
            f"{topic:<32}  {of_topic.pull_rt:>14.2f} {of_topic.pull_tps:>14.2f} "
            f"{of_topic.consume_rt:>14.2f} {of_topic.consume_ok_tps:>14.2f} "
            f"{of_topic.consume_failed_tps:>18.2f} {of_topic.consume_failed_msgs:>25}"
        )


def _process_queue(info: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={info.commit_offset}, "
        f"cachedMsgMinOffset={info.cached_msg_min_offset}, cachedMsgMaxOffset={info.cached_msg_max_offset}, "
        f"cachedMsgCount={info.cached_msg_count}, cachedMsgSizeInMiB={info.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={info.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={info.transaction_msg_max_offset}, "
        f"transactionMsgCount={info.transaction_msg_count}, locked={truth(info.locked)}, "
        f"tryUnlockTimes={info.try_unlock_times}, lastLockTimestamp={_digits(info.last_lock_timestamp)}, "
        f"droped={truth(info.dropped)}, lastPullTimestamp={_digits(info.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={_digits(info.last_consume_timestamp)}]"
    )


def _pop_queue(info: PopProcessQueueInfo) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{info.wait_ack_count}, droped:{truth(info.dropped)}, "
        f"lastPopTimestamp:{info.last_pop_timestamp}]"
    )


def _digits(timestamp_ms: int) -> str:
    """`yyyyMMddHHmmssSSS` in the local zone."""
    try:
        moment = time.localtime(timestamp_ms // 1000)
    except (OverflowError, OSError, ValueError):  # the client may have sent any number
        return str(timestamp_ms)
    return f"{time.strftime('%Y%m%d%H%M%S', moment)}{timestamp_ms % 1000:03d}"
