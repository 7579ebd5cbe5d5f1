"""Consumer groups: the list, one group with lag, members and settings, and one client of it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec

from kourou.admin.brokers import GroupQueueLag
from kourou.admin.doctor.findings import Finding
from kourou.admin.doctor.group_doctor import examine_group
from kourou.admin.running_info import ClientStatus, client_status
from kourou.console.api.places import mqadmin
from kourou.console.api.topics import differing_fields
from kourou.console.api_errors import bad_input, not_found, unreadable
from kourou.console.cluster_view import ClusterView
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Read
from kourou.console.group_members import Members
from kourou.console.lag_table import LagSum, LagTable
from kourou.console.paging import Page, PageQuery, cut_page
from kourou.console.refusals import readable
from kourou.protocol.bodies import MessageQueue, SubscriptionData, SubscriptionGroupConfig
from kourou.protocol.names import dlq_topic, is_system_group, retry_topic
from kourou.protocol.versions import version_desc
from kourou.wording import suggestion


class GroupKind(enum.StrEnum):
    """Kinds of groups."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    """Consumes in order."""
    SYSTEM = "SYSTEM"


def group_kind(group: str, configs: Mapping[str, SubscriptionGroupConfig]) -> GroupKind:
    """The kind of a group with these settings on its brokers."""
    if is_system_group(group):
        return GroupKind.SYSTEM
    is_orderly = any(config.consume_message_orderly for config in configs.values())
    return GroupKind.FIFO if is_orderly else GroupKind.NORMAL


# -- the list ----------------------------------------------------------------------------------------


class GroupsQuery(PageQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of the list of groups."""

    kinds: str = ""
    """NORMAL, FIFO, SYSTEM, separated by commas; all if empty."""
    topic: str = ""
    """Only groups with an offset in this topic."""


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """A group in the list."""

    group: str
    kind: GroupKind
    brokers: list[str]
    topics: int
    """Topics in which it has an offset."""
    lag: int | None
    """None if it has no offset."""
    tps: float | None
    """Messages consumed per second; None if unknown."""
    behind_ms: int | None
    """The age of the oldest message that is not consumed; 0 without lag."""
    is_enabled: bool
    """Whether it may consume, on all brokers."""
    members: int | None = None
    """None if unknown. Read for the rows of this page only: it cannot be sorted by."""
    version: str = ""
    """The lowest client version."""
    consume_type: str = ""
    message_model: str = ""


_COLUMNS: Final[dict[str, Callable[[GroupRow], Any]]] = {
    name: attrgetter(name) for name in ("group", "kind", "brokers", "topics", "lag", "tps", "behind_ms")
}


async def _groups(call: Call[GroupsQuery, NoBody]) -> Page[GroupRow]:
    view, query = call.view, call.query
    kinds = {word for word in query.kinds.split(",") if word}
    for kind in sorted(kinds - set(GroupKind)):
        raise bad_input("kinds", f"no kind {kind!r}; there are: {', '.join(GroupKind)}")
    groups, lags, rates = await asyncio.gather(view.groups(), view.lag_table(), view.rates())
    rows = view.derived(
        "group rows",
        (groups, lags.data, rates),
        lambda: [
            _row(group, groups.data.get(group, {}), lags.data, rates.consumed.get(group))
            # A group without settings may have left offsets.
            for group in sorted({*groups.data, *lags.data.by_group})
        ],
    )
    if kinds:
        rows = [row for row in rows if row.kind in kinds]
    if query.topic:
        consuming = set(lags.data.groups_of.get(query.topic, ()))
        rows = [row for row in rows if row.group in consuming]
    page = cut_page(
        rows,
        query,
        name=attrgetter("group"),
        columns=_COLUMNS,
        as_of=min(groups.as_of, lags.as_of),
        problems=dict.fromkeys([*groups.problems, *lags.problems]),
        commands=[mqadmin(call, "consumerProgress")],
    )
    members = await asyncio.gather(*(view.members(row.group) for row in page.items))
    items = [_with_members(row, found) for row, found in zip(page.items, members, strict=True)]
    return msgspec.structs.replace(page, items=items)


