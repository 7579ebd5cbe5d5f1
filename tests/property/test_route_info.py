"""RouteInfo against a model that remembers plainly and computes every answer anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kourou.errors import RequestError
from kourou.namesrv.broker_registration import BrokerRegistration, TopicTable
from kourou.namesrv.route_info import RouteInfo
from kourou.namesrv.route_json import JsonForm
from kourou.namesrv.route_tables import RouteSettings
from kourou.namesrv.route_views import RouteViews
from kourou.protocol import fastjson
from kourou.protocol.bodies import DataVersion, QueueData, TopicConfig

TOPICS = ["T", "U", "V", "rmq_sys_SYNC_BROKER_MEMBER_a"]
BROKERS = ["a", "b"]
ADDRS = ["h1:1", "h2:2", "h3:3"]
CONNECTIONS = ["c1", "c2", "c3"]
CLUSTERS = ["C", "D"]

Queues = tuple[int, int, int, int]  # read, write, perm, flags

queues = st.tuples(st.integers(1, 2), st.integers(1, 2), st.sampled_from([4, 6, 7]), st.integers(0, 3))
tables = st.dictionaries(st.sampled_from(TOPICS), queues, max_size=4)


@dataclass
class Member:
    """A broker in the model."""

    addr: str
    connection: str
    last_ms: int
    timeout_ms: int
    version: tuple[int, int] | None = None
    complete: bool = False


@dataclass
class Group:
    """A broker name in the model."""

    cluster: str
    acting: bool = False
    members: dict[int, Member] = field(default_factory=dict)
    topics: dict[str, Queues] = field(default_factory=dict)

    @property
    def lowest(self) -> int:
        return min(self.members, default=0)


class Model:
    """The rules of the fact sheet, written down once more, slowly."""

    def __init__(self) -> None:
        self.settings = RouteSettings()
        self.groups: dict[str, Group] = {}
        self.reported: list[tuple[str, int, tuple[str, ...]]] = []

    def register(self, who: BrokerRegistration, table: TopicTable, connection: str, now_ms: int) -> None:
        group = self.groups.setdefault(who.broker_name, Group(who.cluster_name))
        if who.broker_id <= group.lowest:
            group.cluster = who.cluster_name
        group.acting = bool(who.enable_acting_master)
        comes_first = who.broker_id < group.lowest
        for other in [
            i for i, m in group.members.items() if m.addr == who.broker_addr and i != who.broker_id
        ]:
            del group.members[other]
        version = (table.data_version.counter, table.data_version.state_version)
        member = group.members.get(who.broker_id)
        if member is not None and member.addr != who.broker_addr:
            if member.version is not None and member.version[1] > version[1]:
                return
            member = None
        if member is None:
            member = group.members[who.broker_id] = Member(who.broker_addr, connection, 0, 0)
        member.connection, member.last_ms, member.timeout_ms = connection, now_ms, who.timeout_ms
        if who.broker_id == 0 or (who.enable_acting_master is not None and who.broker_id == group.lowest):
            self._bring(group, who, member, table, version)
        member.version = version
        member.complete |= len(table.topics) != 1
        if comes_first and self.settings.notify_min_broker_id_changed:
            others = tuple(m.addr for i, m in sorted(group.members.items()) if i != group.lowest)
            self.reported.append((who.broker_name, group.lowest, others or (who.broker_addr,)))

    def _bring(
        self,
        group: Group,
        who: BrokerRegistration,
        member: Member,
        table: TopicTable,
        version: tuple[int, int],
    ) -> None:
        is_increment = not member.complete and len(table.topics) == 1
        if self.settings.delete_topic_with_broker_registration and not is_increment:
            group.topics = {t: q for t, q in group.topics.items() if t in table.topics}
        mask = ~2 if who.broker_id != 0 and group.acting else -1
        for topic, config in table.topics.items():
            if member.version != version or topic not in group.topics:
                group.topics[topic] = (
                    config.read_queue_nums,
                    config.write_queue_nums,
                    config.perm & mask,
                    config.topic_sys_flag,
                )

    def remove(self, name: str, broker_id: int) -> None:
        group = self.groups[name]
        was_lowest = broker_id == group.lowest
        gone = group.members.pop(broker_id)
        if not group.members:
            del self.groups[name]
            return
        if group.acting and 0 not in group.members:
            group.topics = {t: (r, w, p & ~2, f) for t, (r, w, p, f) in group.topics.items()}
        if group.acting and was_lowest and self.settings.notify_min_broker_id_changed:
            left = tuple(m.addr for _, m in sorted(group.members.items()))
            assert gone.addr not in left
            self.reported.append((name, group.lowest, left))

    def route(self, topic: str, form: JsonForm) -> Any:
        """The route as parsed JSON with sorted lists, or None."""
        groups = {name: group for name, group in sorted(self.groups.items()) if topic in group.topics}
        if not groups:
            return None
        return {
            "brokerDatas": [self._broker_data(name, group, topic, form) for name, group in groups.items()],
            "filterServerTable": {},
            "queueDatas": [_queue_data(name, group.topics[topic]) for name, group in groups.items()],
        }

    def _broker_data(self, name: str, group: Group, topic: str, form: JsonForm) -> dict[str, Any]:
        addrs = {broker_id: member.addr for broker_id, member in group.members.items()}
        acts = self.settings.support_acting_master and not topic.startswith("rmq_sys_SYNC_BROKER_MEMBER_")
        if acts and group.acting and 0 not in addrs and not group.topics[topic][2] & 2:
            addrs[0] = addrs.pop(min(addrs))
        data: dict[str, Any] = {
            "brokerAddrs": {str(broker_id): addr for broker_id, addr in addrs.items()},
            "brokerName": name,
            "cluster": group.cluster,
        }
        return data if form.is_v4 else {**data, "enableActingMaster": group.acting}


def _queue_data(name: str, settings: Queues) -> dict[str, Any]:
    read, write, perm, flags = settings
    return {
        "brokerName": name,
        "perm": perm,
        "readQueueNums": read,
        "topicSysFlag": flags,
        "writeQueueNums": write,
    }


class RouteInfoMachine(RuleBasedStateMachine):
    """Everything that can happen to a name server's tables, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.model = Model()
        self.reported: list[tuple[str, int, tuple[str, ...]]] = []
        self.routes = RouteInfo(
            on_min_broker_id_changed=lambda change: self.reported.append(
                (str(change.header.broker_name), int(change.header.min_broker_id or 0), change.broker_addrs)
            )
        )
        self.views = RouteViews(self.routes.tables)

    @initialize(first=st.booleans())
    def change_at_start(self, first: bool) -> None:
        if first:
            self.change_settings(RouteSettings(support_acting_master=True, notify_min_broker_id_changed=True))

    @rule(new=st.builds(RouteSettings, st.booleans(), st.booleans(), st.booleans()))
    def change_settings(self, new: RouteSettings) -> None:
        self.model.settings = new
        self.routes.tables.change_settings(new)

    @rule(
        name=st.sampled_from(BROKERS),
        broker_id=st.integers(0, 2),
        addr=st.sampled_from(ADDRS),
        cluster=st.sampled_from(CLUSTERS),
        connection=st.sampled_from(CONNECTIONS),
        acting=st.sampled_from([None, False, True]),
        timeout_ms=st.sampled_from([1_000, 120_000]),
        topics=tables,
        version=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    )
    def register(
        self,
        name: str,
        broker_id: int,
        addr: str,
        cluster: str,
        connection: str,
        acting: bool | None,
        timeout_ms: int,
        topics: dict[str, Queues],
        version: tuple[int, int],
    ) -> None:
        who = BrokerRegistration(
            cluster_name=cluster,
            broker_name=name,
            broker_id=broker_id,
            broker_addr=addr,
            enable_acting_master=acting,
            timeout_ms=timeout_ms,
            digest=hash((version, tuple(topics.items()))),
        )
        table = TopicTable(
            data_version=DataVersion(counter=version[0], state_version=version[1]),
            topics={
                topic: TopicConfig(topic, r, w, p, topic_sys_flag=f) for topic, (r, w, p, f) in topics.items()
            },
        )
        self.last = (who, table, connection)
        self._register(*self.last)

    def _register(self, who: BrokerRegistration, table: TopicTable, connection: str) -> None:
        # The model always reads the table; the real one may do without when it has applied it.
        self.model.register(who, table, connection, self.now_ms)
        skimmed = None if self.routes.has_applied(who) else table
        self.routes.register(who, skimmed, connection=connection, now_ms=self.now_ms)

    @rule()
    def register_again(self) -> None:
        if hasattr(self, "last"):
            self._register(*self.last)

    @rule(name=st.sampled_from(BROKERS), addr=st.sampled_from(ADDRS))
    def unregister(self, name: str, addr: str) -> None:
        group = self.model.groups.get(name)
        ids = [i for i, m in group.members.items() if m.addr == addr] if group else []
        for broker_id in ids:
            self.model.remove(name, broker_id)
        assert self.routes.unregister(name, addr) == bool(ids)

    @rule(connection=st.sampled_from(CONNECTIONS))
    def close(self, connection: str) -> None:
        removed = self.routes.connection_closed(connection)
        gone = [(broker.group.name, broker.broker_id) for broker in removed]
        assert sorted(gone) == sorted(self._members(lambda member: member.connection == connection))
        for name, broker_id in gone:
            self.model.remove(name, broker_id)

    @rule(passed_ms=st.sampled_from([500, 1_500, 121_000]))
    def scan(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        dead = [(broker.group.name, broker.broker_id) for broker in self.routes.scan_dead(self.now_ms)]
        expired = self._members(lambda member: member.last_ms + member.timeout_ms < self.now_ms)
        assert sorted(dead) == sorted(expired)
        for name, broker_id in dead:
            self.model.remove(name, broker_id)

    def _members(self, matches: Any) -> list[tuple[str, int]]:
        return [
            (name, broker_id)
            for name, group in self.model.groups.items()
            for broker_id, member in group.members.items()
            if matches(member)
        ]

    @rule(name=st.sampled_from(BROKERS), addr=st.sampled_from(ADDRS))
    def heartbeat(self, name: str, addr: str) -> None:
        self.routes.record_heartbeat(name, addr, now_ms=self.now_ms)
        if name in self.model.groups:
            for member in self.model.groups[name].members.values():
                if member.addr == addr:
                    member.last_ms = self.now_ms

    @rule(name=st.sampled_from(BROKERS), wipe=st.booleans())
    def change_perm(self, name: str, wipe: bool) -> None:
        group = self.model.groups.get(name)
        if group is not None:
            group.topics = {
                topic: (r, w, p & ~2 if wipe else 6, f) for topic, (r, w, p, f) in group.topics.items()
            }
        count = self.routes.wipe_write_perm(name) if wipe else self.routes.add_write_perm(name)
        assert count == (len(group.topics) if group else 0)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "", *CLUSTERS]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        for group in self.model.groups.values():
            if not cluster or group.cluster == cluster:
                group.topics.pop(topic, None)
        self.routes.delete_topic(topic, cluster)

    @rule(topic=st.sampled_from(TOPICS), name=st.sampled_from(BROKERS), new=queues)
    def register_topic(self, topic: str, name: str, new: Queues) -> None:
        read, write, perm, flags = new
        data = QueueData(name, read, write, perm, flags)
        try:
            self.routes.register_topic(topic, [data])
        except RequestError:
            assert name not in self.model.groups
        else:
            self.model.groups[name].topics[topic] = new

    @invariant()
    def tables_agree(self) -> None:
        self.routes.tables.check()

    @invariant()
    def routes_are_the_models(self) -> None:
        for form in (JsonForm.LEGACY_V4, JsonForm.STANDARD_V5):
            for topic in TOPICS:
                body = self.views.route_body(topic, form)
                shown = None if body is None else _in_order(fastjson.parse(body))
                assert shown == self.model.route(topic, form)

    @invariant()
    def lists_are_the_models(self) -> None:
        topics = {topic for group in self.model.groups.values() for topic in group.topics}
        assert set(self.views.all_topics().topic_list) == topics
        for cluster in CLUSTERS:
            of_cluster = {t for g in self.model.groups.values() if g.cluster == cluster for t in g.topics}
            assert set(self.views.topics_of_cluster(cluster).topic_list) == of_cluster

    @invariant()
    def cluster_info_is_the_models(self) -> None:
        info = fastjson.parse(self.views.cluster_info_body(JsonForm.LEGACY_V5))
        shown = {
            name: (data["cluster"], data["brokerAddrs"]) for name, data in info["brokerAddrTable"].items()
        }
        assert shown == {
            name: (
                group.cluster,
                {str(broker_id): member.addr for broker_id, member in group.members.items()},
            )
            for name, group in self.model.groups.items()
        }

    @invariant()
    def the_same_changes_are_told(self) -> None:
        assert self.reported == self.model.reported


def _in_order(route: dict[str, Any]) -> dict[str, Any]:
    for name in ("brokerDatas", "queueDatas"):
        route[name].sort(key=lambda data: data["brokerName"])
    return route


TestRouteInfo = RouteInfoMachine.TestCase
TestRouteInfo.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
