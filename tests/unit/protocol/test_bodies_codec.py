"""decode_body takes what fastjson takes; encode_body writes what fastjson writes."""

from typing import Any

import pytest

from kourou.errors import ProtocolError
from kourou.protocol import bodies
from kourou.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeType,
    DataVersion,
    HeartbeatData,
    KVConfigSerializeWrapper,
    KVTable,
    MessageQueue,
    OffsetSerializeWrapper,
    OffsetWrapper,
    SubscriptionData,
    TopicConfig,
    TopicFilterType,
    TopicList,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from kourou.protocol.bodies.fitting import fit


@pytest.mark.parametrize(
    "raw",
    [
        b'{"perm":4,"order":true,"topicName":"T","topicFilterType":"MULTI_TAG","attributes":{"n":"1"}}',
        b'{"perm":"4","order":"true","topicName":"T","topicFilterType":1,"attributes":{"n":1}}',
        b'{"perm":4.0,"order":1,"topicName":"T","topicFilterType":"multi_tag","attributes":{n:1}}',
        b"{perm:'4',order:'TRUE',topicName:'T',topicFilterType:'1',attributes:{'n':'1'}}",
        b'\xef\xbb\xbf{"perm":4,"order":"1","topicName":"T","topicFilterType":"MULTI_TAG",\n '
        b'"attributes":{"n":"1"},"readQueueNums":null,"unknown":[{"deep":null}]}\n',
    ],
)
def test_numbers_booleans_and_enums_come_in_many_forms(raw: bytes) -> None:
    expected = TopicConfig(
        "T", perm=4, order=True, topic_filter_type=TopicFilterType.MULTI_TAG, attributes={"n": "1"}
    )

    assert decode_body(raw, TopicConfig) == expected


def test_missing_and_null_fields_keep_their_default() -> None:
    assert decode_body(b"{}", TopicConfig) == TopicConfig()
    assert decode_body(b'{"consumerDataSet":null,"clientID":"c"}', HeartbeatData) == HeartbeatData("c")
    assert decode_body(b'{"table":{"a":null,"b":"x"}}', KVTable) == KVTable({"b": "x"})
    assert decode_body(b'{"topicList":[null,"T"]}', TopicList) == TopicList(["T"])


@pytest.mark.parametrize("value", ["7", '"7"', '"CONSUME_SIDEWAYS"', "true", "null"])
def test_an_unknown_enum_value_is_as_if_not_sent(value: str) -> None:
    raw = f'{{"consumeType":{value},"groupName":"CG"}}'.encode()
    assert decode_body(raw, ConsumerData).group_name == "CG"

    if value != "true":  # fastjson has no word on a boolean; we read it as the ordinal 1
        assert decode_body(raw, ConsumerData).consume_type is None


def test_text_fields_take_values_of_any_kind() -> None:
    raw = b'{"table":{"i":1,"f":1.5,"b":true,"o":{"x":[1,null]},"l":[]}}'

    assert decode_body(raw, KVTable).table == {
        "i": "1",
        "f": "1.5",
        "b": "true",
        "o": '{"x":[1,null]}',
        "l": "[]",
    }


def test_integer_keys_may_be_bare_or_quoted() -> None:
    expected = ClusterInfo({"b": BrokerData("C", "b", {0: "x:1", 10: "y:1"})}, {"C": ["b"]})

    for addresses in ('{0:"x:1",10:"y:1"}', '{"0":"x:1","10":"y:1"}'):
        raw = (
            f'{{"brokerAddrTable":{{"b":{{"brokerAddrs":{addresses},"brokerName":"b","cluster":"C"}}}},'
            '"clusterAddrTable":{"C":["b"]}}'
        )
        assert decode_body(raw.encode(), ClusterInfo) == expected


@pytest.mark.parametrize(
    "key",
    [
        '{"brokerName":"b","queueId":3,"topic":"T"}',
        '{ "topic" : "T" ,\n "queueId" : "3", "brokerName":"b" }',
        r'"{\"brokerName\":\"b\",\"queueId\":3,\"topic\":\"T\"}"',
    ],
)
def test_message_queue_keys_may_be_objects_or_text_of_objects(key: str) -> None:
    raw = f'{{"offsetTable":{{{key}:{{"maxOffset":"9"}}}}}}'.encode()

    table = decode_body(raw, TopicStatsTable).offset_table

    assert {queue: each.max_offset for queue, each in table.items()} == {MessageQueue("T", "b", 3): 9}