def _row(
    group: str, configs: Mapping[str, SubscriptionGroupConfig], lags: LagTable, tps: float | None
) -> GroupRow:
    total = lags.by_group.get(group)
    return GroupRow(
        group=group,
        kind=group_kind(group, configs),
        brokers=sorted(configs),
        topics=len(lags.topics_of.get(group, ())),
        lag=None if total is None else total.lag,
        tps=tps,
        behind_ms=None if total is None else total.behind_ms(lags.as_of),
        is_enabled=all(config.consume_enable for config in configs.values()),
    )


def _with_members(row: GroupRow, found: Members) -> GroupRow:
    connection = found.connection
    versions = [member.version for member in connection.connection_set]
    return msgspec.structs.replace(
        row,
        members=None if found.problem else found.count,
        version=version_desc(min(versions)) if versions else "",
        consume_type=connection.consume_type or "",
        message_model=connection.message_model or "",
    )


# -- one group ---------------------------------------------------------------------------------------


class GroupOnBrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a group on one broker."""

    cluster: str
    broker_name: str
    address: str
    config: SubscriptionGroupConfig


class GroupTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in a topic."""

    topic: str
    lag: int
    last_consumed_ms: int
    behind_ms: int | None
    queues: list[GroupQueueLag]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """An online member."""

    client_id: str
    address: str
    language: str
    version: str


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    group: str
    kind: GroupKind
    brokers: list[GroupOnBrokerView]
    differing: list[str]
    """Settings that are not the same on all brokers."""
    lag: int | None
    tps: float | None
    behind_ms: int | None
    last_consumed_ms: int
    """The store time of its newest consumed message; 0 if unknown."""
    consume_type: str
    message_model: str
    consume_from_where: str
    members: list[GroupMember]
    subscriptions: list[SubscriptionData]
    """As the broker keeps them: the last one received from any member."""
    topics: list[GroupTopic]
    retry_topic: str
    """Empty if it does not exist."""
    dead_letter_topic: str
    """Empty if it does not exist."""
    as_of: int
    problems: list[str]
    commands: list[str]


async def _group(call: Call[NoQuery, NoBody]) -> GroupPage:
    group, view = call.path["group"], call.view
    lags, rates, masters, members, topics, queues = await asyncio.gather(
        view.lag_table(),
        view.rates(),
        call.admin.masters(),
        view.members(group),
        view.topics(),
        view.queue_lags(group),
    )
    configs, problems = await group_settings(view, group)
    places = {master.broker_name: master for master in masters}
    total = lags.data.by_group.get(group)
    connection = members.connection
    return GroupPage(
        group=group,
        kind=group_kind(group, configs),
        brokers=[
            GroupOnBrokerView(
                cluster=places[name].cluster if name in places else "",
                broker_name=name,
                address=places[name].address if name in places else "",
                config=config,
            )
            for name, config in sorted(configs.items())
        ],
        differing=differing_fields(configs.values()) if configs else [],
        lag=None if total is None else total.lag,
        tps=rates.consumed.get(group),
        behind_ms=None if total is None else total.behind_ms(lags.as_of),
        last_consumed_ms=max((queue.last_timestamp for queue in queues), default=0),
        consume_type=connection.consume_type or "",
        message_model=connection.message_model or "",
        consume_from_where=connection.consume_from_where or "",
        members=sorted(
            (
                GroupMember(
                    client_id=one.client_id,
                    address=one.client_addr,
                    language=one.language or "",
                    version=version_desc(one.version),
                )
                for one in connection.connection_set
            ),
            key=attrgetter("client_id"),
        ),
        subscriptions=[
            connection.subscription_table[topic] for topic in sorted(connection.subscription_table)
        ],
        topics=_group_topics(group, lags.data, queues),
        retry_topic=retry_topic(group) if retry_topic(group) in topics.data else "",
        dead_letter_topic=dlq_topic(group) if dlq_topic(group) in topics.data else "",
        as_of=lags.as_of,
        problems=list(
            dict.fromkeys([*problems, *lags.problems, *([members.problem] if members.problem else [])])
        ),
        commands=[
            mqadmin(call, name, "-g", group)
            for name in ("consumerProgress", "consumerConnection", "consumerStatus", "getConsumerConfig")
        ],
    )


