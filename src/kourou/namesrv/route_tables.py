"""RouteTables: topics, broker groups, clusters and connections, kept consistent with each other.

Every edit here leaves all tables agreeing and no stale response in the RouteCache; `check` states what that
means. Not here: when to make which edit, by RocketMQ's rules (route_info.py).

The RouteCache is bounded by bytes: the route of a thousand brokers takes 200 KB, and a thousand such topics
requested in four forms must not fill the memory. A route that is not cached is joined from prepared parts
(route_views.py), which takes a tenth of a millisecond for a thousand brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

from kourou.namesrv.broker_group import BrokerGroup, LiveBroker
from kourou.namesrv.route_json import JsonForm
from kourou.namesrv.topic_queues import TopicQueues, TopicSettings

# Room for some 100,000 routes of a few brokers each, or 160 of a thousand brokers.
DEFAULT_LIMIT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """What of the configuration changes routes; each is off by default, as in RocketMQ."""

    support_acting_master: bool = False  # supportActingMaster
    notify_min_broker_id_changed: bool = False  # notifyMinBrokerIdChanged
    delete_topic_with_broker_registration: bool = False  # deleteTopicWithBrokerRegistration


class RouteTables:
    """The name server's memory. All of it comes from brokers and is gone with the process."""

    __slots__ = ("cache", "cluster_infos", "clusters", "connections", "groups", "settings", "topics")

    def __init__(self, settings: RouteSettings | None = None) -> None:
        self.settings = settings or RouteSettings()
        self.topics: dict[str, TopicQueues] = {}
        self.groups: dict[str, BrokerGroup] = {}
        # Cluster name to its broker names; a dict, because a set would shuffle them.
        self.clusters: dict[str, dict[str, None]] = {}
        self.connections: dict[Hashable, set[LiveBroker]] = {}
        self.cache = RouteCache()
        # Encoded ClusterInfo; each 5.x broker requests it every few seconds.
        self.cluster_infos: dict[JsonForm, bytes] = {}

    def change_settings(self, settings: RouteSettings) -> None:
        """Go by other settings from now on."""
        self.settings = settings
        self.cache.clear()
        for group in self.groups.values():
            group.forget_applied()

    # -- groups -----------------------------------------------------------------------------

    def add_group(self, name: str, cluster: str) -> BrokerGroup:
        """A new, still empty group in its cluster."""
        group = self.groups[name] = BrokerGroup(name, cluster)
        self.clusters.setdefault(cluster, {})[name] = None
        self.group_changed(group)
        return group

    def move_group(self, group: BrokerGroup, cluster: str) -> None:
        """Put a group into another cluster."""
        self._leave_cluster(group)
        group.cluster = cluster
        self.clusters.setdefault(cluster, {})[group.name] = None
        self.group_changed(group)

    def remove_group(self, group: BrokerGroup) -> None:
        """Forget a group without brokers, and its queues in every topic."""
        for topic in group.topics:
            self._take_out(topic, group)
        self.cache.drop_all([topic.name for topic in group.topics])
        group.topics.clear()
        del self.groups[group.name]
        self._leave_cluster(group)
        self.group_changed(group)

    def _leave_cluster(self, group: BrokerGroup) -> None:
        names = self.clusters[group.cluster]
        del names[group.name]
        if not names:
            del self.clusters[group.cluster]

    def group_changed(self, group: BrokerGroup) -> None:
        """Forget every answer that shows this group."""
        group.changed()
        self.cluster_infos.clear()
        self.cache.drop_all([topic.name for topic in group.topics])

    # -- brokers ----------------------------------------------------------------------------

    def add_broker(self, broker: LiveBroker) -> None:
        """Put a broker into its group, replacing an earlier one with its id."""
        replaced = broker.group.brokers.get(broker.broker_id)
        if replaced is not None:
            self._leave_connection(replaced)
        broker.group.brokers[broker.broker_id] = broker
        self.connections.setdefault(broker.connection, set()).add(broker)
        self.group_changed(broker.group)

    def remove_broker(self, broker: LiveBroker) -> None:
        """Take a broker out of its group; the group stays, even if empty."""
        del broker.group.brokers[broker.broker_id]
        self._leave_connection(broker)
        self.group_changed(broker.group)

    def move_broker(self, broker: LiveBroker, connection: Hashable) -> None:
        """A broker has come back over another connection; the old one no longer speaks for it."""
        if connection != broker.connection:
            self._leave_connection(broker)
            broker.connection = connection
            self.connections.setdefault(connection, set()).add(broker)

    def _leave_connection(self, broker: LiveBroker) -> None:
        brokers = self.connections[broker.connection]
        brokers.discard(broker)
        if not brokers:
            del self.connections[broker.connection]

    # -- queues -----------------------------------------------------------------------------

    def put_topics(self, group: BrokerGroup, topics: Mapping[str, TopicSettings], perms: int = -1) -> None:
        """Let a group serve topics with these settings, of their permissions only the bits in `perms`."""
        # A full table comes through here: one loop, so that a known topic costs no call of ours.
        entries, known, served, changed = group.entries, self.topics, group.topics, []
        for name, each in topics.items():
            key = (each.read_queue_nums, each.write_queue_nums, each.perm & perms, each.topic_sys_flag)
            entry = entries.get(key) or group.new_entry(key)
            topic = known.get(name)
            if topic is None:
                topic = known[name] = TopicQueues(name)
            elif topic.queues.get(group) is entry:
                continue
            topic.queues[group] = entry
            served.add(topic)
            changed.append(name)
        self.cache.drop_all(changed)

    def remove_queues(self, topic: TopicQueues, group: BrokerGroup) -> None:
        """Remove a group from a topic; a topic without groups is removed."""
        self._take_out(topic, group)
        group.topics.discard(topic)
        self.cache.drop(topic.name)

    def _take_out(self, topic: TopicQueues, group: BrokerGroup) -> None:
        del topic.queues[group]
        if topic.mappings:
            topic.mappings.pop(group.name, None)
        if not topic.queues:
            del self.topics[topic.name]

    # -- invariants -------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that the tables agree; for tests, it walks everything."""
        for name, topic in self.topics.items():
            assert topic.name == name and topic.queues, f"topic {name} is served by no broker"
            for group, entry in topic.queues.items():
                assert self.groups.get(group.name) is group and topic in group.topics
                assert entry.queue_data.broker_name == group.name
        for name, group in self.groups.items():
            assert group.name == name and group.brokers, f"group {name} has no broker"
            assert name in self.clusters[group.cluster]
            assert all(group in topic.queues for topic in group.topics)
            for broker_id, broker in group.brokers.items():
                assert broker.group is group and broker.broker_id == broker_id
                assert broker in self.connections[broker.connection]
            addrs = [broker.broker_addr for broker in group.brokers.values()]
            assert len(addrs) == len(set(addrs)), f"an address of {name} has two ids"
        assert all(names for names in self.clusters.values())
        assert sum(map(len, self.clusters.values())) == len(self.groups)
        held = sum(map(len, self.connections.values()))
        assert held == sum(len(group.brokers) for group in self.groups.values())


