"""What tools ask about topics, groups, clients and counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.bodies import (
    BrokerStatsData,
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeType,
    GroupLagRow,
    GroupLags,
    GroupList,
    MessageModel,
    MessageQueue,
    OffsetWrapper,
    ProducerConnection,
    ProducerData,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    decode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetGroupLagsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from kourou.protocol.tags import tags_code
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.broker.tables_kit import consumer
from tests.unit.store.message_stores import NOW_MS


def _queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def _fill(broker: AdminBroker) -> None:
    """Ten messages in queue 0, a second apart, none in queue 1; the group has consumed four."""
    broker.put(*[b"x"] * 10)
    broker.offsets.commit("CG", "T", 0, 4, "test")


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cold", [False, True])
async def test_topic_stats_have_every_queue(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        broker.stats.topic_put("T", 20, 100)
        for second in range(1, 11):
            broker.stats.tick(NOW_MS + second * 1000, wall_ms=NOW_MS + second * 1000)
        if is_cold:
            broker.go_cold()
        header = GetTopicStatsInfoRequestHeader(topic="T")
        stats = await broker.tool().ask(RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, header)
        assert stats.offset_table == {
            _queue(0): TopicOffset(0, 10, NOW_MS + 9000),
            _queue(1): TopicOffset(0, 0, 0),
        }
        assert stats.topic_put_tps == 2.0


@pytest.mark.parametrize("code", [RequestCode.GET_TOPIC_STATS_INFO, RequestCode.QUERY_CONSUME_TIME_SPAN])
async def test_unknown_topic_is_17(tmp_path: Path, code: RequestCode) -> None:
    async with admin_broker(tmp_path) as broker:
        header = QueryConsumeTimeSpanRequestHeader(topic="none", group="CG")
        assert await broker.tool().refused(code, header) == (17, "topic[none] not exist")


async def test_groups_of_a_topic_are_those_online_and_those_with_offsets(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.offsets.commit("old", "T", 0, 4, "test")
        await broker.connect().heartbeat(consumer("CG", T="*"))
        header = QueryTopicConsumeByWhoRequestHeader(topic="T")
        groups = await broker.tool().ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, header)
        assert groups.group_list == ["CG", "old"]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_time_spans_show_how_long_messages_have_been_waiting(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)  # the clock is at NOW_MS + 10 s now
        if is_cold:
            broker.go_cold()
        header = QueryConsumeTimeSpanRequestHeader(topic="T", group="CG")
        body = await broker.tool().ask(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanBody, header)
        filled, empty = body.consume_time_span_set
        assert filled.message_queue == _queue(0)
        assert (filled.min_time_stamp, filled.max_time_stamp) == (NOW_MS, NOW_MS + 9000)
        assert filled.consume_time_stamp == NOW_MS + 3000
        assert filled.delay_time == 6000
        assert filled.min_time_stamp_str is not None
        assert filled.min_time_stamp_str.endswith(":000") and "#" in filled.min_time_stamp_str
        assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)


# -- groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cold", [False, True])
async def test_consume_stats_report_lag_and_time(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        broker.offsets.commit_pull("CG", "T", 0, 6)
        if is_cold:
            broker.go_cold()
        header = GetConsumeStatsRequestHeader(consumer_group="CG")
        stats = await broker.tool().ask(RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
        assert stats.offset_table == {
            _queue(0): OffsetWrapper(10, 4, 6, NOW_MS + 3000),
            _queue(1): OffsetWrapper(0, 0, 0, 0),
        }


async def test_consume_tps_is_that_of_all_topics(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.topics.update(TopicConfig(topic_name="U", read_queue_nums=1))
        for topic in ("T", "U"):
            broker.offsets.commit("CG", topic, 0, 0, "test")
            broker.stats.group_get("CG", topic, 10, 100)
        for second in range(1, 11):
            broker.stats.tick(NOW_MS + second * 1000, wall_ms=NOW_MS + second * 1000)
        header = GetConsumeStatsRequestHeader(consumer_group="CG")
        stats = await broker.tool().ask(RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
        assert stats.consume_tps == 2.0
        assert len(stats.offset_table) == 3


@pytest.mark.parametrize(
    ("asked", "topics"),
    [
        ({}, {"T", "U"}),
        ({"topic": "U"}, {"U"}),
        ({"topic": "U", "topic_list": "T;none;"}, {"T"}),
        ({"topic": "gone"}, set()),
    ],
)
async def test_consume_stats_of_the_topics_asked_for(
    tmp_path: Path, asked: dict[str, str], topics: set[str]
) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.topics.update(TopicConfig(topic_name="U"))
        for topic in ("T", "U", "gone"):
            broker.offsets.commit("CG", topic, 0, 1, "test")
        header = GetConsumeStatsRequestHeader(consumer_group="CG", **asked)
        stats = await broker.tool().ask(RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
        assert {queue.topic for queue in stats.offset_table} == topics


async def test_topics_that_members_left_are_not_in_consume_stats(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.topics.update(TopicConfig(topic_name="U"))
        for topic in ("T", "U"):
            broker.offsets.commit("CG", topic, 0, 1, "test")
        await broker.connect().heartbeat(consumer("CG", T="*"))
        header = GetConsumeStatsRequestHeader(consumer_group="CG")
        stats = await broker.tool().ask(RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
        assert {queue.topic for queue in stats.offset_table} == {"T"}


@pytest.mark.parametrize("is_cold", [False, True])
async def test_consume_stats_of_the_whole_broker(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        broker.offsets.commit_pull("CG", "T", 0, 6)
        if is_cold:
            broker.go_cold()
        body = await broker.tool().ask(
            RequestCode.GET_BROKER_CONSUME_STATS,
            ConsumeStatsList,
            GetConsumeStatsInBrokerHeader(is_order=False),
        )
        by_group = {group: stats for entry in body.consume_stats_list for group, stats in entry.items()}
        assert set(by_group) == set(broker.groups.table)
        (stats,) = by_group["CG"]
        assert stats.offset_table[_queue(0)] == OffsetWrapper(10, 4, 6, NOW_MS + 3000)
        assert by_group["TOOLS_CONSUMER"] == []
        assert (body.total_diff, body.total_inflight_diff) == (6, 2)
        assert body.broker_addr == "127.0.0.1:10911"


@pytest.mark.parametrize("is_cold", [False, True])
async def test_lags_of_the_whole_broker_in_a_row_for_each_topic(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        broker.offsets.commit_pull("CG", "T", 0, 6)
        if is_cold:
            broker.go_cold()
        answer = await broker.tool().call(RequestCode.GET_KOUROU_GROUP_LAGS, GetGroupLagsRequestHeader())
        assert GroupLags.decode(answer.body).rows == [GroupLagRow("CG", "T", 6, 2, 10, NOW_MS + 4000)]


async def test_consume_stats_of_ordered_topics_only(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.topics.update(TopicConfig(topic_name="O", order=True))
        for topic in ("T", "O"):
            broker.offsets.commit("CG", topic, 0, 0, "test")
        body = await broker.tool().ask(
            RequestCode.GET_BROKER_CONSUME_STATS,
            ConsumeStatsList,
            GetConsumeStatsInBrokerHeader(is_order=True),
        )
        topics = {
            queue.topic
            for entry in body.consume_stats_list
            for stats in entry.get("CG", [])
            for queue in stats.offset_table
        }
        assert topics == {"O"}


async def test_topics_and_subscription_of_a_group(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.offsets.commit("CG", "T", 0, 1, "test")
        await broker.connect().heartbeat(consumer("CG", T="a || b"))
        tool = broker.tool()
        topics = await tool.ask(
            RequestCode.QUERY_TOPICS_BY_CONSUMER, TopicList, QueryTopicsByConsumerRequestHeader(group="CG")
        )
        assert (topics.topic_list, topics.broker_addr) == (["T"], "127.0.0.1:10911")
        wanted = await tool.ask(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            QuerySubscriptionResponseBody,
            QuerySubscriptionByConsumerRequestHeader(group="CG", topic="T"),
        )
        assert wanted.subscription_data is not None
        assert (wanted.group, wanted.topic, wanted.subscription_data.sub_string) == ("CG", "T", "a || b")
        nothing = await tool.ask(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            QuerySubscriptionResponseBody,
            QuerySubscriptionByConsumerRequestHeader(group="CG", topic="U"),
        )
        assert nothing.subscription_data is None


# -- clients ---------------------------------------------------------------------------------------


async def test_consumer_connections(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        await broker.connect(40_001).heartbeat(consumer("CG", T="*"))
        header = GetConsumerConnectionListRequestHeader(consumer_group="CG")
        answer = await broker.tool().call(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        body = decode_body(answer.body, ConsumerConnection)
        (connection,) = body.connection_set
        assert (connection.client_id, connection.client_addr) == ("c40001", "10.0.0.9:40001")
        assert connection.language == "PYTHON"
        assert body.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert body.message_model is MessageModel.CLUSTERING
        assert set(body.subscription_table) == {"T", "%RETRY%CG"} & set(body.subscription_table)
        assert "T" in body.subscription_table
        assert answer.remark is None


async def test_an_unknown_language_is_other(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        peer = broker.connect(40_001)
        await peer.heartbeat(consumer("CG", T="*"))
        broker.consumers.groups["CG"].channels[peer.connection].language = 99
        body = await broker.tool().ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            ConsumerConnection,
            GetConsumerConnectionListRequestHeader(consumer_group="CG"),
        )
        assert [connection.language for connection in body.connection_set] == ["OTHER"]


async def test_the_remark_reports_inconsistent_members(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        await broker.connect(40_001).heartbeat(consumer("CG", T="a"))
        await broker.connect(40_002).heartbeat(consumer("CG", T="b"))
        header = GetConsumerConnectionListRequestHeader(consumer_group="CG")
        answer = await broker.tool().call(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        assert answer.code == 0
        assert answer.remark is not None and "members subscribe differently" in answer.remark


async def test_group_that_is_not_online_is_206_in_apaches_words(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        header = GetConsumerConnectionListRequestHeader(consumer_group="CG")
        refused = await broker.tool().refused(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        assert refused == (206, "the consumer group[CG] not online")


async def test_producer_connections(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        await broker.connect(40_001).heartbeat(producer_data_set=[ProducerData("PG")])
        tool = broker.tool()
        body = await tool.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            ProducerConnection,
            GetProducerConnectionListRequestHeader(producer_group="PG"),
        )
        assert [connection.client_id for connection in body.connection_set] == ["c40001"]
        table = await tool.ask(RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo)
        (info,) = table.data["PG"]
        assert (info.client_id, info.remote_ip) == ("c40001", "/10.0.0.9:40001")
        assert info.last_update_timestamp == NOW_MS
        refused = await tool.refused(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            GetProducerConnectionListRequestHeader(producer_group="none"),
        )
        assert refused == (1, "the producer group[none] not exist")


# -- counters --------------------------------------------------------------------------------------


async def test_counters_by_name(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.stats.group_get("CG", "T", 30, 100)
        for second in range(1, 11):
            broker.stats.tick(NOW_MS + second * 1000, wall_ms=NOW_MS + second * 1000)
        tool = broker.tool()
        header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@CG")
        data = await tool.ask(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsData, header)
        assert (data.stats_minute.sum, data.stats_minute.tps) == (30, 3.0)
        header = ViewBrokerStatsDataRequestHeader(stats_name="TOPIC_PUT_NUMS", stats_key="T")
        refused = await tool.refused(RequestCode.VIEW_BROKER_STATS_DATA, header)
        assert refused == (1, "The stats <TOPIC_PUT_NUMS> <T> not exist")


# -- units -----------------------------------------------------------------------------------------


def _units(index: int, count: int, group: str | None = None) -> QueryConsumeQueueRequestHeader:
    return QueryConsumeQueueRequestHeader(
        topic="T", queue_id=0, index=index, count=count, consumer_group=group
    )


@pytest.mark.parametrize("is_cold", [False, True])
async def test_units_of_a_queue(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        places = broker.put(*[b"x"] * 5, properties="TAGS\x01a\x02")
        if is_cold:
            broker.go_cold()
        body = await broker.tool().ask(
            RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueResponseBody, _units(3, 10)
        )
        assert body.queue_data is not None
        assert [unit.physic_offset for unit in body.queue_data] == places[3:]
        assert {unit.tags_code for unit in body.queue_data} == {tags_code("a")}
        assert not any(unit.eval for unit in body.queue_data)
        assert (body.min_queue_index, body.max_queue_index) == (0, 5)
        assert (body.subscription_data, body.filter_data) == (None, None)


async def test_units_show_which_messages_a_group_would_get(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"x", properties="TAGS\x01a\x02")
        broker.put(b"x", properties="TAGS\x01b\x02")
        await broker.connect().heartbeat(consumer("CG", T="b"))
        tool = broker.tool()
        body = await tool.ask(
            RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueResponseBody, _units(0, 10, "CG")
        )
        assert body.queue_data is not None and body.subscription_data is not None
        assert [unit.eval for unit in body.queue_data] == [False, True]
        offline = await tool.ask(
            RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueResponseBody, _units(0, 1, "none")
        )
        assert offline.filter_data == "none@T is not online!"


async def test_units_that_are_not_there(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        code = RequestCode.QUERY_CONSUME_QUEUE
        assert await tool.refused(code, _units(0, 1)) == (1, "0@T is not exist!")
        broker.put(b"x")
        assert await tool.refused(code, _units(1, 1)) == (1, "Index 1 of 0@T is not exist!")
        assert await tool.refused(code, _units(-1, 1)) == (1, "Index -1 of 0@T is not exist!")
