"""Bodies as the C++ and Go clients write them, and as these need to read them."""

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    BrokerData,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    ProducerData,
    QueueData,
    ResetOffsetBody,
    SubscriptionData,
    TopicRouteData,
    decode_body,
    encode_bit_set,
    encode_body,
)
from kourou.protocol.bodies.batch_ack import decode_batch_acks

QUEUE = MessageQueue("T", "broker-a", 0)
CPP_HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"CG","messageModel":1,'
    b'"subscriptionDataSet":[{"subString":"*","subVersion":"1700000000000","topic":"T"}]}]}\n'
)
GO_HEARTBEAT = (
    b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"CG",'
    b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"*","tagsSet":[],"codeSet":[7],'
    b'"subVersion":1700000000000,"expressionType":"TAG"}],"unitMode":false}]}'
)


def heartbeat(*producers: ProducerData, code_set: list[int]) -> HeartbeatData:
    subscription = SubscriptionData("T", "*", sub_version=1_700_000_000_000, code_set=code_set)
    consumer = ConsumerData(
        "CG",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        [subscription],
    )
    return HeartbeatData("c", list(producers), [consumer])


def test_a_cpp_heartbeat_has_ordinals_text_numbers_and_no_empty_sets() -> None:
    assert decode_body(CPP_HEARTBEAT, HeartbeatData) == heartbeat(code_set=[])


def test_a_go_heartbeat_has_names() -> None:
    assert decode_body(GO_HEARTBEAT, HeartbeatData) == heartbeat(ProducerData("PG"), code_set=[7])


@pytest.mark.parametrize(
    "table",
    [
        '{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12}',
        '[{"brokerName":"broker-a","offset":12,"queueId":0,"topic":"T"}]',
        '[[{"topic":"T","brokerName":"broker-a","queueId":0},12]]',
    ],
)
def test_the_reset_table_is_read_in_all_three_forms(table: str) -> None:
    raw = f'{{"offsetTable":{table}}}'.encode()

    assert decode_body(raw, ResetOffsetBody) == ResetOffsetBody({QUEUE: 12})


@pytest.mark.parametrize(
    "table", ["[1]", "[[1,2]]", '[{"topic":["T"],"offset":1}]', '[{"queueId":"x","offset":1}]']
)
def test_a_reset_table_of_no_form_is_refused(table: str) -> None:
    with pytest.raises(ProtocolError, match="ResetOffsetBody: .*expected"):
        decode_body(f'{{"offsetTable":{table}}}'.encode(), ResetOffsetBody)


def test_a_reset_table_is_written_native_and_as_a_list_for_cpp() -> None:
    body = ResetOffsetBody({QUEUE: 12})

    assert encode_body(body) == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12}}'
    assert encode_body(body.for_c()) == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":12,"queueId":0,"topic":"T"}]}'
    )


def test_go_answers_a_consumer_status_without_the_consumer_table() -> None:
    raw = b'{"messageQueueTable":{{"topic":"T","brokerName":"broker-a","queueId":0}:13}}'

    assert decode_body(raw, GetConsumerStatusBody) == GetConsumerStatusBody({QUEUE: 13})


@pytest.mark.parametrize("name", ["droped", "dropped"])
def test_a_dropped_queue_is_read_in_both_spellings(name: str) -> None:
    raw = f'{{"{name}":true}}'.encode()

    assert decode_body(raw, ProcessQueueInfo).dropped
    assert decode_body(raw, PopProcessQueueInfo).dropped
    assert b'"droped":true' in encode_body(ProcessQueueInfo(dropped=True))


def test_cpp_running_info_has_pretty_keys_and_text_numbers() -> None:
    raw = (
        b'{"jstack":"","mqTable":{{\n\t"brokerName" : "broker-a",\n\t"queueId" : 0,\n\t"topic" : "T"\n}\n:'
        b'{"commitOffset":"5","cachedMsgCount":"2","droped":false,"locked":true}},'
        b'"properties":{"PROP_CONSUMEORDERLY":"false"},"subscriptionSet":[]}\n'
    )

    found = decode_body(raw, ConsumerRunningInfo)

    assert found.mq_table == {QUEUE: ProcessQueueInfo(commit_offset=5, cached_msg_count=2, locked=True)}
    assert found.status_table == {}


def test_batch_acks_are_read_with_short_and_long_names() -> None:
    short = b'{"b":"AQI=","c":"CG","it":60000,"pt":1,"q":0,"r":"0","rq":2,"so":5,"t":"T"}'
    long = (
        b'{"bitSet":"AQI=","consumerGroup":"CG","invisibleTime":60000,"popTime":1,"queueId":0,"retry":"0",'
        b'"reviveQueueId":2,"startOffset":5,"topic":"T"}'
    )
    expected = BatchAck("CG", "T", "0", 5, 0, 2, 1, 60_000, "AQI=")

    for raw in (short, long):
        request = b'{"acks":[' + raw + b'],"brokerName":"b"}'
        assert decode_body(request, BatchAckMessageRequestBody) == BatchAckMessageRequestBody("b", [expected])
        assert decode_batch_acks(request) == BatchAckMessageRequestBody("b", [expected])
    assert encode_body(expected) == short
    assert expected.queue_offsets() == [5, 14]


def test_a_bit_set_counts_from_the_lowest_bit_of_the_first_byte() -> None:
    assert encode_bit_set([9, 0]) == "AQI="
    assert encode_bit_set([]) == ""
    assert BatchAck(start_offset=100, bit_set=encode_bit_set(range(3, 20))).queue_offsets() == list(
        range(103, 120)
    )


def test_a_bit_set_that_is_not_base64_is_refused() -> None:
    with pytest.raises(ProtocolError, match="expected Base64"):
        BatchAck(bit_set="*").queue_offsets()


def test_a_route_has_what_the_go_parser_cuts_at() -> None:
    """Go splits brokerAddrs at `,` and the first `:`, so no space and always present."""
    route = TopicRouteData(
        queue_datas=[QueueData("broker-a", 4, 4, 6)],
        broker_datas=[
            BrokerData("C", "broker-a", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"}),
            BrokerData("C", "b"),
        ],
    )

    for raw in (route.encode(), route.encode(standard_json=False)):
        assert b" " not in raw
        assert raw.count(b'"brokerAddrs":{') == 2
    assert b'"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in route.encode(standard_json=False)
