"""Exports of a cluster: topics and groups, broker settings, and load.

An export without one of the brokers would look complete, so one that does not respond is an error. Not here:
files and their format (the command line's).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kourou.admin.brokers import broker_configs, broker_runtime
from kourou.admin.connections import consumer_connection
from kourou.admin.groups import group_configs
from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.targets import brokers_of, masters_of
from kourou.admin.topic_stats import broker_stats, count_of_24_hours
from kourou.admin.topics import topic_configs
from kourou.clock import wall_ms
from kourou.errors import RemotingError, ResponseError
from kourou.protocol.bodies import (
    SubscriptionGroupConfig,
    TopicConfig,
    TopicList,
    decode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.names import (
    CID_RMQ_SYS_PREFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    SYSTEM_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from kourou.protocol.versions import version_desc

EXPORTED_KEYS: Final = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
)
"""The exported settings, as far as the broker knows them."""
_CPU_KEY: Final = "clientCallbackExecutorThreads"  # the number of cores of the broker's machine

ReportProgress = Callable[[str], None]
"""Receives the progress of a long export."""


def _ignore_progress(text: str) -> None:
    pass


# -- metadata ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metadata:
    """Topics and groups of users, by name; numbers of queues are totals of all brokers."""

    export_time_ms: int
    topics: dict[str, TopicConfig]
    groups: dict[str, SubscriptionGroupConfig]


async def cluster_metadata(
    admin: Admin, cluster: str, *, with_retries: bool = False, report: ReportProgress = _ignore_progress
) -> Metadata:
    """Topics and groups of all masters of a cluster; `with_retries` includes retry and dead-letter topics."""
    masters = [broker.address for broker in await masters_of(admin, cluster)]
    return await _metadata(admin, masters, with_retries, report)


async def broker_metadata(
    admin: Admin, broker: str, *, with_retries: bool = False, report: ReportProgress = _ignore_progress
) -> Metadata:
    """Topics and groups of one broker."""
    return await _metadata(admin, [await admin.broker_address(broker)], with_retries, report)


async def _metadata(
    admin: Admin, addresses: list[str], with_retries: bool, report: ReportProgress
) -> Metadata:
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for number, address in enumerate(addresses, start=1):
        report(f"{number} of {len(addresses)} brokers: {address}")
        for topic, config in (await user_topics(admin, address, with_retries=with_retries)).items():
            if topic in topics:
                config.read_queue_nums += topics[topic].read_queue_nums
                config.write_queue_nums += topics[topic].write_queue_nums
            topics[topic] = config
        for group, settings in (await user_groups(admin, address)).items():
            if group in groups:
                settings.retry_queue_nums += groups[group].retry_queue_nums
            groups[group] = settings
    return Metadata(
        wall_ms(),
        {topic: topics[topic] for topic in sorted(topics)},
        {group: groups[group] for group in sorted(groups)},
    )


async def user_topics(admin: Admin, address: str, *, with_retries: bool = False) -> dict[str, TopicConfig]:
    """The user topics of a broker."""
    table = await topic_configs(admin, address)
    answer = await admin.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    system = SYSTEM_TOPICS.union(decode_body(answer.body, TopicList).topic_list)
    retries = () if with_retries else (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
    return {
        topic: config
        for topic, config in table.items()
        if topic not in system and not topic.startswith((SYSTEM_TOPIC_PREFIX, *retries))
    }


async def user_groups(admin: Admin, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The user groups of a broker."""
    return {
        group: settings
        for group, settings in (await group_configs(admin, address)).items()
        if group not in SYSTEM_GROUPS and not group.startswith(CID_RMQ_SYS_PREFIX)
    }


# -- settings ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterConfigs:
    """The size of a cluster, and the main settings of its masters, by broker name."""

    namesrv_size: int
    master_broker_size: int
    slave_broker_size: int
    broker_configs: dict[str, dict[str, str]]


async def cluster_configs(admin: Admin, cluster: str) -> ClusterConfigs:
    """The settings of a cluster. Raises the error of the first broker that does not respond."""
    brokers = await brokers_of(admin, cluster)
    masters = [broker for broker in brokers if broker.is_master]
    configs: dict[str, dict[str, str]] = {}
    for master in masters:
        config = await _broker_config(admin, master.address)
        configs[master.broker_name] = {key: config[key] for key in EXPORTED_KEYS if key in config}
    return ClusterConfigs(len(admin.namesrvs), len(masters), len(brokers) - len(masters), configs)


