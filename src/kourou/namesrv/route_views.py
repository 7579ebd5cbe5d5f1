"""RouteViews: responses from the tables: routes, clusters, lists of topics.

Routes and cluster information come as encoded bodies, kept until something changes. The rest are typed
objects: tools request them, not every client every 30 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kourou.namesrv.broker_group import BrokerGroup
from kourou.namesrv.route_json import JsonForm, cluster_info_json, route_json
from kourou.namesrv.route_tables import RouteTables
from kourou.namesrv.topic_queues import QueueEntry, TopicQueues
from kourou.protocol.bodies import (
    BrokerMemberGroup,
    TopicList,
    TopicRouteData,
    decode_body,
)
from kourou.protocol.codes import TopicSysFlag

# Brokers coordinate through these; they have to see who is really there.
_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class RouteViews:
    """Read access to the route tables."""

    def __init__(self, tables: RouteTables) -> None:
        self._tables = tables

    # -- routes -----------------------------------------------------------------------------

    def route_body(
        self,
        topic_name: str,
        form: JsonForm,
        *,
        order_topic_conf: str | None = None,
        zone_name: str | None = None,
    ) -> bytes | None:
        """The TopicRouteData of a topic, encoded; None when no broker serves it.

        With `zone_name` only the brokers of that zone are shown, and those without a master.
        """
        topic = self._tables.topics.get(topic_name)
        if topic is None:
            return None
        if order_topic_conf is not None or zone_name is not None:
            return self._encode(topic, form, order_topic_conf, zone_name)
        body = self._tables.cache.get(topic_name, form)
        if body is None:
            body = self._encode(topic, form)
            self._tables.cache.put(topic.name, form, body)
        return body

    def route(self, topic_name: str) -> TopicRouteData | None:
        """The route of a topic as an object, for those who embed a name server."""
        body = self.route_body(topic_name, JsonForm.STANDARD_V5)
        return None if body is None else decode_body(body, TopicRouteData)

    def _encode(
        self,
        topic: TopicQueues,
        form: JsonForm,
        order_topic_conf: str | None = None,
        zone_name: str | None = None,
    ) -> bytes:
        queues = topic.queues
        if zone_name is not None:
            queues = {group: entry for group, entry in queues.items() if _is_near(group, zone_name)}
        return route_json(
            self._broker_datas(topic.name, queues, form),
            [entry.json for entry in queues.values()],
            filter_servers=_filter_servers(queues),
            order_topic_conf=order_topic_conf,
            mappings=topic.mappings,
            form=form,
        )

    def _broker_datas(
        self, topic_name: str, queues: dict[BrokerGroup, QueueEntry], form: JsonForm
    ) -> list[bytes]:
        if self._tables.settings.support_acting_master and not topic_name.startswith(_MEMBER_TOPIC_PREFIX):
            return [group.json(form, _is_acting(group, entry)) for group, entry in queues.items()]
        # `group.json(form)` without the call, which a thousand brokers in a route make felt.
        place = form * 2
        return [group.pieces[place] or group.json(form) for group in queues]

    # -- brokers ----------------------------------------------------------------------------

    def cluster_info_body(self, form: JsonForm) -> bytes:
        """The ClusterInfo of everything, encoded."""
        body = self._tables.cluster_infos.get(form)
        if body is None:
            brokers = {name: group.json(form) for name, group in self._tables.groups.items()}
            body = self._tables.cluster_infos[form] = cluster_info_json(brokers, self._tables.clusters)
        return body

    def broker_member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The live brokers of one name; of an unknown one, none."""
        group = self._tables.groups.get(broker_name)
        addrs = {} if group is None else group.broker_addrs
        return BrokerMemberGroup(cluster=cluster, broker_name=broker_name, broker_addrs=addrs)

    # -- lists of topics --------------------------------------------------------------------

    def all_topics(self) -> TopicList:
        """Every topic that a broker serves."""
        return TopicList(topic_list=list(self._tables.topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Every topic that a broker of this cluster serves."""
        groups = [self._tables.groups[name] for name in self._tables.clusters.get(cluster, ())]
        return TopicList(topic_list=sorted({topic.name for group in groups for topic in group.topics}))

    def system_topics(self) -> TopicList:
        """Names that are topics by being a cluster or a broker, and the address of some broker."""
        names: dict[str, None] = {}
        for cluster, brokers in self._tables.clusters.items():
            names.update({cluster: None, **brokers})
        first = next(iter(self._tables.groups.values()), None)
        addr = None if first is None else first.broker_addrs[first.min_broker_id]
        return TopicList(topic_list=list(names), broker_addr=addr)

    def unit_topics(self) -> TopicList:
        """Topics of a unit."""
        return self._flagged(lambda flag: bool(flag & TopicSysFlag.UNIT))

    def unit_sub_topics(self) -> TopicList:
        """Topics with subscribers in units."""
        return self._flagged(lambda flag: bool(flag & TopicSysFlag.UNIT_SUB))

    def unit_sub_ununit_topics(self) -> TopicList:
        """Topics with subscribers in units that are not of a unit themselves."""
        return self._flagged(lambda flag: flag & 3 == TopicSysFlag.UNIT_SUB)

    def _flagged(self, matches: Callable[[int], bool]) -> TopicList:
        topics = self._tables.topics.values()
        return TopicList(topic_list=[topic.name for topic in topics if matches(topic.topic_sys_flag)])


def _is_acting(group: BrokerGroup, entry: QueueEntry) -> bool:
    """Whether the lowest slave is presented as the master, so that clients keep reading there."""
    return group.enable_acting_master and not group.has_master and not entry.is_writeable


def _is_near(group: BrokerGroup, zone_name: str) -> bool:
    return not group.has_master or (group.zone_name or "").lower() == zone_name.lower()


def _filter_servers(groups: Iterable[BrokerGroup]) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for group in groups:
        if group.filter_servers:
            table.update(group.filter_servers)
    return table
