"""Each request of the name server, through a real connection on a memory transport.

Answers that Apache's recordings show are pinned by test_golden_namesrv.py; here are the others.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from kourou.config import NamesrvConfig, load_namesrv_config
from kourou.protocol.bodies import (
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    QueueData,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from tests.unit.namesrv.memory_namesrv import MemoryNamesrv, Peer, topics_body

SLAVE: dict[str, Any] = {"broker_id": 1, "broker_addr": "10.0.0.2:10911", "ha_server_addr": "10.0.0.2:10912"}
BROKER_A: dict[str, Any] = {"cluster_name": "C", "broker_name": "broker-a", "broker_addr": "10.0.0.1:10911"}


@pytest.fixture
async def namesrv() -> MemoryNamesrv:
    return MemoryNamesrv()


@pytest.fixture
async def peer(namesrv: MemoryNamesrv) -> Peer:
    return namesrv.connect()


def problem(answer: RemotingCommand) -> tuple[int, str | None]:
    return answer.code, answer.remark


# -- registration -------------------------------------------------------------------------------------


async def test_every_request_of_the_fact_sheet_has_a_processor(namesrv: MemoryNamesrv) -> None:
    codes = [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219]
    codes += [224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904]
    assert sorted(namesrv.dispatch._processors) == codes


async def test_a_slave_learns_its_master(peer: Peer) -> None:
    assert (await peer.register()).ext_fields == {}
    answer = await peer.register(**SLAVE)
    assert answer.ext_fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


async def test_a_body_damaged_on_its_way_is_refused(peer: Peer) -> None:
    answer = await peer.register(body_crc32=4711)
    assert problem(answer) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    good = zlib.crc32(topics_body("T", "U").encode()) & 0x7FFFFFFF
    assert (await peer.register(body_crc32=good)).code == 0


@pytest.mark.parametrize("version", [407, 479])
async def test_a_compressed_body(peer: Peer, version: int) -> None:
    header = RegisterBrokerRequestHeader(**BROKER_A, ha_server_addr="", broker_id=0, compressed=True)
    body = topics_body("T", "U", read_queue_nums=3).encode(compressed=True, version=version)
    answer = await peer.call(RequestCode.REGISTER_BROKER, header, body, version=version)
    assert answer.code == 0
    route = decode_body((await peer.route("T")).body, TopicRouteData)
    assert route.queue_datas[0].read_queue_nums == 3


async def test_a_broker_of_3_0_10_sends_only_its_topics(peer: Peer) -> None:
    header = RegisterBrokerRequestHeader(**BROKER_A, ha_server_addr="", broker_id=0)
    wrapper: TopicConfigSerializeWrapper = topics_body("T", "U").topic_config_serialize_wrapper
    await peer.call(RequestCode.REGISTER_BROKER, header, encode_body(wrapper, v4=True), version=35)
    assert (await peer.route("T")).code == 0


async def test_a_broker_without_a_body_is_known_without_topics(peer: Peer) -> None:
    header = RegisterBrokerRequestHeader(**BROKER_A, ha_server_addr="", broker_id=0)
    assert (await peer.call(RequestCode.REGISTER_BROKER, header)).code == 0
    assert b"broker-a" in (await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)).body


async def test_a_repeated_body_is_only_skimmed(
    namesrv: MemoryNamesrv, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = topics_body("T", "U")
    await peer.register(body)
    # What a 5.x broker changes in every repetition.
    body.topic_config_serialize_wrapper.mapping_data_version = DataVersion(timestamp=99)
    monkeypatch.setattr("kourou.namesrv.broker_processor.read_topic_table", _must_not_be_called)
    namesrv.now_ms += 100_000
    assert (await peer.register(body)).code == 0
    assert namesrv.state.routes.scan_dead(namesrv.now_ms + 119_999) == []


def _must_not_be_called(*_: Any) -> None:
    raise AssertionError("the topics were read again")


@pytest.mark.parametrize("change", ["topic", "version", "filter server", "not json"])
async def test_a_changed_body_is_read(peer: Peer, change: str) -> None:
    await peer.register(topics_body("T", "U"))
    body = topics_body("T", "U", perm=4, counter=change == "version")
    if change == "topic":
        body = topics_body("T", "U", "V")
    if change == "filter server":
        body.filter_server_list = ["10.0.0.1:3333"]
    raw = body.encode().replace(b'"T"', b"'T'") if change == "not json" else body.encode()
    header = RegisterBrokerRequestHeader(**BROKER_A, ha_server_addr="", broker_id=0)
    assert (await peer.call(RequestCode.REGISTER_BROKER, header, raw)).code == 0
    shown = (await peer.route("V" if change == "topic" else "T")).body
    assert {
        "topic": b"broker-a",
        "version": b'"perm":4',
        "filter server": b"10.0.0.1:3333",
        "not json": b'"perm":6',
    }[change] in shown


async def test_a_body_that_is_no_table_is_refused(peer: Peer) -> None:
    header = RegisterBrokerRequestHeader(**BROKER_A, ha_server_addr="", broker_id=0)
    answer = await peer.call(RequestCode.REGISTER_BROKER, header, b'{"topicConfigSerializeWrapper":[]}')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topicConfigSerializeWrapper: expected an object" in (answer.remark or "")


async def test_a_missing_field_is_named(peer: Peer) -> None:
    answer = await peer.call(RequestCode.REGISTER_BROKER)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "RegisterBrokerRequestHeader" in (answer.remark or "")
    assert "brokerName" in (answer.remark or "")


async def test_order_configuration_goes_to_brokers_unless_switched_off() -> None:
    for reported in (True, False):
        namesrv = MemoryNamesrv(NamesrvConfig(return_order_topic_config_to_broker=reported))
        namesrv.state.kv_config.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        answer = await namesrv.connect().register()
        assert answer.body == (b'{"table":{"T":"broker-a:4"}}' if reported else b"")


# -- signs of life ------------------------------------------------------------------------------------


async def test_heartbeat_and_data_version_query_keep_a_broker(namesrv: MemoryNamesrv, peer: Peer) -> None:
    await peer.register(topics_body("T", "U", counter=3))
    namesrv.now_ms += 60_000
    answer = await peer.call(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader(**BROKER_A))
    assert (answer.code, answer.ext_fields) == (0, None)
    assert namesrv.state.routes.scan_dead(namesrv.now_ms + 120_000) == []
    namesrv.now_ms += 60_000
    await query_version(peer, DataVersion(timestamp=1, counter=3))
    assert namesrv.state.routes.scan_dead(namesrv.now_ms + 120_000) == []


async def query_version(peer: Peer, version: DataVersion) -> RemotingCommand:
    header = QueryDataVersionRequestHeader(**BROKER_A, broker_id=0)
    return await peer.call(RequestCode.QUERY_DATA_VERSION, header, encode_body(version, v4=True))


async def test_query_data_version(peer: Peer) -> None:
    known = DataVersion(timestamp=1, counter=3)
    answer = await query_version(peer, known)
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
    await peer.register(topics_body("T", "U", counter=3))
    answer = await query_version(peer, known)
    assert answer.ext_fields == {"changed": "false"}
    assert decode_body(answer.body, DataVersion) == known
    answer = await query_version(peer, DataVersion(timestamp=1, counter=4))
    assert answer.ext_fields == {"changed": "true"}
    assert decode_body(answer.body, DataVersion) == known


async def test_a_broker_known_of_one_topic_is_asked_for_the_rest(peer: Peer) -> None:
    await peer.register(topics_body("T", counter=3))
    answer = await query_version(peer, DataVersion(timestamp=1, counter=3))
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")


async def test_heartbeat_timeout_of_the_broker_counts(namesrv: MemoryNamesrv, peer: Peer) -> None:
    await peer.register(heartbeat_timeout_millis=1_000)
    await peer.register(**SLAVE, heartbeat_timeout_millis=0)
    dead = namesrv.state.routes.scan_dead(namesrv.now_ms + 1_001)
    assert [broker.broker_id for broker in dead] == [0]


async def test_unregister_and_closed_connection(namesrv: MemoryNamesrv, peer: Peer) -> None:
    broker = namesrv.connect()
    await broker.register()
    header = UnRegisterBrokerRequestHeader(**BROKER_A, broker_id=0)
    assert (await broker.call(RequestCode.UNREGISTER_BROKER, header)).code == 0
    assert (await broker.call(RequestCode.UNREGISTER_BROKER, header)).code == 0
    assert (await peer.route("T")).code == ResponseCode.TOPIC_NOT_EXIST
    await broker.register()
    assert (await peer.route("T")).code == 0
    broker.transport.break_off()
    assert (await peer.route("T")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_broker_member_group(peer: Peer) -> None:
    await peer.register()
    header = GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name="broker-a")
    answer = await peer.call(RequestCode.GET_BROKER_MEMBER_GROUP, header)
    members = BrokerMemberGroup(
        cluster="C", broker_name="broker-a", broker_addrs={0: BROKER_A["broker_addr"]}
    )
    assert decode_body(answer.body, GetBrokerMemberGroupResponseBody).broker_member_group == members


# -- routes -------------------------------------------------------------------------------------------


async def test_forms_of_a_route(peer: Peer) -> None:
    await peer.register()
    legacy, standard = (await peer.route("T", version=317)).body, (await peer.route("T", version=401)).body
    assert b'"brokerAddrs":{0:' in legacy and b'"brokerAddrs":{"0":' in standard
    header = GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=True)
    answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=317)
    assert answer.body == standard


async def test_zone_mode_needs_a_zone(peer: Peer) -> None:
    await peer.register(zone_name="far")
    for mode, zone, shown in [(True, "near", False), (True, "", True), (False, "near", True)]:
        header = GetRouteInfoRequestHeader(topic="T", zone_mode=mode, zone_name=zone)
        answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        assert bool(decode_body(answer.body, TopicRouteData).broker_datas) is shown


async def test_order_configuration_in_routes_only_when_enabled() -> None:
    for enabled in (True, False):
        namesrv = MemoryNamesrv(NamesrvConfig(order_message_enable=enabled))
        peer = namesrv.connect()
        await peer.register()
        namesrv.state.kv_config.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        route = decode_body((await peer.route("T")).body, TopicRouteData)
        assert route.order_topic_conf == ("broker-a:4" if enabled else None)


async def test_need_wait_for_service() -> None:
    namesrv = MemoryNamesrv(NamesrvConfig(need_wait_for_service=True, wait_seconds_for_service=45))
    peer = namesrv.connect()
    await peer.register()
    namesrv.now_ms += 44_999
    assert problem(await peer.route("T")) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    namesrv.now_ms += 1
    assert (await peer.route("T")).code == 0


# -- topics -------------------------------------------------------------------------------------------


def topic_list(answer: RemotingCommand) -> list[str]:
    assert answer.code == 0
    return decode_body(answer.body, TopicList).topic_list


async def test_lists(peer: Peer) -> None:
    await peer.register(topics_body("T", "U", topic_sys_flag=2))
    assert topic_list(await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == ["T", "U"]
    by_cluster = GetTopicsByClusterRequestHeader(cluster="C")
    assert topic_list(await peer.call(RequestCode.GET_TOPICS_BY_CLUSTER, by_cluster)) == ["T", "U"]
    system = await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert topic_list(system) == ["C", "broker-a"]
    assert b'"brokerAddr":"10.0.0.1:10911"' in system.body
    assert topic_list(await peer.call(RequestCode.GET_UNIT_TOPIC_LIST)) == []
    assert topic_list(await peer.call(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)) == ["T", "U"]
    assert topic_list(await peer.call(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)) == ["T", "U"]


async def test_lists_switched_off() -> None:
    peer = MemoryNamesrv(NamesrvConfig(enable_all_topic_list=False, enable_topic_list=False)).connect()
    by_cluster = GetTopicsByClusterRequestHeader(cluster="C")
    answers = [
        await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        await peer.call(RequestCode.GET_TOPICS_BY_CLUSTER, by_cluster),
        await peer.call(RequestCode.GET_UNIT_TOPIC_LIST),
        await peer.call(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST),
        await peer.call(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
    ]
    assert {problem(answer) for answer in answers} == {(ResponseCode.SYSTEM_ERROR, "disable")}
    assert (await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).code == 0


async def test_register_topic(peer: Peer) -> None:
    await peer.register()
    header = RegisterTopicRequestHeader(topic="V")
    body = TopicRouteData(queue_datas=[QueueData(broker_name="broker-a", perm=6)]).encode()
    assert (await peer.call(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)).code == 0
    assert (await peer.route("V")).code == 0
    unknown = TopicRouteData(queue_datas=[QueueData(broker_name="broker-z")]).encode()
    answer = await peer.call(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, unknown)
    assert problem(answer) == (1, "topic V refused: broker broker-z has to register first")


async def test_delete_topic(peer: Peer) -> None:
    await peer.register()
    for cluster, code in [("other", 0), ("C", ResponseCode.TOPIC_NOT_EXIST)]:
        header = DeleteTopicFromNamesrvRequestHeader(topic="T", cluster_name=cluster)
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)).code == 0
        assert (await peer.route("T")).code == code


async def test_wipe_write_permission_of_an_unknown_broker(peer: Peer) -> None:
    header = WipeWritePermOfBrokerRequestHeader(broker_name="nobody")
    answer = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
    assert (answer.code, answer.ext_fields) == (0, {"wipeTopicCount": "0"})


# -- KV configuration ---------------------------------------------------------------------------------


async def test_kv_configuration_is_on_disk_when_answered(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    peer = MemoryNamesrv(NamesrvConfig(kv_config_path=str(path))).connect()
    put = PutKVConfigRequestHeader(namespace="ns", key="k", value="v")
    assert (await peer.call(RequestCode.PUT_KV_CONFIG, put)).code == 0
    assert path.read_text() == '{"configTable":{"ns":{"k":"v"}}}'
    get = GetKVConfigRequestHeader(namespace="ns", key="k")
    assert (await peer.call(RequestCode.GET_KV_CONFIG, get)).ext_fields == {"value": "v"}
    listing = GetKVListByNamespaceRequestHeader(namespace="ns")
    answer = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, listing)
    assert decode_body(answer.body, KVTable).table == {"k": "v"}
    delete = DeleteKVConfigRequestHeader(namespace="ns", key="k")
    assert (await peer.call(RequestCode.DELETE_KV_CONFIG, delete)).code == 0
    assert path.read_text() == '{"configTable":{"ns":{}}}'


async def test_a_namespace_never_used(peer: Peer) -> None:
    header = GetKVListByNamespaceRequestHeader(namespace="ns")
    answer = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
    assert problem(answer) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: ns")


async def test_a_disk_that_refuses_is_not_answered_with_success(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = NamesrvConfig(kv_config_path=str(tmp_path / "file" / "kvConfig.json"))
    peer = MemoryNamesrv(config).connect()
    put = PutKVConfigRequestHeader(namespace="ns", key="k", value="v")
    answer = await peer.call(RequestCode.PUT_KV_CONFIG, put)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("changed in memory, but not on disk: ")
    assert "cannot be written" in (answer.remark or "")


# -- configuration ------------------------------------------------------------------------------------


async def test_configuration_is_changed_at_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("# mine\nlistenPort=0\n")
    config, _ = load_namesrv_config(path, environ={"ROCKETMQ_HOME": str(tmp_path)})
    namesrv = MemoryNamesrv(config)
    peer = namesrv.connect()
    change = b"enableAllTopicList=false\nsupportActingMaster=true\n"
    assert (await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, body=change)).code == 0
    assert (await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).remark == "disable"
    assert namesrv.state.routes.tables.settings.support_acting_master
    shown = (await peer.call(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert "enableAllTopicList=false\n" in shown and "supportActingMaster=true\n" in shown
    assert path.read_text().startswith("# mine\nlistenPort=0\n")
    reloaded, _ = load_namesrv_config(path, environ={})
    assert not reloaded.enable_all_topic_list and reloaded.support_acting_master


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList"])
async def test_black_listed_keys_cannot_be_changed(namesrv: MemoryNamesrv, peer: Peer, key: str) -> None:
    before = namesrv.state.config
    body = f"enableTopicList=false\n{key}=/etc/passwd\n".encode()
    answer = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert problem(answer) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    assert namesrv.state.config is before


async def test_an_unknown_key_is_rejected_with_the_nearest(namesrv: MemoryNamesrv, peer: Peer) -> None:
    before = namesrv.state.config
    body = b"enableTopicList=false\nenableTopicLst=false\n"
    answer = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert problem(answer) == (
        ResponseCode.INVALID_PARAMETER,
        "unknown key enableTopicLst; did you mean enableTopicList?",
    )
    assert namesrv.state.config is before


@pytest.mark.parametrize("body", [b"enableTopicList=maybe\n", b"\xff\xfe"])
async def test_a_bad_value_changes_nothing(namesrv: MemoryNamesrv, peer: Peer, body: bytes) -> None:
    before = namesrv.state.config
    answer = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
    assert namesrv.state.config is before


async def test_an_empty_update_is_a_success(peer: Peer) -> None:
    assert (await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG)).code == 0
