"""RouteInfo: RocketMQ's rules for brokers that register, change and leave.

Topics come from the master (id 0) and, for a 5.x broker, from the lowest live id, so that consumers find the
messages of a group without a master. With slave-acting-master such a slave's topics are not writeable. Topics
of other slaves are ignored.

Differences from Apache's name server, each to keep a broker from being partially known:
- A broker name is in one cluster, the one named by its lowest id.
- An id that is new and registers exactly one topic is accepted (4.9 does, 5.x refuses it, so
  that a broker with one topic can never register). Such a message may be an increment that
  overtook the full table; so its data version is not recorded, the broker gets "changed" (322) as the
  response, and sends its full table.
- A broker whose id another address has taken is forgotten at once, not when it times out.
- What a static topic maps to a broker goes with that broker.

Plain synchronous code; the time comes in as `now_ms`, connections are tokens of any kind.
Not here: reading (route_views.py), the consistency of the tables (route_tables.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec.structs import replace

from kourou.errors import RequestError
from kourou.namesrv import min_broker_id
from kourou.namesrv.broker_group import BrokerGroup, LiveBroker
from kourou.namesrv.broker_registration import (
    BrokerRegistration,
    RegisterBrokerResult,
    TopicTable,
)
from kourou.namesrv.min_broker_id import MinBrokerIdChange
from kourou.namesrv.route_tables import RouteSettings, RouteTables
from kourou.namesrv.topic_queues import TopicSettings
from kourou.protocol.bodies import QueueData, TopicQueueMappingInfo
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import PermName, ResponseCode

_log = logging.getLogger(__name__)

_ALL_PERMS = -1
_NO_WRITE = ~int(PermName.WRITE)
_READ_WRITE = int(PermName.READ | PermName.WRITE)


def _ignore(change: MinBrokerIdChange) -> None:
    return None


class RouteInfo:
    """Applies what brokers say, and what time and lost connections say of them, to the tables."""

    def __init__(
        self,
        settings: RouteSettings | None = None,
        *,
        on_min_broker_id_changed: Callable[[MinBrokerIdChange], None] = _ignore,
    ) -> None:
        self.tables = RouteTables(settings)
        self._notify = on_min_broker_id_changed

    # -- registration -----------------------------------------------------------------------

    def has_applied(self, registration: BrokerRegistration) -> bool:
        """True when this very registration was the broker's last and all of it still holds.

        Its table need not be read again then: brokers repeat it every 30 s.
        """
        group = self.tables.groups.get(registration.broker_name)
        broker = group.brokers.get(registration.broker_id) if group else None
        if group is None or broker is None or broker.broker_addr != registration.broker_addr:
            return False
        return registration.digest is not None and broker.applied == _application(registration, group)

    def register(
        self,
        registration: BrokerRegistration,
        table: TopicTable | None,
        *,
        connection: Hashable,
        now_ms: int,
    ) -> RegisterBrokerResult:
        """A broker registers. `table` may be None only when `has_applied` says so."""
        group = self._group_of(registration)
        comes_first = registration.broker_id < group.min_broker_id
        self._leave_other_id(group, registration)
        if table is not None and _is_outdated(group, registration, table):
            return RegisterBrokerResult()
        broker = self._enter(group, registration, connection, now_ms)
        if table is not None:
            self._apply(broker, registration, table)
        if comes_first and self.tables.settings.notify_min_broker_id_changed:
            self._notify(min_broker_id.broker_joined(group))
        return _result(broker)

    def _group_of(self, registration: BrokerRegistration) -> BrokerGroup:
        group = self.tables.groups.get(registration.broker_name)
        if group is None:
            group = self.tables.add_group(registration.broker_name, registration.cluster_name)
        elif group.cluster != registration.cluster_name and registration.broker_id <= group.min_broker_id:
            _log.warning(
                "broker %s moves from %s to %s", group.name, group.cluster, registration.cluster_name
            )
            self.tables.move_group(group, registration.cluster_name)
        flags = (bool(registration.enable_acting_master), registration.zone_name)
        if flags != (group.enable_acting_master, group.zone_name):
            group.enable_acting_master, group.zone_name = flags
            self.tables.group_changed(group)
        return group

    def _leave_other_id(self, group: BrokerGroup, registration: BrokerRegistration) -> None:
        # A slave that became master comes with its old address: it must not stay under both ids.
        known = group.broker_at(registration.broker_addr)
        if known is not None and known.broker_id != registration.broker_id:
            self.tables.remove_broker(known)

    def _enter(
        self, group: BrokerGroup, registration: BrokerRegistration, connection: Hashable, now_ms: int
    ) -> LiveBroker:
        broker = group.brokers.get(registration.broker_id)
        if broker is not None and broker.broker_addr == registration.broker_addr:
            self.tables.move_broker(broker, connection)
            broker.last_update_ms = now_ms
            broker.timeout_ms = registration.timeout_ms
            broker.ha_server_addr = registration.ha_server_addr
            return broker
        broker = LiveBroker(
            group=group,
            broker_id=registration.broker_id,
            broker_addr=registration.broker_addr,
            ha_server_addr=registration.ha_server_addr,
            last_update_ms=now_ms,
            timeout_ms=registration.timeout_ms,
            connection=connection,
        )
        self.tables.add_broker(broker)
        _log.info("broker %s id %d registered at %s", group.name, broker.broker_id, broker.broker_addr)
        return broker

    def _apply(self, broker: LiveBroker, registration: BrokerRegistration, table: TopicTable) -> None:
        if broker.filter_servers != tuple(table.filter_servers):
            broker.filter_servers = tuple(table.filter_servers)
            self.tables.group_changed(broker.group)
        if _brings_topics(registration, broker.group):
            self._apply_topics(broker, table)
        broker.data_version = table.data_version
        broker.is_complete = broker.is_complete or not table.may_be_increment
        broker.applied = _application(registration, broker.group)

    def _apply_topics(self, broker: LiveBroker, table: TopicTable) -> None:
        group = broker.group
        if self.tables.settings.delete_topic_with_broker_registration and not table.mappings:
            # One topic of a broker without its full table is no reason to delete the others.
            if broker.is_complete or not table.may_be_increment:
                self._delete_others(group, table.topics)
        if broker.data_version != table.data_version:
            self._put_topics(group, broker, table.topics)
            self._put_mappings(group, table.mappings)
        else:
            # The same version brings back what is missing, but does not undo a wiped permission.
            known = {topic.name for topic in group.topics}
            self._put_topics(group, broker, {t: c for t, c in table.topics.items() if t not in known})

    def _put_topics(
        self, group: BrokerGroup, broker: LiveBroker, topics: Mapping[str, TopicSettings]
    ) -> None:
        acts = broker.broker_id != MASTER_ID and group.enable_acting_master
        self.tables.put_topics(group, topics, _NO_WRITE if acts else _ALL_PERMS)

    def _put_mappings(self, group: BrokerGroup, mappings: Mapping[str, TopicQueueMappingInfo]) -> None:
        for name, mapping in mappings.items():
            topic = self.tables.topics.get(name)
            if topic is not None and group in topic.queues:
                topic.mappings[group.name] = mapping
                self.tables.cache.drop(name)

    def _delete_others(self, group: BrokerGroup, topics: Mapping[str, TopicSettings]) -> None:
        for topic in [topic for topic in group.topics if topic.name not in topics]:
            _log.info("topic %s is no longer registered by broker %s", topic.name, group.name)
            self.tables.remove_queues(topic, group)

    # -- signs of life, and their end -------------------------------------------------------

    def find(self, broker_name: str, broker_addr: str) -> LiveBroker | None:
        """The live broker of this name at this address."""
        group = self.tables.groups.get(broker_name)
        return None if group is None else group.broker_at(broker_addr)

    def record_heartbeat(self, broker_name: str, broker_addr: str, *, now_ms: int) -> LiveBroker | None:
        """A broker gave a sign of life other than registering; None when it is not known."""
        broker = self.find(broker_name, broker_addr)
        if broker is not None:
            broker.last_update_ms = now_ms
        return broker

    def unregister(self, broker_name: str, broker_addr: str) -> bool:
        """A broker unregisters; False if it was unknown."""
        broker = self.find(broker_name, broker_addr)
        if broker is None:
            return False
        self._remove(broker, "it unregistered")
        return True

    def connection_closed(self, connection: Hashable) -> list[LiveBroker]:
        """The brokers that spoke through a connection are gone with it."""
        brokers = list(self.tables.connections.get(connection, ()))
        for broker in brokers:
            self._remove(broker, "its connection closed")
        return brokers

    def scan_dead(self, now_ms: int) -> list[LiveBroker]:
        """Remove the brokers that were silent for too long."""
        groups = self.tables.groups.values()
        dead = [broker for group in groups for broker in group.brokers.values() if broker.is_dead(now_ms)]
        for broker in dead:
            self._remove(broker, f"it was silent for more than {broker.timeout_ms} ms")
        return dead

    def has_brokers(self, connection: Hashable) -> bool:
        """True while some live broker speaks through this connection."""
        return connection in self.tables.connections

    def _remove(self, broker: LiveBroker, reason: str) -> None:
        group = broker.group
        _log.info(
            "broker %s id %d at %s removed: %s", group.name, broker.broker_id, broker.broker_addr, reason
        )
        was_first = broker.broker_id == group.min_broker_id
        self.tables.remove_broker(broker)
        if not group.brokers:
            self.tables.remove_group(group)
        elif group.enable_acting_master:
            if not group.has_master:
                self._wipe(group)
            if was_first and self.tables.settings.notify_min_broker_id_changed:
                self._notify(min_broker_id.broker_left(group, broker.broker_addr))

    # -- administration ---------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of a broker; returns the number of its topics."""
        group = self.tables.groups.get(broker_name)
        return 0 if group is None else self._wipe(group)

    def _wipe(self, group: BrokerGroup) -> int:
        self.tables.put_topics(group, _queue_datas(group), _NO_WRITE)
        return len(group.topics)

    def add_write_perm(self, broker_name: str) -> int:
        """Let its topics be read and written again; the number of its topics."""
        group = self.tables.groups.get(broker_name)
        if group is None:
            return 0
        both = {name: replace(data, perm=_READ_WRITE) for name, data in _queue_datas(group).items()}
        self.tables.put_topics(group, both)
        return len(both)

    def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> None:
        """A broker registers one topic alone (217); refused unless all its brokers are known."""
        unknown = sorted({data.broker_name for data in queue_datas} - self.tables.groups.keys())
        if unknown:
            remark = f"topic {topic} refused: broker {', '.join(unknown)} has to register first"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        for queue_data in queue_datas:
            group = self.tables.groups[queue_data.broker_name]
            self.tables.put_topics(group, {topic: queue_data})
            group.forget_applied()

    def delete_topic(self, topic_name: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster. Brokers that still have it bring it back."""
        topic = self.tables.topics.get(topic_name)
        if topic is None:
            return
        for group in list(topic.queues):
            if not cluster or group.cluster == cluster:
                self.tables.remove_queues(topic, group)
                group.forget_applied()


def _queue_datas(group: BrokerGroup) -> dict[str, QueueData]:
    return {topic.name: topic.queues[group].queue_data for topic in group.topics}


def _brings_topics(registration: BrokerRegistration, group: BrokerGroup) -> bool:
    if registration.broker_id == MASTER_ID:
        return True
    # Asked before the broker has entered the group as well as after.
    is_lowest = registration.broker_id <= min(group.brokers, default=registration.broker_id)
    return is_lowest and registration.enable_acting_master is not None


def _application(
    registration: BrokerRegistration, group: BrokerGroup
) -> tuple[int, bool, bool | None] | None:
    if registration.digest is None:
        return None
    return registration.digest, _brings_topics(registration, group), registration.enable_acting_master


def _is_outdated(group: BrokerGroup, registration: BrokerRegistration, table: TopicTable) -> bool:
    """True when another address holds this id by a later election (5.x controller)."""
    holder = group.brokers.get(registration.broker_id)
    if holder is None or holder.broker_addr == registration.broker_addr or holder.data_version is None:
        return False
    if holder.data_version.state_version <= table.data_version.state_version:
        return False
    _log.warning(
        "broker %s id %d at %s ignored: %s holds the id with a higher state version",
        *(group.name, registration.broker_id, registration.broker_addr, holder.broker_addr),
    )
    return True


def _result(broker: LiveBroker) -> RegisterBrokerResult:
    master = broker.group.brokers.get(MASTER_ID)
    if master is None or master is broker:
        return RegisterBrokerResult()
    return RegisterBrokerResult(ha_server_addr=master.ha_server_addr, master_addr=master.broker_addr)
