"""What administrators do to topics, over connections in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.bodies import (
    TopicConfig,
    TopicConfigList,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)
from tests.unit.broker.tables_kit import MemoryBroker
from tests.unit.store.message_stores import put


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MemoryBroker]:
    broker = MemoryBroker(tmp_path)
    yield broker
    await broker.close()


async def create(broker: MemoryBroker, topic: str = "orders", **fields: Any) -> RemotingCommand:
    known = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
    }
    header = CreateTopicRequestHeader(**{**known, **fields})
    return await broker.connect().call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def delete(broker: MemoryBroker, topic: str) -> RemotingCommand:
    header = DeleteTopicRequestHeader(topic=topic)
    return await broker.connect().call(RequestCode.DELETE_TOPIC_IN_BROKER, header)


async def test_a_topic_is_made_changed_and_registered(broker: MemoryBroker) -> None:
    assert (await create(broker)).code == ResponseCode.SUCCESS
    assert broker.topics.get("orders") == TopicConfig("orders", 4, 4, 6)
    answer = await create(
        broker,
        write_queue_nums=8,
        perm=4,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=1,
        order=True,
        attributes="+message.type=FIFO",
    )
    assert answer.code == ResponseCode.SUCCESS
    changed = TopicConfig("orders", 4, 8, 4, TopicFilterType.MULTI_TAG, 1, True, {"message.type": "FIFO"})
    assert broker.topics.get("orders") == changed
    assert broker.registered == [TopicConfig("orders", 4, 4, 6), changed]
    assert broker.topics.is_dirty


TOO_MANY = "The topic[orders] cannot have {} queues: 0 to 65536 are allowed."


@pytest.mark.parametrize(
    ("topic", "fields", "code", "remark"),
    [
        ("", {}, 29, "The specified topic is blank."),
        (
            "a b",
            {},
            29,
            "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("TBW102", {}, 29, "The topic[TBW102] is conflict with system topic."),
        ("broker-a", {}, 29, "The topic[broker-a] is conflict with system topic."),
        ("orders", {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ("orders", {"attributes": "+no.such=1"}, 1, "unsupported key: no.such"),
        ("orders", {"read_queue_nums": -1}, 29, TOO_MANY.format(-1)),
        ("orders", {"write_queue_nums": 65_537}, 29, TOO_MANY.format(65_537)),
        ("orders", {"topic_filter_type": "X"}, 1, "topicFilterType 'X' is not one of SINGLE_TAG, MULTI_TAG"),
    ],
)
async def test_what_apache_refuses_is_refused(
    broker: MemoryBroker, topic: str, fields: dict[str, Any], code: int, remark: str
) -> None:
    answer = await create(broker, topic, **fields)
    assert (answer.code, answer.remark) == (code, remark)
    assert broker.registered == []


async def test_keys_allow_system_topics_and_mixed_types(broker: MemoryBroker) -> None:
    broker.set_keys(validate_system_topic_when_update_topic=False, enable_mixed_message_type=True)
    assert (await create(broker, "BenchmarkTest")).code == ResponseCode.SUCCESS
    assert (await create(broker, attributes="+message.type=MIXED")).code == ResponseCode.SUCCESS


async def test_a_list_of_topics_is_made_whole_or_not_at_all(broker: MemoryBroker) -> None:
    peer = broker.connect()

    async def create_list(*configs: TopicConfig) -> RemotingCommand:
        body = encode_body(TopicConfigList(list(configs)))
        return await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    answer = await create_list(TopicConfig("one"), TopicConfig("TBW102"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("one") is None
    answer = await create_list(TopicConfig("one"), TopicConfig("two", attributes={"+message.type": "FIFO"}))
    assert answer.code == ResponseCode.SUCCESS
    assert broker.topics.table["two"].attributes == {"message.type": "FIFO"}
    assert len(broker.registered) == 2


async def test_requests_without_pages_get_all_topics(broker: MemoryBroker) -> None:
    answer = await broker.connect().call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.ext_fields == {"totalTopicNum": str(len(broker.topics.table))}
    wrapper = decode_body(answer.body, TopicConfigSerializeWrapper)
    assert wrapper.topic_config_table == broker.topics.table
    assert wrapper.data_version == broker.topics.data_version
    assert "topicQueueMappingDetailMap" in json.loads(answer.body)


async def test_pages_of_topics_begin_anew_when_the_table_changed(broker: MemoryBroker) -> None:
    peer = broker.connect()
    names = sorted(broker.topics.table)

    async def page(begin: int, data_version: str) -> list[str]:
        header = GetAllTopicConfigRequestHeader(topic_seq=begin, data_version=data_version, max_topic_num=5)
        answer = await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG, header)
        total = answer.header(GetAllTopicConfigResponseHeader).total_topic_num
        assert total == len(broker.topics.table)
        return sorted(decode_body(answer.body, TopicConfigSerializeWrapper).topic_config_table)

    assert await page(0, "") == names[:5]
    version = encode_body(broker.topics.data_version).decode()
    assert await page(5, version) == names[5:10]
    assert await page(10, version) == names[10:]
    assert await page(1000, version) == []
    broker.topics.update(TopicConfig("A-new"))
    assert await page(5, version) == ["A-new", *names[:4]]


async def test_one_topic_is_shown(broker: MemoryBroker) -> None:
    peer = broker.connect()
    answer = await peer.call(
        RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="SELF_TEST_TOPIC")
    )
    assert answer.body == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":1,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"SELF_TEST_TOPIC","topicSysFlag":0,"writeQueueNums":1}'
    )
    answer = await peer.call(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="no"))
    assert (answer.code, answer.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "No topic in this broker. topic: no",
    )


async def test_system_topics_are_listed(broker: MemoryBroker) -> None:
    answer = await broker.connect().call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    listed = json.loads(answer.body)["topicList"]
    apaches = {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRACE_TOPIC",
        "DefaultCluster_REPLY_TOPIC",
        "TBW102",
        "broker-a",
    }
    assert apaches <= set(listed)
    assert "orders" not in listed


async def test_a_deleted_topic_is_gone_with_queues_offsets_and_pop_retries(broker: MemoryBroker) -> None:
    await create(broker)
    for topic in ("%RETRY%CG_orders", "%RETRY%CG+orders", "%RETRY%CG"):
        broker.topics.create_in_send_back(topic, 1, 6)
    broker.offsets.commit("CG", "orders", 0, 1, "")
    broker.offsets.commit("CG", "%RETRY%CG", 0, 1, "")
    put(broker.store, b"one")
    put(broker.store, b"two", topic="others")
    broker.store_kit.deleted_topics.add("orders")
    assert (await delete(broker, "orders")).code == ResponseCode.SUCCESS
    assert {"orders", "%RETRY%CG_orders", "%RETRY%CG+orders"}.isdisjoint(broker.topics.table)
    assert "%RETRY%CG" in broker.topics.table
    assert set(broker.offsets.offset_table) == {"%RETRY%CG@CG"}
    assert broker.store.max_offset_in_queue("orders", 0) == 0
    assert broker.store.max_offset_in_queue("others", 0) == 1
    assert broker.registered[-1] is None
    reopened = broker.store_kit.kill(broker.store)
    assert reopened.max_offset_in_queue("orders", 0) == 0


async def test_pop_retries_stay_where_the_key_says_so(broker: MemoryBroker) -> None:
    broker.set_keys(clear_retry_topic_when_delete_topic=False)
    await create(broker)
    broker.topics.create_in_send_back("%RETRY%CG_orders", 1, 6)
    broker.offsets.commit("CG", "orders", 0, 1, "")
    await delete(broker, "orders")
    assert "%RETRY%CG_orders" in broker.topics.table


async def test_a_topic_that_cannot_be_deleted_stays_whole(broker: MemoryBroker) -> None:
    await create(broker)
    broker.offsets.commit("CG", "orders", 0, 1, "")
    broker.store.appender.fence("a test")
    answer = await delete(broker, "orders")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert broker.topics.get("orders") is not None
    assert broker.offsets.query("CG", "orders", 0) == 1


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (" ", "The specified topic is blank."),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
    ],
)
async def test_some_topics_cannot_be_deleted(broker: MemoryBroker, topic: str, remark: str) -> None:
    answer = await delete(broker, topic)
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


async def test_deleting_what_is_not_there_succeeds(broker: MemoryBroker) -> None:
    assert (await delete(broker, "no-such")).code == ResponseCode.SUCCESS
    assert broker.registered == []