async def _broker_config(admin: Admin, address: str) -> dict[str, str]:
    (found,) = await broker_configs(admin, [address])
    return found.config


# -- metrics -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The load of one broker: messages per second, and in the last whole day."""

    broker_name: str
    rocketmq_version: str
    client_info: list[str]
    """Languages and versions of the consumers, `JAVA%V5_5_0`."""
    cpu_num: str
    commit_log_disk_ratio: str
    consume_queue_disk_ratio: str
    message_average_size: str
    topic_size: int
    group_size: int
    normal_in_tps: float
    normal_out_tps: float
    trans_in_tps: float
    schedule_in_tps: float
    normal_one_day_in_num: int
    normal_one_day_out_num: int
    trans_one_day_in_num: int
    schedule_one_day_in_num: int


async def cluster_metrics(
    admin: Admin, cluster: str, *, report: ReportProgress = _ignore_progress
) -> list[BrokerMetrics]:
    """The load of a cluster's masters."""
    return [await _broker_metrics(admin, master, report) for master in await masters_of(admin, cluster)]


async def _broker_metrics(admin: Admin, master: BrokerAddress, report: ReportProgress) -> BrokerMetrics:
    address = master.address
    report(f"{master.broker_name}: state")
    state = await broker_runtime(admin, address)
    config = await _broker_config(admin, address)
    groups = await user_groups(admin, address)
    topics = await user_topics(admin, address)
    trans_tps, trans_day = await _put_flow(admin, address, RMQ_SYS_TRANS_HALF_TOPIC)
    schedule_tps, schedule_day = await _put_flow(admin, address, RMQ_SYS_SCHEDULE_TOPIC)
    clients: set[str] = set()
    for number, group in enumerate(sorted(groups), start=1):
        report(f"{master.broker_name}: {number} of {len(groups)} groups")
        clients |= await _clients(admin, group)
    return BrokerMetrics(
        broker_name=master.broker_name,
        rocketmq_version=state.get("brokerVersionDesc", ""),
        client_info=sorted(clients),
        cpu_num=config.get(_CPU_KEY, ""),
        commit_log_disk_ratio=state.get("commitLogDiskRatio", ""),
        consume_queue_disk_ratio=state.get("consumeQueueDiskRatio", ""),
        message_average_size=state.get("putMessageAverageSize", ""),
        topic_size=len(topics),
        group_size=len(groups),
        normal_in_tps=_first_number(state.get("putTps", "")),
        # The older spelling is RocketMQ 4's.
        normal_out_tps=_first_number(state.get("getTransferredTps") or state.get("getTransferedTps", "")),
        trans_in_tps=trans_tps,
        schedule_in_tps=schedule_tps,
        normal_one_day_in_num=_of_yesterday(state, "msgPutTotal"),
        normal_one_day_out_num=_of_yesterday(state, "msgGetTotal"),
        trans_one_day_in_num=trans_day,
        schedule_one_day_in_num=schedule_day,
    )


async def _put_flow(admin: Admin, address: str, topic: str) -> tuple[float, int]:
    stats = await broker_stats(admin, address, "TOPIC_PUT_NUMS", topic)
    return (stats.stats_minute.tps, count_of_24_hours(stats)) if stats is not None else (0.0, 0)


async def _clients(admin: Admin, group: str) -> set[str]:
    """Languages and versions of a group's members; empty if it is offline."""
    try:
        connection = await consumer_connection(admin, group)
    except (RemotingError, ResponseError):
        return set()
    return {f"{member.language}%{version_desc(member.version)}" for member in connection.connection_set}


def _first_number(text: str) -> float:
    """The first of three rates, over the shortest time."""
    word = text.split(" ", 1)[0]
    try:
        return float(word)
    except ValueError:
        return 0.0


def _of_yesterday(state: dict[str, str], name: str) -> int:
    morning, before = state.get(f"{name}TodayMorning", ""), state.get(f"{name}YesterdayMorning", "")
    return int(morning) - int(before) if morning.isdecimal() and before.isdecimal() else 0
