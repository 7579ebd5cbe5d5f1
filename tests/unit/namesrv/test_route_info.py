"""The rules for brokers that come, change and go, without sockets and with a clock of our own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kourou.errors import RequestError
from kourou.namesrv.broker_registration import (
    BROKER_EXPIRY_MS,
    BrokerRegistration,
    RegisterBrokerResult,
    TopicTable,
)
from kourou.namesrv.min_broker_id import MinBrokerIdChange
from kourou.namesrv.route_info import RouteInfo
from kourou.namesrv.route_tables import RouteSettings
from kourou.namesrv.route_views import RouteViews
from kourou.protocol.bodies import DataVersion, QueueData, TopicConfig, TopicQueueMappingInfo
from kourou.protocol.headers import NotifyMinBrokerIdChangeRequestHeader

MASTER = BrokerRegistration(
    cluster_name="C",
    broker_name="broker-a",
    broker_id=0,
    broker_addr="10.0.0.1:10911",
    ha_server_addr="10.0.0.1:10912",
)
SLAVE = replace(MASTER, broker_id=1, broker_addr="10.0.0.2:10911", ha_server_addr="10.0.0.2:10912")
SLAVE_5 = replace(SLAVE, enable_acting_master=False)
ACTING_SLAVE = replace(SLAVE, enable_acting_master=True)
ACTING_MASTER_GROUP = replace(MASTER, enable_acting_master=True)


def table(*names: str, counter: int = 0, state_version: int = 0, **settings: Any) -> TopicTable:
    return TopicTable(
        data_version=DataVersion(timestamp=1, counter=counter, state_version=state_version),
        topics={name: TopicConfig(topic_name=name, **settings) for name in names},
    )


class Cluster:
    """A RouteInfo whose connections are the brokers' addresses; checks its tables after each step."""

    def __init__(self, **settings: bool) -> None:
        self.changes: list[MinBrokerIdChange] = []
        self.routes = RouteInfo(RouteSettings(**settings), on_min_broker_id_changed=self.changes.append)
        self.views = RouteViews(self.routes.tables)

    def register(
        self,
        who: BrokerRegistration,
        topics: TopicTable | None,
        *,
        connection: str | None = None,
        now_ms: int = 0,
    ) -> RegisterBrokerResult:
        connection = connection or who.broker_addr
        result = self.routes.register(who, topics, connection=connection, now_ms=now_ms)
        self.routes.tables.check()
        return result

    def perm(self, topic: str) -> int | None:
        route = self.views.route(topic)
        return None if route is None else route.queue_datas[0].perm

    def addrs(self, topic: str = "T") -> dict[int, str]:
        route = self.views.route(topic)
        return {} if route is None else route.broker_datas[0].broker_addrs


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# -- who brings topics ------------------------------------------------------------------------------


def test_a_master_brings_its_topics(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", read_queue_nums=4, write_queue_nums=8, perm=6))
    route = cluster.views.route("T")
    assert route is not None
    assert route.queue_datas == [
        QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=8, perm=6)
    ]
    assert cluster.addrs() == {0: "10.0.0.1:10911"}
    assert cluster.views.route("unknown") is None