@pytest.mark.parametrize("group", ["plain", "{brace}:", 'quote":{"a":1}:', "back\\slash", "单"])
def test_keys_that_are_objects_are_read_whatever_other_strings_contain(group: str) -> None:
    table = {MessageQueue("T", "b", queue_id): OffsetWrapper(9, 5) for queue_id in range(3)}
    body = ConsumeStatsList([{group: [ConsumeStats(table), ConsumeStats(table)]}], total_diff=24)

    assert decode_body(encode_body(body), ConsumeStatsList) == body


def test_a_ref_stands_for_the_object_it_names() -> None:
    raw = (
        b'{"clientID":"c","consumerDataSet":['
        b'{"groupName":"A","subscriptionDataSet":[{"subString":"*","topic":"T"}]},'
        b'{"groupName":"B","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]},'
        b'{"groupName":"C","subscriptionDataSet":{"$ref":"$.consumerDataSet[1].subscriptionDataSet"}}]}'
    )

    found = decode_body(raw, HeartbeatData).consumer_data_set

    assert [each.subscription_data_set for each in found] == [[SubscriptionData("T", "*")]] * 3


@pytest.mark.parametrize(
    "raw",
    [
        b'{"topicList":[{"$ref":"$.topicList[1]"},{"$ref":"$.topicList[0]"}]}',
        b'{"topicList":{"$ref":"$.topicList"}}',
        b'{"topicList":[{"$ref":".."}]}',
    ],
)
def test_refs_in_a_circle_are_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"\$ref"):
        decode_body(raw, TopicList)


def test_refs_to_refs_cannot_multiply_the_work() -> None:
    # Each level names the one before twice: 2**40 objects if they were copied.
    levels = [b'{"a":{"x":"y"}}']
    levels += [b'{"l":{"$ref":"$[%d]"},"r":{"$ref":"$[%d]"}}' % (i, i) for i in range(40)]
    tree: Any = decode_body(b"[" + b",".join(levels) + b"]", Any)

    assert tree[40]["l"] is tree[40]["r"]
    assert tree[40]["l"]["r"] is tree[39]["l"]


def test_a_long_chain_of_refs_is_refused() -> None:
    refs = b",".join(b'{"$ref":"$.topicList[%d]"}' % (i + 1) for i in range(5000))

    with pytest.raises(ProtocolError, match="levels of nesting"):
        decode_body(b'{"topicList":[' + refs + b',"T"]}', TopicList)


