"""Responses to callers: bytes of each form, cached and not, and the lists of topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.namesrv.broker_registration import TopicTable
from kourou.namesrv.route_info import RouteInfo
from kourou.namesrv.route_json import JsonForm, cluster_form, route_form
from kourou.namesrv.route_tables import RouteSettings
from kourou.namesrv.route_views import RouteViews
from kourou.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
    decode_body,
    encode_body,
)
from tests.unit.namesrv.test_route_info import ACTING_SLAVE, MASTER, SLAVE, Cluster, table

BROKER_B = replace(MASTER, broker_name="broker-b", broker_addr="10.0.0.9:10911")


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.register(MASTER, table("T", "U", read_queue_nums=4, write_queue_nums=4))
    cluster.register(SLAVE, table("T", "U"))
    return cluster


@pytest.mark.parametrize(
    ("version", "standard_only", "form"),
    [
        (0, False, JsonForm.LEGACY_V4),
        (317, False, JsonForm.LEGACY_V4),
        (400, False, JsonForm.LEGACY_V4),
        (317, True, JsonForm.STANDARD_V4),
        (401, False, JsonForm.STANDARD_V4),
        (411, False, JsonForm.STANDARD_V4),
        (413, False, JsonForm.STANDARD_V5),
        (513, True, JsonForm.STANDARD_V5),
    ],
)
def test_form_by_version_of_the_caller(version: int, standard_only: bool, form: JsonForm) -> None:
    assert route_form(version, standard_only) is form


def test_cluster_form() -> None:
    assert (cluster_form(407), cluster_form(513)) == (JsonForm.LEGACY_V4, JsonForm.LEGACY_V5)


def test_legacy_route_is_apaches_byte_for_byte(cluster: Cluster) -> None:
    assert cluster.views.route_body("T", JsonForm.LEGACY_V4) == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"C"}],"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_standard_route_is_apaches_byte_for_byte(cluster: Cluster) -> None:
    assert cluster.views.route_body("T", JsonForm.STANDARD_V5) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"C","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


@pytest.mark.parametrize("form", list(JsonForm))
def test_a_route_put_together_equals_one_encoded_whole(form: JsonForm) -> None:
    routes = RouteInfo()
    mapping = TopicQueueMappingInfo(topic="T", bname="broker-ä", total_queues=2, curr_id_map={0: 1})
    full = TopicTable(
        topics=table("T", "U", topic_sys_flag=1).topics,
        mappings={"T": mapping},
        filter_servers=["10.0.0.1:3333"],
    )
    who = replace(MASTER, broker_name="broker-ä", zone_name="z", enable_acting_master=True)
    routes.register(who, full, connection=1, now_ms=0)
    data = BrokerData(
        cluster="C",
        broker_name="broker-ä",
        broker_addrs={0: MASTER.broker_addr},
        enable_acting_master=True,
        zone_name="z",
    )
    queues = QueueData(
        broker_name="broker-ä", read_queue_nums=16, write_queue_nums=16, perm=6, topic_sys_flag=1
    )
    whole = TopicRouteData(
        order_topic_conf='broker-ä:"4"',
        queue_datas=[queues],
        broker_datas=[data],
        filter_server_table={MASTER.broker_addr: ["10.0.0.1:3333"]},
        topic_queue_mapping_by_broker={"broker-ä": mapping},
    )
    body = RouteViews(routes.tables).route_body("T", form, order_topic_conf='broker-ä:"4"')
    assert body == whole.encode(standard_json=form.is_standard, v4=form.is_v4)


def test_a_route_is_encoded_once_until_it_changes(cluster: Cluster) -> None:
    first = cluster.views.route_body("T", JsonForm.STANDARD_V5)
    other = cluster.views.route_body("U", JsonForm.STANDARD_V5)
    assert cluster.views.route_body("T", JsonForm.STANDARD_V5) is first
    cluster.routes.register_topic("T", [QueueData(broker_name="broker-a", perm=4)])
    assert cluster.views.route_body("T", JsonForm.STANDARD_V5) != first
    assert cluster.views.route_body("U", JsonForm.STANDARD_V5) is other


def test_order_configuration_is_shown_and_not_kept(cluster: Cluster) -> None:
    body = cluster.views.route_body("T", JsonForm.STANDARD_V5, order_topic_conf="broker-a:4")
    assert body is not None
    assert decode_body(body, TopicRouteData).order_topic_conf == "broker-a:4"
    route = cluster.views.route("T")
    assert route is not None and route.order_topic_conf is None


def test_zone_mode_shows_the_brokers_of_the_zone_and_those_without_master() -> None:
    cluster = Cluster()
    cluster.register(replace(MASTER, zone_name="Near"), table("T", "U"))
    cluster.register(replace(BROKER_B, zone_name="far"), table("T", "U"))
    lone = replace(BROKER_B, broker_name="broker-c", broker_id=1, enable_acting_master=False)
    cluster.register(replace(lone, zone_name="far"), table("T", "U"))
    body = cluster.views.route_body("T", JsonForm.STANDARD_V5, zone_name="near")
    assert body is not None
    route = decode_body(body, TopicRouteData)
    assert [data.broker_name for data in route.broker_datas] == ["broker-a", "broker-c"]
    assert [data.broker_name for data in route.queue_datas] == ["broker-a", "broker-c"]


# -- acting master ------------------------------------------------------------------------------------


def acting(**settings: bool) -> Cluster:
    cluster = Cluster(**settings)
    cluster.register(ACTING_SLAVE, table("T", "rmq_sys_SYNC_BROKER_MEMBER_broker-a", perm=6))
    higher = replace(ACTING_SLAVE, broker_id=2, broker_addr="10.0.0.3:10911")
    cluster.register(higher, table("T", "U"))
    return cluster


def test_the_lowest_slave_is_shown_as_master() -> None:
    assert acting(support_acting_master=True).addrs() == {0: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
    assert acting().addrs() == {1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}


def test_brokers_see_who_is_really_there() -> None:
    cluster = acting(support_acting_master=True)
    assert min(cluster.addrs("rmq_sys_SYNC_BROKER_MEMBER_broker-a")) == 1


def test_a_writeable_topic_has_no_acting_master() -> None:
    cluster = acting(support_acting_master=True)
    cluster.routes.add_write_perm("broker-a")
    assert min(cluster.addrs()) == 1


def test_the_setting_counts_at_once() -> None:
    cluster = acting()
    assert min(cluster.addrs()) == 1
    cluster.routes.tables.change_settings(RouteSettings(support_acting_master=True))
    assert min(cluster.addrs()) == 0


# -- brokers ------------------------------------------------------------------------------------------


def test_cluster_info(cluster: Cluster) -> None:
    cluster.register(replace(BROKER_B, cluster_name="D"), table("T", "U"))
    info = ClusterInfo(
        broker_addr_table={
            "broker-a": BrokerData(
                cluster="C",
                broker_name="broker-a",
                broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
            ),
            "broker-b": BrokerData(cluster="D", broker_name="broker-b", broker_addrs={0: "10.0.0.9:10911"}),
        },
        cluster_addr_table={"C": ["broker-a"], "D": ["broker-b"]},
    )
    for form in (JsonForm.LEGACY_V4, JsonForm.LEGACY_V5):
        body = cluster.views.cluster_info_body(form)
        assert body == encode_body(info, v4=form.is_v4, bare_int_keys=True)
        assert cluster.views.cluster_info_body(form) is body


def test_cluster_info_of_nothing() -> None:
    assert Cluster().views.cluster_info_body(JsonForm.LEGACY_V5) == (
        b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )


def test_cluster_info_follows_every_change(cluster: Cluster) -> None:
    def names() -> list[str]:
        info = decode_body(cluster.views.cluster_info_body(JsonForm.LEGACY_V5), ClusterInfo)
        return [f"{name}{list(data.broker_addrs)}" for name, data in info.broker_addr_table.items()]

    assert names() == ["broker-a[0, 1]"]
    cluster.register(BROKER_B, table("T", "U"))
    assert names() == ["broker-a[0, 1]", "broker-b[0]"]
    cluster.routes.unregister("broker-a", SLAVE.broker_addr)
    cluster.routes.unregister("broker-b", BROKER_B.broker_addr)
    assert names() == ["broker-a[0]"]


def test_broker_member_group(cluster: Cluster) -> None:
    assert cluster.views.broker_member_group("C", "broker-a") == BrokerMemberGroup(
        cluster="C", broker_name="broker-a", broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    )
    assert cluster.views.broker_member_group("C", "nobody").broker_addrs == {}


# -- lists of topics ----------------------------------------------------------------------------------


def test_topics_of_a_cluster(cluster: Cluster) -> None:
    cluster.register(replace(BROKER_B, cluster_name="D"), table("T", "only-in-d"))
    assert cluster.views.topics_of_cluster("C").topic_list == ["T", "U"]
    assert cluster.views.topics_of_cluster("D").topic_list == ["T", "only-in-d"]
    assert cluster.views.topics_of_cluster("unknown").topic_list == []
    assert cluster.views.all_topics().topic_list == ["T", "U", "only-in-d"]


def test_system_topics(cluster: Cluster) -> None:
    system = cluster.views.system_topics()
    assert (system.topic_list, system.broker_addr) == (["C", "broker-a"], "10.0.0.1:10911")
    nothing = Cluster().views.system_topics()
    assert (nothing.topic_list, nothing.broker_addr) == ([], None)


def test_unit_topics() -> None:
    cluster = Cluster()
    for counter, (name, flag) in enumerate({"plain": 0, "unit": 1, "sub": 2, "both": 3}.items()):
        cluster.register(MASTER, table(name, counter=counter, topic_sys_flag=flag))
    assert cluster.views.unit_topics().topic_list == ["unit", "both"]
    assert cluster.views.unit_sub_topics().topic_list == ["sub", "both"]
    assert cluster.views.unit_sub_ununit_topics().topic_list == ["sub"]