async def group_settings(
    view: ClusterView, group: str, *, is_new: bool = False
) -> tuple[dict[str, SubscriptionGroupConfig], list[str]]:
    """The settings of a group by broker name, and what could not be read. ApiError 404 if there is no such
    group; a group that has left offsets exists without settings."""
    reading = await view.groups(is_new=is_new)
    if group not in reading.data and not is_new:
        reading = await view.groups(is_new=True)
    if group in reading.data:
        return reading.data[group], reading.problems
    if group in (await view.lag_table()).data.by_group:
        return {}, reading.problems
    if reading.problems:
        if found := await view.group(group):
            return found, reading.problems
        raise unreadable(f"group {group}", reading.problems)
    hint = suggestion(group, reading.data).removeprefix("; ")
    raise not_found(f"group {group} does not exist", hint)


def _group_topics(group: str, lags: LagTable, queues: list[GroupQueueLag]) -> list[GroupTopic]:
    of_topic: dict[str, list[GroupQueueLag]] = {}
    for queue in queues:
        of_topic.setdefault(queue.topic, []).append(queue)
    return [
        GroupTopic(
            topic=topic,
            lag=sum(max(0, queue.diff) for queue in of_topic[topic]),
            last_consumed_ms=max(queue.last_timestamp for queue in of_topic[topic]),
            behind_ms=lags.by_pair.get((group, topic), LagSum()).behind_ms(lags.as_of),
            queues=of_topic[topic],
        )
        for topic in sorted(of_topic)
    ]


# -- members and clients -----------------------------------------------------------------------------


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a member reports about itself."""

    client_id: str
    address: str
    subscriptions: list[SubscriptionData]
    queues: list[MessageQueue]
    """Assigned to it now."""
    problem: str
    """Why it did not report."""


class MembersReport(msgspec.Struct, frozen=True, kw_only=True):
    """All members of a group, and what is wrong between them."""

    members: list[MemberReport]
    findings: list[Finding]
    problems: list[str]
    commands: list[str]


async def _members(call: Call[NoQuery, NoBody]) -> MembersReport:
    group = call.path["group"]
    health = await examine_group(call.admin, group)
    return MembersReport(
        members=[
            MemberReport(
                client_id=member.connection.client_id,
                address=member.connection.client_addr,
                subscriptions=member.info.subscriptions if member.info else [],
                queues=[one.queue for one in member.info.queues if not one.info.dropped]
                if member.info
                else [],
                problem=member.problem,
            )
            for member in health.members
        ],
        findings=health.findings,
        problems=list(dict.fromkeys(f"{one.where}: {readable(one.reason)}" for one in health.not_checked)),
        commands=[mqadmin(call, "consumerStatus", "-g", group)],
    )


class ClientQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of one client."""

    stacks: bool = False
    """Whether to ask it for the stacks of its threads."""


class ClientPage(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a group, as it reports about itself."""

    client: ClientStatus
    commands: list[str]


async def _client(call: Call[ClientQuery, NoBody]) -> ClientPage:
    group, client_id = call.path["group"], call.path["client"]
    found = await client_status(call.admin, group, client_id, with_stacks=call.query.stacks)
    words = ["-g", group, "-i", client_id] + (["-s"] if call.query.stacks else [])
    return ClientPage(client=found, commands=[mqadmin(call, "consumerStatus", *words)])


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/groups",
        summary="All consumer groups",
        query=GroupsQuery,
        handler=_groups,
        returns=Page[GroupRow],
    ),
    Read(
        path="/groups/{group}",
        summary="One consumer group: lag, members, subscriptions, settings",
        handler=_group,
        returns=GroupPage,
    ),
    Read(
        path="/groups/{group}/members",
        summary="What the members of a group report, and conflicts between them",
        handler=_members,
        returns=MembersReport,
    ),
    Read(
        path="/groups/{group}/clients/{client:path}",
        summary="One member of a group: queues, rates, properties, threads",
        query=ClientQuery,
        handler=_client,
        returns=ClientPage,
    ),
)