class RouteCache:
    """Answers by topic and form; the oldest go first when the limit is reached."""

    __slots__ = ("_bodies", "_limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bodies: dict[str, dict[JsonForm, bytes]] = {}
        self.size_bytes = 0

    def get(self, topic: str, form: JsonForm) -> bytes | None:
        """The kept answer, or None."""
        bodies = self._bodies.get(topic)
        return None if bodies is None else bodies.get(form)

    def put(self, topic: str, form: JsonForm, body: bytes) -> None:
        """Keep an answer; others may have to go."""
        bodies = self._bodies.setdefault(topic, {})
        self.size_bytes += len(body) - len(bodies.get(form, b""))
        bodies[form] = body
        while self.size_bytes > self._limit_bytes:
            self.drop(next(iter(self._bodies)))

    def drop(self, topic: str) -> None:
        """Forget the answers for a topic, because its route has changed."""
        bodies = self._bodies.pop(topic, None)
        if bodies is not None:
            self.size_bytes -= sum(map(len, bodies.values()))

    def drop_all(self, topics: Collection[str]) -> None:
        """Forget the answers for many topics."""
        for topic in self._bodies.keys() & topics if len(topics) > 1 else topics:
            self.drop(topic)

    def clear(self) -> None:
        self._bodies.clear()
        self.size_bytes = 0
