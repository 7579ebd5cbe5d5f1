"""ClusterSnapshot: brokers, routes, groups and their members, read once and shared by all checks.

Whatever does not answer is recorded in `not_checked`, and the rest continues.
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kourou.admin.brokers import broker_runtime
from kourou.admin.connections import consumer_connection
from kourou.admin.consume_stats import GroupProgress, consume_stats
from kourou.admin.doctor.findings import NotChecked
from kourou.admin.each import map_each
from kourou.admin.groups import group_names
from kourou.admin.replication import SlaveLag
from kourou.admin.running_info import RunningInfo, running_info
from kourou.admin.session import Admin, BrokerAddress, command_line
from kourou.admin.targets import brokers_of
from kourou.admin.topics import TopicStatus, topic_names, topic_status
from kourou.clock import wall_ms
from kourou.errors import AccessDeniedError, ConfigError, KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import Connection, ConsumerConnection, TopicRouteData
from kourou.protocol.codes import PermName, ResponseCode
from kourou.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    reply_topic,
)

_NOT_A_TROUBLE: Final = frozenset(
    {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.BROADCAST_CONSUMPTION, ResponseCode.TOPIC_NOT_EXIST}
)


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker with its state, and the times of request and response on this machine's clock."""

    place: BrokerAddress
    runtime: dict[str, str]
    requested_ms: int
    answered_ms: int
    problem: str = ""
    is_refused: bool = False
    """It has responded: access control refuses who asks."""

    @property
    def where(self) -> str:
        return f"broker {self.place.broker_name} ({self.place.address})"


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a consumer group; `info` is None if it did not respond, `problem` says why."""

    connection: Connection
    info: RunningInfo | None
    problem: str = ""

    @property
    def where(self) -> str:
        return f"{self.connection.client_id} at {self.connection.client_addr}"


@dataclass(frozen=True, slots=True)
class GroupView:
    """A consumer group: online members and progress; None if unknown."""

    group: str
    connection: ConsumerConnection
    members: list[Member]
    progress: GroupProgress | None

    @property
    def is_online(self) -> bool:
        return bool(self.members)

    def youngest_ms(self, now_ms: int) -> int:
        """The uptime of its youngest member, as far as reported."""
        return min((member.info.runs_for_ms(now_ms) for member in self.members if member.info), default=0)


@dataclass(slots=True)
class ClusterSnapshot:
    """The data that checks use."""

    admin: Admin
    watch_s: float
    namesrvs: tuple[str, ...] = ()
    """All configured name servers, whichever `admin` uses."""
    brokers: list[BrokerView] = field(default_factory=list)
    routes: dict[str, TopicRouteData] = field(default_factory=dict)
    groups: list[GroupView] = field(default_factory=list)
    later_groups: dict[str, GroupProgress] = field(default_factory=dict)
    """The progress of the groups in the second snapshot."""
    dead_letters: dict[str, TopicStatus] = field(default_factory=dict)
    later_dead_letters: dict[str, TopicStatus] = field(default_factory=dict)
    slaves: list[SlaveLag] = field(default_factory=list)
    """How far slaves are behind; read by the check of replication."""
    not_checked: list[NotChecked] = field(default_factory=list)
    half_pending_ms: int = 300_000
    """Transactions that are open for longer are reported."""

    @property
    def masters(self) -> list[BrokerView]:
        return [broker for broker in self.brokers if broker.place.is_master]

    @property
    def living_masters(self) -> list[BrokerView]:
        return [broker for broker in self.masters if not broker.problem]

    @property
    def user_topics(self) -> list[str]:
        """Topics created by users, sorted."""
        own = {broker.place.broker_name for broker in self.brokers}
        clusters = {broker.place.cluster for broker in self.brokers}
        own |= clusters | {reply_topic(cluster) for cluster in clusters}
        return sorted(
            topic
            for topic in self.routes
            if topic not in own
            and not (is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic))
        )

    def readable_queues(self, topic: str) -> set[tuple[str, str, int]]:
        """(topic, broker name, queue id) of all queues that are assigned to consumers."""
        route = self.routes.get(topic)
        return {
            (topic, data.broker_name, queue_id)
            for data in (route.queue_datas if route is not None else ())
            if data.perm & PermName.READ
            for queue_id in range(data.read_queue_nums)
        }

    def command(self, command: str, *words: str) -> str:
        """An mqadmin command line to copy and run, with the name servers of this snapshot."""
        return command_line(self.namesrvs or self.admin.namesrvs, command, *words)

    def show_group(self, group: str) -> str:
        """A command line that shows a group, its members and its lag."""
        namesrvs = ";".join(self.namesrvs or self.admin.namesrvs)
        return shlex.join(["kourou", "group", "show", group, "-n", namesrvs])

    def clusters_of(self, topic: str) -> list[str]:
        """The clusters that have a topic, sorted."""
        route = self.routes.get(topic)
        names = {data.broker_name for data in route.queue_datas} if route is not None else set()
        return sorted({broker.place.cluster for broker in self.brokers if broker.place.broker_name in names})

    def queue_nums(self, topic: str) -> tuple[int, int]:
        """The number of queues of a topic on the broker that has most: to read, to write."""
        route = self.routes.get(topic)
        found = route.queue_datas if route is not None else []
        return (
            max((data.read_queue_nums for data in found), default=0),
            max((data.write_queue_nums for data in found), default=0),
        )

    def skip(self, check: str, where: str, error: BaseException | str) -> None:
        """Record that something could not be checked."""
        reason = str(error) or type(error).__name__
        self.not_checked.append(NotChecked(check, where, reason.partition("\n")[0]))


async def take_snapshot(admin: Admin, cluster: str | None, watch_s: float) -> ClusterSnapshot:
    """The first snapshot. NoNameServerError if no name server responds, ConfigError without such a
    cluster."""
    snapshot = ClusterSnapshot(admin, watch_s)
    places = await (brokers_of(admin, cluster) if cluster is not None else admin.brokers())
    if not places:
        raise ConfigError("no broker is registered at the name server; start one, or give another with -n")
    snapshot.brokers = list(await asyncio.gather(*(_broker(admin, place) for place in places)))
    await _read_routes(snapshot)
    groups = await group_names(admin, snapshot.routes)
    snapshot.groups = [view for view in await map_each(groups, lambda group: _group(snapshot, group)) if view]
    snapshot.dead_letters = await _dead_letters(snapshot)
    return snapshot


async def retake_snapshot(snapshot: ClusterSnapshot) -> None:
    """The second snapshot: current progress of groups and dead letters."""
    groups = [view.group for view in snapshot.groups]
    found = await map_each(groups, lambda group: _progress(snapshot, group))
    snapshot.later_groups = {progress.group: progress for progress in found if progress is not None}
    snapshot.later_dead_letters = await _dead_letters(snapshot)


async def _broker(admin: Admin, place: BrokerAddress) -> BrokerView:
    requested_ms = wall_ms()
    try:
        runtime = await broker_runtime(admin, place.address)
    except KourouError as error:
        problem = str(error) or type(error).__name__
        is_refused = isinstance(error, AccessDeniedError)
        return BrokerView(place, {}, requested_ms, wall_ms(), problem, is_refused)
    return BrokerView(place, runtime, requested_ms, wall_ms())


async def _read_routes(snapshot: ClusterSnapshot) -> None:
    names = {broker.place.broker_name for broker in snapshot.brokers}
    # Thousands of topics have few different routes: each is kept once.
    kept: dict[bytes, TopicRouteData] = {}

    async def ask(topic: str) -> None:
        try:
            route = await snapshot.admin.route(topic)
        except ResponseError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                snapshot.skip("routes", f"topic {topic}", error)
            return
        if any(data.broker_name in names for data in route.queue_datas):
            snapshot.routes[topic] = kept.setdefault(msgspec.json.encode(route), route)

    await map_each(await topic_names(snapshot.admin), ask)
    snapshot.routes = dict(sorted(snapshot.routes.items()))


async def _group(snapshot: ClusterSnapshot, group: str) -> GroupView | None:
    connection = ConsumerConnection()
    try:
        connection = await consumer_connection(snapshot.admin, group)
    except (RemotingError, ResponseError) as error:
        if not (isinstance(error, ResponseError) and error.code in _NOT_A_TROUBLE):
            snapshot.skip("groups", f"group {group}", error)
            return None
    members = [
        await read_member(snapshot.admin, group, found)
        for found in sorted(connection.connection_set, key=lambda found: (found.client_id, found.client_addr))
    ]
    return GroupView(group, connection, members, await _progress(snapshot, group))


async def read_member(admin: Admin, group: str, connection: Connection) -> Member:
    """One member with its report, or why there is none."""
    try:
        return Member(connection, RunningInfo.of(await running_info(admin, group, connection.client_id)))
    except KourouError as error:
        return Member(connection, None, str(error))


async def _progress(snapshot: ClusterSnapshot, group: str) -> GroupProgress | None:
    try:
        return await consume_stats(snapshot.admin, group)
    except (RemotingError, ResponseError) as error:
        if not (isinstance(error, ResponseError) and error.code in _NOT_A_TROUBLE):
            snapshot.skip("lag", f"group {group}", error)
        return None


async def _dead_letters(snapshot: ClusterSnapshot) -> dict[str, TopicStatus]:
    async def ask(topic: str) -> TopicStatus | None:
        try:
            return await topic_status(snapshot.admin, topic)
        except (RemotingError, ResponseError) as error:
            snapshot.skip("dead letters", topic, error)
            return None

    found = await map_each([topic for topic in snapshot.routes if is_dlq_topic(topic)], ask)
    return {status.topic: status for status in found if status is not None}