@pytest.mark.parametrize(
    ("raw", "shape", "message"),
    [
        (b"", TopicConfig, "TopicConfig: at character 0: expected a value, the text ends here"),
        (b"null", TopicConfig, "TopicConfig: expected a value, got null"),
        (b"[]", TopicConfig, "TopicConfig: body: expected an object, got a list"),
        (b'{"perm":"x"}', TopicConfig, "TopicConfig: perm: expected an integer, got 'x'"),
        (b'{"perm":1.5}', TopicConfig, "TopicConfig: perm: expected an integer, got 1.5"),
        (b'{"perm":1e999}', TopicConfig, "TopicConfig: perm: expected an integer, got inf"),
        (b'{"perm":{}}', TopicConfig, "TopicConfig: perm: expected an integer, got an object"),
        (b'{"perm":2147483648}', TopicConfig, "perm: expected an integer from -2147483648 to 2147483647"),
        (b'{"order":"yes"}', TopicConfig, "TopicConfig: order: expected a boolean, got 'yes'"),
        (b'{"order":[]}', TopicConfig, "TopicConfig: order: expected a boolean, got a list"),
        (b'{"topicFilterType":{}}', TopicConfig, "topicFilterType: expected the name or ordinal of an enum"),
        (b'{"attributes":[1]}', TopicConfig, "TopicConfig: attributes: expected a map, got a list"),
        (b'{"topicList":"T"}', TopicList, "TopicList: topicList: expected a list, got 'T'"),
        (b'{"consumeTps":"fast"}', ConsumeStats, "ConsumeStats: consumeTps: expected a number, got 'fast'"),
        (b'{"brokerAddrs":{a:"x"}}', BrokerData, "BrokerData: brokerAddrs: expected an integer, got 'a'"),
        (
            b'{"connectionSet":[{},{"version":"v"}]}',
            ConsumerConnection,
            "ConsumerConnection: connectionSet[1].version: expected an integer, got 'v'",
        ),
        (
            b'{"offsetTable":{"T":{}}}',
            ConsumeStats,
            "ConsumeStats: at character 0: expected a value, got 'T'",
        ),
        (b'{"offsetTable":{"5":{}}}', ConsumeStats, "ConsumeStats: offsetTable: expected an object, got 5"),
        (b"\xff", TopicConfig, "TopicConfig: at byte 0: expected UTF-8 text"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(raw: bytes, shape: type, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_body(raw, shape)

    assert message in str(caught.value)


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_deep_value_from_the_wire_does_not_exhaust_the_stack(depth: int) -> None:
    raw = b'{"brokerAddr":' + b"[" * depth + b"]" * depth + b"}"
    try:
        assert decode_body(raw, TopicList).broker_addr == "[" * depth + "]" * depth
    except ProtocolError as error:
        assert str(error).startswith("TopicList: ")


def test_a_value_too_deep_for_a_text_field_is_refused() -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]

    with pytest.raises(ProtocolError, match="brokerAddr: expected text, got a list"):
        fit({"brokerAddr": deep}, TopicList)


def test_writes_fields_in_alphabetical_order_of_their_wire_names() -> None:
    assert encode_body(DataVersion(timestamp=3, counter=1, state_version=2)) == (
        b'{"counter":1,"stateVersion":2,"timestamp":3}'
    )


def test_v4_leaves_out_what_only_5_has_at_every_level() -> None:
    stats = ConsumeStats({MessageQueue("T", "b", 0): OffsetWrapper(10, 5, 6, 1)}, 1.5)

    assert encode_body(stats, v4=True) == (
        b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":10,"consumerOffset":5,"lastTimestamp":1}}}'
    )
    assert b'"pullOffset":6' in encode_body(stats)
    topic = encode_body(TopicConfig(topic_name="T"), v4=True)
    assert topic.startswith(b'{"order":false,"perm":6,') and b"attributes" not in topic


def test_maps_keep_their_order_and_integer_keys_are_sorted() -> None:
    assert encode_body(KVTable({"z": "1", "a": "2"})) == b'{"table":{"z":"1","a":"2"}}'
    within = KVConfigSerializeWrapper({"NS": {"z": "1", "a": "2"}})
    assert encode_body(within) == b'{"configTable":{"NS":{"z":"1","a":"2"}}}'
    attributes = {"z": "1", "a": "2"}
    assert encode_body(TopicConfig(topic_name="T", attributes=attributes)) == (
        b'{"attributes":{"z":"1","a":"2"},"order":false,"perm":6,"readQueueNums":16,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}'
    )
    assert b'{"0":"x","1":"y"}' in encode_body(BrokerData(broker_addrs={1: "y", 0: "x"}))
    assert b'{0:"x",1:"y"}' in encode_body(BrokerData(broker_addrs={1: "y", 0: "x"}), bare_int_keys=True)


def test_sets_and_tuples_are_written_as_lists() -> None:
    assert encode_body({"a": ("x", {"y"}, frozenset())}) == b'{"a":["x",["y"],[]]}'


def test_enums_are_written_as_names() -> None:
    assert b'"consumeType":"CONSUME_POP"' in encode_body(ConsumerData("CG", ConsumeType.CONSUME_POP))


def test_a_broadcast_consumers_own_file_is_read_pretty_printed_as_java_writes_it() -> None:
    raw = (
        b'{\n\t"offsetTable":{\n\t\t{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,'
        b'\n\t\t\t"topic":"T"\n\t\t}:7\n\t}\n}'
    )

    assert decode_body(raw, OffsetSerializeWrapper).offset_table == {MessageQueue("T", "b", 0): 7}


def test_message_queues_sort_by_topic_broker_and_id() -> None:
    queues = [MessageQueue("U", "a", 0), MessageQueue("T", "b", 0), MessageQueue("T", "a", 1)]

    assert sorted(queues) == queues[::-1]


def test_every_public_name_is_there_and_documented() -> None:
    assert list(bodies.__all__) == sorted(set(bodies.__all__))
    for name in bodies.__all__:
        value = getattr(bodies, name)
        assert isinstance(value, int | tuple) or value.__doc__, name