def test_several_brokers_serve_one_topic(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    other = replace(MASTER, broker_name="broker-b", broker_addr="10.0.0.9:10911")
    cluster.register(other, table("T", "V"))
    route = cluster.views.route("T")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["broker-a", "broker-b"]
    assert [data.broker_name for data in route.queue_datas] == ["broker-a", "broker-b"]


def test_a_slave_brings_no_topics_and_learns_its_master(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    result = cluster.register(SLAVE, table("T", "U", "only-on-slave"))
    assert result == RegisterBrokerResult(ha_server_addr="10.0.0.1:10912", master_addr="10.0.0.1:10911")
    assert cluster.views.route("only-on-slave") is None
    assert cluster.addrs() == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_a_lone_slave_of_4x_brings_none(cluster: Cluster) -> None:
    assert cluster.register(SLAVE, table("T", "U")) == RegisterBrokerResult()
    assert cluster.views.route("T") is None


def test_the_lowest_slave_of_5x_brings_topics_while_there_is_no_master(cluster: Cluster) -> None:
    cluster.register(SLAVE_5, table("T", "U"))
    cluster.register(replace(SLAVE_5, broker_id=2, broker_addr="10.0.0.3:10911"), table("T", "U", "V"))
    assert cluster.addrs() == {1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
    assert cluster.perm("T") == 6
    assert cluster.views.route("V") is None


def test_topics_of_an_acting_master_cannot_be_written(cluster: Cluster) -> None:
    cluster.register(ACTING_SLAVE, table("T", "U", perm=6))
    assert cluster.perm("T") == 4


# -- what changes -------------------------------------------------------------------------------------


def test_a_changed_data_version_replaces_settings(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", counter=1, perm=6))
    cluster.register(MASTER, table("T", "U", counter=2, perm=4))
    assert cluster.perm("T") == 4


def test_the_same_data_version_changes_nothing_but_adds_what_is_missing(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", counter=1, perm=6))
    cluster.register(MASTER, table("T", "U", "V", counter=1, perm=4))
    assert (cluster.perm("T"), cluster.perm("V")) == (6, 4)


def test_an_increment_adds_one_topic(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", counter=1))
    cluster.register(MASTER, table("V", counter=2))
    assert set(cluster.views.all_topics().topic_list) == {"T", "U", "V"}


def test_topics_no_longer_registered_stay(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", counter=1))
    cluster.register(MASTER, table("U", "V", counter=2))
    assert cluster.views.route("T") is not None


def test_delete_topic_with_broker_registration() -> None:
    cluster = Cluster(delete_topic_with_broker_registration=True)
    cluster.register(MASTER, table("T", "U", counter=1))
    cluster.register(MASTER, table("U", "V", counter=2))
    assert set(cluster.views.all_topics().topic_list) == {"U", "V"}


def test_a_single_topic_of_a_broker_just_come_deletes_nothing() -> None:
    cluster = Cluster(delete_topic_with_broker_registration=True)
    cluster.register(SLAVE_5, table("T", "U"))
    cluster.register(MASTER, table("V"))
    assert set(cluster.views.all_topics().topic_list) == {"T", "U", "V"}


def test_an_increment_before_the_full_table_is_served_but_its_version_not_taken(cluster: Cluster) -> None:
    cluster.register(MASTER, table("V", counter=7))
    assert cluster.views.route("V") is not None
    broker = cluster.routes.find("broker-a", "10.0.0.1:10911")
    assert broker is not None and broker.known_version is None
    cluster.register(MASTER, table("W", counter=8))
    assert broker.known_version is None
    cluster.register(MASTER, table("T", "V", "W", counter=8))
    assert broker.known_version == DataVersion(timestamp=1, counter=8)
    cluster.register(MASTER, table("X", counter=9))
    assert broker.known_version == DataVersion(timestamp=1, counter=9)


def test_a_wiped_permission_stays_wiped_on_a_broker_of_one_topic(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T"))
    cluster.routes.wipe_write_perm("broker-a")
    cluster.register(MASTER, table("T"))
    assert cluster.perm("T") == 4


# -- repeated registrations ---------------------------------------------------------------------------


def digest_of(who: BrokerRegistration, digest: int = 1) -> BrokerRegistration:
    return replace(who, digest=digest)


def test_a_repeated_registration_is_known_and_refreshes(cluster: Cluster) -> None:
    who = digest_of(MASTER)
    assert not cluster.routes.has_applied(who)
    cluster.register(who, table("T", "U"), now_ms=0)
    assert cluster.routes.has_applied(who)
    assert not cluster.routes.has_applied(digest_of(MASTER, 2))
    assert not cluster.routes.has_applied(replace(who, broker_addr="10.0.0.7:10911"))
    assert not cluster.routes.has_applied(replace(who, broker_id=1))
    assert not cluster.routes.has_applied(replace(who, enable_acting_master=True))
    assert not cluster.routes.has_applied(replace(who, digest=None))
    cluster.register(who, None, now_ms=BROKER_EXPIRY_MS)
    assert cluster.routes.scan_dead(BROKER_EXPIRY_MS + 1) == []


def test_a_deleted_topic_comes_back_with_the_next_registration(cluster: Cluster) -> None:
    who = digest_of(MASTER)
    cluster.register(who, table("T", "U"))
    cluster.routes.delete_topic("T")
    assert cluster.views.route("T") is None
    assert not cluster.routes.has_applied(who)
    cluster.register(who, table("T", "U"))
    assert cluster.views.route("T") is not None


def test_a_slave_that_becomes_the_lowest_has_to_register_in_full(cluster: Cluster) -> None:
    lower, higher = digest_of(SLAVE_5), digest_of(replace(SLAVE_5, broker_id=2, broker_addr="10.0.0.3:10911"))
    cluster.register(lower, table("T", "U"))
    cluster.register(higher, table("T", "U", "V"))
    assert cluster.routes.has_applied(higher)
    cluster.routes.unregister("broker-a", lower.broker_addr)
    assert not cluster.routes.has_applied(higher)
    cluster.register(higher, table("T", "U", "V"))
    assert cluster.views.route("V") is not None


def test_changed_settings_make_registrations_count_again(cluster: Cluster) -> None:
    who = digest_of(MASTER)
    cluster.register(who, table("T", "U"))
    cluster.routes.tables.change_settings(RouteSettings(delete_topic_with_broker_registration=True))
    assert not cluster.routes.has_applied(who)


# -- ids and addresses --------------------------------------------------------------------------------


def test_a_slave_that_becomes_master_leaves_its_old_id(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    cluster.register(SLAVE, table("T", "U"))
    cluster.routes.unregister("broker-a", MASTER.broker_addr)
    cluster.register(replace(SLAVE, broker_id=0), table("T", "U"))
    assert cluster.addrs() == {0: "10.0.0.2:10911"}


def test_a_new_address_takes_over_an_id(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    cluster.register(replace(MASTER, broker_addr="10.0.0.5:10911"), table("T", "U"))
    assert cluster.addrs() == {0: "10.0.0.5:10911"}
    assert cluster.routes.connection_closed(MASTER.broker_addr) == []
    assert cluster.addrs() == {0: "10.0.0.5:10911"}


@pytest.mark.parametrize(("newcomer", "holder"), [(4, "10.0.0.1:10911"), (5, "10.0.0.5:10911")])
def test_a_higher_state_version_keeps_the_id(cluster: Cluster, newcomer: int, holder: str) -> None:
    cluster.register(MASTER, table("T", "U", state_version=5))
    other = replace(MASTER, broker_addr="10.0.0.5:10911")
    assert cluster.register(other, table("T", "U", state_version=newcomer)) == RegisterBrokerResult()
    assert cluster.addrs() == {0: holder}


def test_two_broker_names_may_claim_one_address(cluster: Cluster) -> None:
    """A common mistake with containers; each stays known as long as its own connection."""
    cluster.register(MASTER, table("T", "U"), connection="first")
    cluster.register(replace(MASTER, broker_name="broker-b"), table("T", "U"), connection="second")
    assert len(cluster.routes.connection_closed("second")) == 1
    assert cluster.addrs() == {0: "10.0.0.1:10911"}


def test_the_lowest_id_names_the_cluster(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    cluster.register(replace(SLAVE, cluster_name="other"), table("T", "U"))
    assert list(cluster.routes.tables.clusters) == ["C"]
    cluster.register(replace(MASTER, cluster_name="D"), table("T", "U"))
    assert list(cluster.routes.tables.clusters) == ["D"]
    assert set(cluster.views.topics_of_cluster("D").topic_list) == {"T", "U"}


# -- the end of a broker ------------------------------------------------------------------------------


def test_unregister_forgets_everything(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    assert cluster.routes.unregister("broker-a", MASTER.broker_addr)
    assert not cluster.routes.unregister("broker-a", MASTER.broker_addr)
    tables = cluster.routes.tables
    assert (tables.topics, tables.groups, tables.clusters, tables.connections) == ({}, {}, {}, {})


def test_topics_stay_while_a_slave_remains(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    cluster.register(SLAVE, table("T", "U"))
    cluster.routes.unregister("broker-a", MASTER.broker_addr)
    assert (cluster.addrs(), cluster.perm("T")) == ({1: "10.0.0.2:10911"}, 6)


def test_with_acting_master_the_topics_lose_their_write_permission(cluster: Cluster) -> None:
    cluster.register(ACTING_MASTER_GROUP, table("T", "U"))
    cluster.register(ACTING_SLAVE, table("T", "U"))
    cluster.routes.unregister("broker-a", MASTER.broker_addr)
    assert (cluster.addrs(), cluster.perm("T")) == ({1: "10.0.0.2:10911"}, 4)


def test_silence_expires_a_broker(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"), now_ms=1_000)
    assert cluster.routes.scan_dead(1_000 + BROKER_EXPIRY_MS) == []
    dead = cluster.routes.scan_dead(1_001 + BROKER_EXPIRY_MS)
    assert [broker.group.name for broker in dead] == ["broker-a"]
    assert cluster.views.route("T") is None


def test_a_broker_may_choose_its_own_timeout(cluster: Cluster) -> None:
    cluster.register(replace(MASTER, timeout_ms=3_000), table("T", "U"), now_ms=0)
    assert cluster.routes.scan_dead(3_000) == []
    assert len(cluster.routes.scan_dead(3_001)) == 1


def test_a_sign_of_life_keeps_a_broker(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"), now_ms=0)
    assert cluster.routes.record_heartbeat("broker-a", MASTER.broker_addr, now_ms=5_000) is not None
    assert cluster.routes.record_heartbeat("broker-a", "10.0.0.7:10911", now_ms=9_000) is None
    assert cluster.routes.record_heartbeat("broker-z", MASTER.broker_addr, now_ms=9_000) is None
    assert cluster.routes.scan_dead(BROKER_EXPIRY_MS + 5_000) == []


def test_a_closed_connection_takes_all_its_brokers(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"), connection="shared")
    cluster.register(replace(MASTER, broker_name="broker-b"), table("T", "U"), connection="shared")
    assert len(cluster.routes.connection_closed("shared")) == 2
    assert cluster.views.route("T") is None


def test_the_end_of_an_old_connection_does_not_touch_a_broker_that_came_back(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"), connection="old")
    cluster.register(MASTER, table("T", "U"), connection="new")
    assert not cluster.routes.has_brokers("old")
    assert cluster.routes.connection_closed("old") == []
    assert cluster.views.route("T") is not None
    assert cluster.routes.has_brokers("new")


# -- the lowest id changes ----------------------------------------------------------------------------


def notified(cluster: Cluster) -> list[tuple[tuple[str, ...], NotifyMinBrokerIdChangeRequestHeader]]:
    return [(change.broker_addrs, change.header) for change in cluster.changes]


def test_slaves_are_notified_when_their_master_comes() -> None:
    cluster = Cluster(notify_min_broker_id_changed=True)
    cluster.register(ACTING_SLAVE, table("T", "U"))
    assert cluster.changes == []
    cluster.register(ACTING_MASTER_GROUP, table("T", "U"))
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=0,
        broker_name="broker-a",
        min_broker_addr="10.0.0.1:10911",
        ha_broker_addr="10.0.0.1:10912",
    )
    assert notified(cluster) == [(("10.0.0.2:10911",), header)]


def test_slaves_are_notified_when_their_master_goes() -> None:
    cluster = Cluster(notify_min_broker_id_changed=True)
    cluster.register(ACTING_MASTER_GROUP, table("T", "U"))
    cluster.register(ACTING_SLAVE, table("T", "U"))
    cluster.routes.connection_closed(MASTER.broker_addr)
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=1,
        broker_name="broker-a",
        min_broker_addr="10.0.0.2:10911",
        offline_broker_addr="10.0.0.1:10911",
    )
    assert notified(cluster) == [(("10.0.0.2:10911",), header)]


@pytest.mark.parametrize("settings", [{}, {"notify_min_broker_id_changed": True}])
def test_no_broker_is_notified_without_the_setting_or_without_acting_master(
    settings: dict[str, bool],
) -> None:
    cluster = Cluster(**settings)
    acting = not settings
    cluster.register(replace(MASTER, enable_acting_master=acting), table("T", "U"))
    cluster.register(replace(SLAVE, enable_acting_master=acting), table("T", "U"))
    cluster.routes.unregister("broker-a", MASTER.broker_addr)
    assert cluster.changes == []


# -- administration -----------------------------------------------------------------------------------


def test_wipe_and_add_write_permission(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", perm=7))
    assert cluster.routes.wipe_write_perm("broker-a") == 2
    assert cluster.perm("T") == 5
    cluster.register(MASTER, table("T", "U", perm=7))
    assert cluster.perm("T") == 5, "the same data version must not undo it"
    assert cluster.routes.add_write_perm("broker-a") == 2
    assert cluster.perm("T") == 6
    assert cluster.routes.wipe_write_perm("broker-z") == cluster.routes.add_write_perm("broker-z") == 0


def test_a_changed_table_restores_a_wiped_permission(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U", counter=1))
    cluster.routes.wipe_write_perm("broker-a")
    cluster.register(MASTER, table("T", "U", counter=2))
    assert cluster.perm("T") == 6


def test_delete_topic_in_one_cluster(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    cluster.register(
        replace(MASTER, cluster_name="D", broker_name="broker-d", broker_addr="10.0.0.8:10911"),
        table("T", "U"),
    )
    cluster.routes.delete_topic("T", "D")
    cluster.routes.delete_topic("T", "unknown cluster")
    cluster.routes.delete_topic("unknown topic")
    route = cluster.views.route("T")
    assert route is not None and [data.broker_name for data in route.queue_datas] == ["broker-a"]
    cluster.routes.delete_topic("T")
    assert cluster.views.route("T") is None


def test_register_topic(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    queues = QueueData(broker_name="broker-a", read_queue_nums=3, write_queue_nums=3, perm=4)
    cluster.routes.register_topic("V", [queues])
    route = cluster.views.route("V")
    assert route is not None and route.queue_datas == [queues]


def test_register_topic_of_an_unknown_broker_is_refused_whole(cluster: Cluster) -> None:
    cluster.register(MASTER, table("T", "U"))
    with pytest.raises(RequestError, match="broker-z has to register first"):
        cluster.routes.register_topic(
            "V", [QueueData(broker_name="broker-a"), QueueData(broker_name="broker-z")]
        )
    assert cluster.views.route("V") is None


def test_a_static_mapping_goes_with_its_broker(cluster: Cluster) -> None:
    mapping = TopicQueueMappingInfo(topic="T", bname="broker-a", total_queues=4, curr_id_map={0: 0})
    mapped = replace(table("T", "U"), mappings={"T": mapping, "never served": mapping})
    cluster.register(MASTER, mapped)
    other = replace(MASTER, broker_name="broker-b", broker_addr="10.0.0.9:10911")
    cluster.register(other, table("T", "U"))
    route = cluster.views.route("T")
    assert route is not None and route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    cluster.routes.unregister("broker-a", MASTER.broker_addr)
    route = cluster.views.route("T")
    assert route is not None and not route.topic_queue_mapping_by_broker
