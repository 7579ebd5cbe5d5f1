"""Topics: placement, contents, and changes to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kourou.admin.config_pages import PAGE_SIZE, read_config_pages
from kourou.admin.each import map_each
from kourou.admin.session import Admin, command_line, replica_address
from kourou.admin.targets import Outcome, call_each, masters_of, on_each
from kourou.client.core.strategies import AllocateAveragely
from kourou.errors import ConfigError, KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigList,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from kourou.protocol.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from kourou.protocol.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    is_dlq_topic,
    is_inner_topic,
    is_retry_topic,
    reply_topic,
)


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """A topic, its cluster, and its consumer groups."""

    cluster: str
    topic: str
    groups: list[str]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """The placement of a topic by the name server; numbers of queues are totals of all brokers."""

    topic: str
    brokers: list[str]
    read_queues: int
    write_queues: int
    perm: str
    """`RW`, `R`, `W` or `-`; several, separated by `/`, where brokers differ."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The offsets of one queue; `max_offset` is the next to be written, the time 0 without messages."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_timestamp: int


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """All queues of a topic, sorted."""

    topic: str
    queues: list[QueueStatus]
    put_tps: float
    silent: list[Outcome]
    """Brokers that did not respond, and why."""


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """The outcome of deleting a topic from a cluster."""

    topic: str
    cluster: str
    brokers: list[Outcome]
    namesrvs: list[Outcome]


# -- placement ---------------------------------------------------------------------------------------


async def topic_names(admin: Admin) -> list[str]:
    """All topics that the name server knows, including system and retry topics, sorted."""
    return await admin.api.topic_names()


async def user_topic_names(admin: Admin) -> list[str]:
    """The user topics, sorted: without system, retry and dead-letter topics, and those of brokers and
    clusters."""
    info = await admin.cluster_info()
    own = {*info.broker_addr_table, *info.cluster_addr_table, *map(reply_topic, info.cluster_addr_table)}
    return [name for name in await topic_names(admin) if name not in own and not is_inner_topic(name)]


async def topic_places(admin: Admin, topics: Sequence[str]) -> list[TopicPlaces]:
    """The placement of topics, in their order. Topics deleted meanwhile are left out."""

    async def look(topic: str) -> TopicPlaces | None:
        route = await admin.api.topic_route(topic)
        return None if route is None else _places_of(topic, route)

    return [found for found in await map_each(topics, look) if found is not None]


def _places_of(topic: str, route: TopicRouteData) -> TopicPlaces:
    return TopicPlaces(
        topic,
        sorted(broker.broker_name for broker in route.broker_datas),
        sum(queues.read_queue_nums for queues in route.queue_datas),
        sum(queues.write_queue_nums for queues in route.queue_datas),
        "/".join(sorted({perm_letters(queues.perm) for queues in route.queue_datas})),
    )


def perm_letters(perm: int) -> str:
    """`RW`, `R`, `W` or `-`."""
    return "R" * bool(perm & PermName.READ) + "W" * bool(perm & PermName.WRITE) or "-"


async def topics_with_groups(admin: Admin) -> list[TopicGroups]:
    """All topics except retry and dead-letter topics, with cluster and consumer groups."""
    info = await admin.cluster_info()
    names = [name for name in await topic_names(admin) if not (is_retry_topic(name) or is_dlq_topic(name))]
    return await map_each(names, lambda topic: _topic_groups(admin, info, topic))


async def _topic_groups(admin: Admin, info: ClusterInfo, topic: str) -> TopicGroups:
    cluster = ""
    try:
        route = await admin.route(topic)
        cluster = next(iter(_first_clusters(info, route)), "")
        return TopicGroups(cluster, topic, sorted(await consumer_groups(admin, topic, route)))
    except KourouError as error:
        return TopicGroups(cluster, topic, [], f"topic {topic}: {error}")


async def consumer_groups(admin: Admin, topic: str, route: TopicRouteData) -> list[str]:
    """The groups that consume a topic, as known to the first broker of its route."""
    address = next(filter(None, map(replica_address, route.broker_datas)), None)
    if address is None:
        return []
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    answer = await admin.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    return decode_body(answer.body, GroupList).group_list


async def topic_clusters(admin: Admin, topic: str) -> list[str]:
    """The clusters of the first broker that has a topic, like Apache's tools."""
    return _first_clusters(await admin.cluster_info(), await admin.route(topic))


async def all_topic_clusters(admin: Admin, topic: str) -> list[str]:
    """All clusters that have a topic."""
    return clusters_of(await admin.cluster_info(), (await admin.route(topic)).broker_datas)


def clusters_of(info: ClusterInfo, brokers: Iterable[BrokerData]) -> list[str]:
    """The clusters of these brokers, sorted."""
    names = {data.broker_name for data in brokers}
    return sorted(
        cluster for cluster, members in info.cluster_addr_table.items() if not names.isdisjoint(members)
    )


def _first_clusters(info: ClusterInfo, route: TopicRouteData) -> list[str]:
    return clusters_of(info, route.broker_datas[:1])


async def read_permission_command(admin: Admin, topic: str) -> str:
    """The complete command line that allows reading a topic, for each of its clusters."""
    return "; ".join(
        command_line(admin.namesrvs, "updateTopicPerm", "-t", topic, "-p", "6", "-c", cluster)
        for cluster in await all_topic_clusters(admin, topic)
    )


# -- contents ----------------------------------------------------------------------------------------


