"""Topics: the list, and one topic with routes, queues, consumers and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from kourou.admin.brokers import GroupQueueLag
from kourou.admin.connections import consumers_of_topic
from kourou.admin.overflow import describe_limits, list_overflow
from kourou.admin.session import BrokerAddress
from kourou.admin.topic_kinds import TopicKind, message_kind, own_topics, topic_kind
from kourou.admin.topics import QueueStatus, TopicStatus, perm_letters, topic_status
from kourou.console.api.places import mqadmin
from kourou.console.api_errors import bad_input, not_found, unreadable
from kourou.console.cluster_view import ClusterView, Reading
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Read
from kourou.console.lag_table import LagTable
from kourou.console.paging import Page, PageQuery, cut_page
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import TopicConfig, TopicRouteData
from kourou.protocol.bodies.overflow import TopicOverflow
from kourou.protocol.codes import ResponseCode
from kourou.protocol.overflow_rule import POLICY
from kourou.wording import suggestion

TopicTable = dict[str, dict[str, TopicConfig]]

# -- the list ----------------------------------------------------------------------------------------


class TopicsQuery(PageQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of the list of topics."""

    kinds: str = ""
    """Kinds, separated by commas: NORMAL, FIFO, DELAY, TRANSACTION, MIXED, PRIORITY, UNSPECIFIED, RETRY, DLQ,
    SYSTEM. All if empty."""
    broker: str = ""
    """Only topics of this broker."""


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the list; numbers are sums over brokers."""

    topic: str
    kind: TopicKind
    read_queues: int
    write_queues: int
    perm: str
    """`RW`, `R`, `W` or `-`; several, separated by `/`, where brokers differ."""
    brokers: list[str]
    is_uniform: bool
    """Whether the settings are the same on all its brokers."""
    groups: int
    """Consumer groups with an offset in it."""
    lag: int | None
    """Messages that its groups have not consumed; None without groups."""
    in_tps: float | None
    """Messages stored per second; None if unknown: without groups, or at the first reading."""


_MAX_GROUPS_WITH_QUEUES: Final = 30
_COLUMNS: Final[dict[str, Callable[[TopicRow], Any]]] = {
    name: attrgetter(name)
    for name in ("topic", "kind", "read_queues", "write_queues", "perm", "brokers", "groups", "lag", "in_tps")
}


async def _topics(call: Call[TopicsQuery, NoBody]) -> Page[TopicRow]:
    view, query = call.view, call.query
    kinds = _kinds(query.kinds)
    topics, lags, rates, brokers = await asyncio.gather(
        view.topics(), view.lag_table(), view.rates(), view.brokers()
    )
    own = own_topics(broker.place for broker in brokers.data)
    rows = view.derived(
        "topic rows",
        (topics, lags.data, rates),
        lambda: [
            _row(topic, configs, topic_kind(topic, configs.values(), own), lags.data, rates.stored.get(topic))
            for topic, configs in sorted(topics.data.items())
        ],
    )
    if query.broker:
        rows = [row for row in rows if query.broker in row.brokers]
    if kinds:
        rows = [row for row in rows if row.kind in kinds]
    return cut_page(
        rows,
        query,
        name=lambda row: row.topic,
        columns=_COLUMNS,
        as_of=min(topics.as_of, lags.as_of),
        problems=dict.fromkeys([*topics.problems, *lags.problems]),
        commands=[mqadmin(call, "topicList"), mqadmin(call, "statsAll")],
    )


def _kinds(text: str) -> set[str]:
    kinds = {word for word in text.split(",") if word}
    for kind in sorted(kinds - set(TopicKind)):
        hint = suggestion(kind, TopicKind) or f"; there are: {', '.join(TopicKind)}"
        raise bad_input("kinds", f"no kind {kind!r}{hint}")
    return kinds


def _row(
    topic: str, configs: Mapping[str, TopicConfig], kind: TopicKind, lags: LagTable, in_tps: float | None
) -> TopicRow:
    groups = lags.groups_of.get(topic, [])
    return TopicRow(
        topic=topic,
        kind=kind,
        read_queues=sum(config.read_queue_nums for config in configs.values()),
        write_queues=sum(config.write_queue_nums for config in configs.values()),
        perm="/".join(sorted({perm_letters(config.perm) for config in configs.values()})),
        brokers=sorted(configs),
        is_uniform=not differing_fields(configs.values()),
        groups=len(groups),
        lag=lags.by_topic[topic].lag if groups else None,
        in_tps=in_tps,
    )


def differing_fields(configs: Iterable[msgspec.Struct]) -> list[str]:
    """The settings that are not the same on all brokers, by their names in the API."""
    first, *others = configs
    if all(other == first for other in others):
        return []
    trees = [msgspec.to_builtins(config) for config in (first, *others)]
    return [name for name in trees[0] if any(tree[name] != trees[0][name] for tree in trees)]


# -- one topic ---------------------------------------------------------------------------------------


class TopicOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic on one broker."""

    cluster: str
    broker_name: str
    address: str
    kind: TopicKind
    perm: str
    config: TopicConfig


class TopicGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group of a topic."""

    group: str
    lag: int | None
    """None if it has no offset yet."""
    last_consumed_ms: int
    """The store time of its newest consumed message; 0 if unknown."""
    behind_ms: int | None
    """The age of the oldest message that is not consumed; 0 without lag."""
    queues: list[GroupQueueLag]


class OverflowOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """What the overflow policy of a topic does on one broker."""

    broker_name: str
    state: TopicOverflow
    limits: str
    """The backlog against the limits, in words."""
    dropped: int
    dead_lettered: int


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    topic: str
    kind: TopicKind
    clusters: list[str]
    brokers: list[TopicOnBroker]
    differing: list[str]
    """Settings that are not the same on all brokers."""
    route: TopicRouteData | None
    """What the name server gives to clients; None if it does not know the topic."""
    queues: list[QueueStatus]
    messages: int
    put_tps: float
    groups: list[TopicGroup]
    overflow: list[OverflowOnBroker]
    as_of: int
    problems: list[str]
    commands: list[str]


async def _topic(call: Call[NoQuery, NoBody]) -> TopicView:
    topic, view, admin = call.path["topic"], call.view, call.admin
    configs, problems = await topic_settings(view, topic)
    masters, lags, route, status, online, overflow = await asyncio.gather(
        admin.masters(),
        view.lag_table(),
        admin.api.topic_route(topic),
        _status(call, topic),
        _consumers(call, topic),
        _overflow(call, topic, configs.values()),
    )
    return TopicView(
        topic=topic,
        kind=topic_kind(topic, configs.values(), own_topics(masters)),
        clusters=sorted({master.cluster for master in masters if master.broker_name in configs}),
        brokers=_on_brokers(configs, masters),
        differing=differing_fields(configs.values()),
        route=route,
        queues=status.queues,
        messages=sum(queue.max_offset - queue.min_offset for queue in status.queues),
        put_tps=round(status.put_tps, 2),
        groups=await _topic_groups(view, topic, lags.data, online),
        overflow=overflow,
        as_of=lags.as_of,
        problems=list(
            dict.fromkeys(
                [*problems, *lags.problems, *(f"{one.address}: {one.problem}" for one in status.silent)]
            )
        ),
        commands=[mqadmin(call, name, "-t", topic) for name in ("topicRoute", "topicStatus")]
        + [mqadmin(call, "consumerProgress", "-g", group, "-t", topic) for group in online[:3]],
    )


async def _overflow(
    call: Call[Any, Any], topic: str, configs: Iterable[TopicConfig]
) -> list[OverflowOnBroker]:
    """Brokers are asked only if the topic has a policy."""
    if not any(POLICY in config.attributes for config in configs):
        return []
    return [
        OverflowOnBroker(
            broker_name=broker.broker_name,
            state=state,
            limits=describe_limits(state),
            dropped=sum(count.dropped for count in state.groups),
            dead_lettered=sum(count.dead_lettered for count in state.groups),
        )
        for broker in await list_overflow(call.admin, topic=topic)
        for state in broker.topics
        if state.policy
    ]


async def topic_settings(view: ClusterView, topic: str) -> tuple[dict[str, TopicConfig], list[str]]:
    """The settings of a topic by broker name, and what could not be read. ApiError 404 if there is none."""
    reading: Reading[TopicTable] = await view.topics()
    if topic not in reading.data:
        reading = await view.topics(is_new=True)
    if topic not in reading.data and reading.problems:
        if found := await view.topic(topic):
            return found, reading.problems
        raise unreadable(f"topic {topic}", reading.problems)
    if topic not in reading.data:
        hint = suggestion(topic, reading.data).removeprefix("; ")
        raise not_found(f"topic {topic} does not exist", hint)
    return reading.data[topic], reading.problems


async def _status(call: Call[Any, Any], topic: str) -> TopicStatus:
    """The queues; none if the name server does not know the topic yet, or no broker has a message of it."""
    try:
        return await topic_status(call.admin, topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return TopicStatus(topic, [], 0.0, [])


async def _consumers(call: Call[Any, Any], topic: str) -> list[str]:
    """The groups that consume it, also those without an offset."""
    try:
        return await consumers_of_topic(call.admin, topic)
    except KourouError:
        return []


def _on_brokers(configs: Mapping[str, TopicConfig], masters: Sequence[BrokerAddress]) -> list[TopicOnBroker]:
    places = {master.broker_name: master for master in masters}
    return [
        TopicOnBroker(
            cluster=places[name].cluster if name in places else "",
            broker_name=name,
            address=places[name].address if name in places else "",
            kind=message_kind(config),
            perm=perm_letters(config.perm),
            config=config,
        )
        for name, config in sorted(configs.items())
    ]


async def _topic_groups(
    view: ClusterView, topic: str, lags: LagTable, online: Iterable[str]
) -> list[TopicGroup]:
    groups = sorted({*lags.groups_of.get(topic, ()), *online})
    # The queues of so many groups that a page can show them; the others have a page of their own.
    read = await asyncio.gather(
        *(view.queue_lags(group, topic) for group in groups[:_MAX_GROUPS_WITH_QUEUES])
    )
    queues = dict(zip(groups, read, strict=False))
    return [_topic_group(group, topic, lags, queues.get(group, [])) for group in groups]


def _topic_group(group: str, topic: str, lags: LagTable, queues: list[GroupQueueLag]) -> TopicGroup:
    total = lags.by_pair.get((group, topic))
    lag = total.lag if total is not None else None
    return TopicGroup(
        group=group,
        lag=sum(max(0, queue.diff) for queue in queues) if queues else lag,
        last_consumed_ms=max((queue.last_timestamp for queue in queues), default=0),
        behind_ms=None if total is None else total.behind_ms(lags.as_of),
        queues=queues,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/topics",
        summary="All topics",
        query=TopicsQuery,
        handler=_topics,
        returns=Page[TopicRow],
    ),
    Read(
        path="/topics/{topic}",
        summary="One topic: settings, route, queues, consumers",
        handler=_topic,
        returns=TopicView,
    ),
)