async def topic_status(admin: Admin, topic: str, *, route_of: str | None = None) -> TopicStatus:
    """The offsets of each queue of a topic. `route_of` is a topic or cluster with the same brokers.

    ResponseError TOPIC_NOT_EXIST if there is no such topic, or no broker has a queue of it.
    """
    route = await admin.route(route_of or topic)
    header = GetTopicStatsInfoRequestHeader(topic=topic)

    async def ask(address: str) -> TopicStatsTable:
        answer = await admin.call(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        return decode_body(answer.body, TopicStatsTable)

    addresses = [address for address in map(replica_address, route.broker_datas) if address is not None]
    answers = await call_each(addresses, ask)
    tables = [answer for _, answer in answers if not isinstance(answer, KourouError)]
    offsets = {queue: offset for table in tables for queue, offset in table.offset_table.items()}
    if not offsets:
        raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Not found the topic stats info of {topic}")
    return TopicStatus(
        topic,
        [
            QueueStatus(
                queue.broker_name,
                queue.queue_id,
                offsets[queue].min_offset,
                offsets[queue].max_offset,
                offsets[queue].last_update_timestamp,
            )
            for queue in sorted(offsets)
        ],
        sum(table.topic_put_tps for table in tables),
        [Outcome(address, str(answer)) for address, answer in answers if isinstance(answer, KourouError)],
    )


async def allocate_queues(admin: Admin, topic: str, clients: Sequence[str]) -> dict[str, list[MessageQueue]]:
    """The queues that each of these clients would be assigned in a group, by the averaging strategy."""
    route = await admin.route(topic)
    queues = sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if data.perm & PermName.READ
        for queue_id in range(data.read_queue_nums)
    )
    if not queues:
        raise ConfigError(f"topic {topic} has no readable queue")
    strategy = AllocateAveragely()
    ids = sorted(set(clients))
    return {client: strategy.allocate("", client, queues, ids) for client in ids}


async def topic_config(admin: Admin, address: str, topic: str) -> TopicConfig | None:
    """The settings of one topic on a broker; None if it is not there. Brokers before 5 do not know this
    request: ResponseError."""
    header = GetTopicConfigRequestHeader(topic=topic)
    try:
        answer = await admin.call(address, RequestCode.GET_TOPIC_CONFIG, header)
    except ResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise
    return decode_body(answer.body, TopicConfig)


async def topic_attributes(admin: Admin, topic: str) -> dict[str, dict[str, str]]:
    """The attributes of a topic at each of its brokers, by the broker's name. Brokers that do not answer, or
    do not know the request, are left out."""
    route = await admin.route(topic)
    found: dict[str, dict[str, str]] = {}
    for broker in sorted(route.broker_datas, key=lambda each: each.broker_name):
        address = replica_address(broker)
        with suppress(RemotingError, ResponseError):
            config = None if address is None else await topic_config(admin, address, topic)
            if config is not None:
                found[broker.broker_name] = dict(sorted(config.attributes.items()))
    return found


async def topic_configs(admin: Admin, address: str) -> dict[str, TopicConfig]:
    """All topics of a broker, by name; in pages from 5.x brokers."""

    async def read(known: int, version: str) -> tuple[dict[str, TopicConfig], DataVersion, int | None]:
        header = GetAllTopicConfigRequestHeader(
            topic_seq=known, data_version=version, max_topic_num=PAGE_SIZE
        )
        answer = await admin.call(address, RequestCode.GET_ALL_TOPIC_CONFIG, header)
        page = decode_body(answer.body, TopicConfigSerializeWrapper)
        total = answer.header(GetAllTopicConfigResponseHeader).total_topic_num
        return page.topic_config_table, page.data_version, total

    return await read_config_pages(read)


# -- changes -----------------------------------------------------------------------------------------


async def create_topic(admin: Admin, address: str, config: TopicConfig) -> None:
    """Create a topic on one broker, or change it. Attributes are changes: `+key` sets, `-key` removes."""
    header = CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=",".join(f"{key}={text}" if text else key for key, text in config.attributes.items()),
    )
    await admin.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def create_topic_on(admin: Admin, addresses: Sequence[str], config: TopicConfig) -> list[Outcome]:
    """Like `create_topic`, on several brokers."""
    return await on_each(addresses, lambda address: create_topic(admin, address, config))


async def create_topics_on(
    admin: Admin, addresses: Sequence[str], configs: list[TopicConfig]
) -> list[Outcome]:
    """Create many topics with one request to each broker (5.x)."""
    body = encode_body(TopicConfigList(topic_config_list=configs))
    return await on_each(
        addresses, lambda address: admin.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    )


async def delete_topic(
    admin: Admin, topic: str, cluster: str, *, may_be_missing: bool = False
) -> TopicDeletion:
    """Delete a topic from the brokers of a cluster, then from all name servers.

    ResponseError TOPIC_NOT_EXIST if no broker of the cluster has it, unless it `may_be_missing`.
    """
    masters = [master.address for master in await masters_of(admin, cluster)]
    if not may_be_missing and await _is_missing(admin, topic, cluster, masters):
        raise ResponseError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic [{topic}] does not exist in cluster [{cluster}]"
        )
    header = DeleteTopicRequestHeader(topic=topic)
    brokers = await on_each(
        masters, lambda address: admin.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
    )
    route_header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    namesrvs = await on_each(
        admin.namesrvs,
        lambda address: admin.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, route_header),
    )
    return TopicDeletion(topic, cluster, brokers, namesrvs)


async def _is_missing(admin: Admin, topic: str, cluster: str, masters: Sequence[str]) -> bool:
    """Whether no broker of a cluster has a topic: neither the name server nor a master knows it. False if
    one of them does not respond."""
    route = await admin.api.topic_route(topic)
    names = {broker.broker_name for broker in await admin.brokers(cluster)}
    if route is not None and any(broker.broker_name in names for broker in route.broker_datas):
        return False
    answers = await call_each(masters, lambda address: topic_configs(admin, address))
    return not any(isinstance(table, KourouError) or topic in table for _, table in answers)
