"""Offsets of queues and tables of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    QueryCorrectionOffsetBody,
    SubscriptionGroupConfig,
    TopicConfig,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
)
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.broker.tables_kit import consumer
from tests.unit.store.message_stores import NOW_MS, put


async def _search(broker: AdminBroker, timestamp: int, boundary: str | None = None) -> str:
    header = SearchOffsetRequestHeader(topic="T", queue_id=0, timestamp=timestamp, boundary_type=boundary)
    answer = await broker.tool().call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    assert answer.code == 0 and answer.ext_fields is not None
    return answer.ext_fields["offset"]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_offset_for_a_point_in_time(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(*[b"x"] * 50)  # at NOW_MS, a second apart
        if is_cold:
            broker.go_cold()
        assert await _search(broker, NOW_MS + 7000) == "7"
        assert await _search(broker, NOW_MS + 7001) == "8"
        assert await _search(broker, NOW_MS + 7001, "LOWER") == "8"
        assert await _search(broker, NOW_MS + 7001, "upper") == "7"
        assert await _search(broker, 0) == "0"
        assert await _search(broker, NOW_MS + 3_600_000) == "50"
        assert (broker.disk_jobs > 0) >= is_cold


async def test_unknown_queue_has_offset_0_and_no_time(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        assert await _search(broker, NOW_MS) == "0"
        highest = await tool.call(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="none", queue_id=9)
        )
        lowest = await tool.call(
            RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="none", queue_id=9)
        )
        earliest = await tool.call(
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            GetEarliestMsgStoretimeRequestHeader(topic="none", queue_id=9),
        )
        assert [highest.ext_fields, lowest.ext_fields] == [{"offset": "0"}] * 2
        assert earliest.ext_fields == {"timestamp": "-1"}


@pytest.mark.parametrize("is_cold", [False, True])
async def test_ends_of_a_queue(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"a", b"b", b"c")
        if is_cold:
            broker.go_cold()
        tool = broker.tool()
        highest = await tool.call(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queue_id=0)
        )
        lowest = await tool.call(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="T", queue_id=0))
        earliest = await tool.call(
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            GetEarliestMsgStoretimeRequestHeader(topic="T", queue_id=0),
        )
        assert highest.ext_fields == {"offset": "3"}
        assert lowest.ext_fields == {"offset": "0"}
        assert earliest.ext_fields == {"timestamp": str(NOW_MS)}


async def test_max_offset_that_is_not_committed_counts_what_is_being_put(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"a")
        queue = broker.store.queue("T", 0)
        queue.next_queue_offset += 1
        tool = broker.tool()
        seen = await tool.call(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queue_id=0, committed=True)
        )
        given = await tool.call(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queue_id=0, committed=False)
        )
        assert (seen.ext_fields, given.ext_fields) == ({"offset": "1"}, {"offset": "2"})
        queue.next_queue_offset -= 1


async def test_whole_table_of_consumer_offsets(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.offsets.commit("CG", "T", 1, 7, "test")
        body = await broker.tool().ask(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper)
        assert body.offset_table == {"T@CG": {1: 7}}
        assert body.data_version == broker.offsets.data_version


async def test_delay_offsets_are_those_delivered(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        body = await tool.ask(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetSerializeWrapper)
        assert body.offset_table == {}
        broker.delay_offsets.advance(1, 4)
        broker.delay_offsets.advance(3, 2)
        body = await tool.ask(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetSerializeWrapper)
        assert body.offset_table == {1: 4, 3: 2}


async def test_correction_offsets_are_the_lowest_of_the_other_groups(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        put(broker.store, b"x", "T", 0)
        for group, offsets in {"A": (5, 9), "B": (3, 8), "C": (1, 1)}.items():
            for queue_id, queue_offset in enumerate(offsets):
                broker.offsets.commit(group, "T", queue_id, queue_offset, "test")
        broker.offsets.commit("me", "T", 0, 4, "test")
        broker.offsets.commit("me", "T", 1, 2, "test")
        header = QueryCorrectionOffsetHeader(topic="T", compare_group="me", filter_groups="C,me")
        body = await broker.tool().ask(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetBody, header)
        # In queue 1 the others are ahead of the group that asks: Apache's word for "nothing to do".
        assert body.correction_offsets == {0: 3, 1: 2**63 - 1}
        # Apache forgets the groups that are left out.
        assert broker.offsets.query("C", "T", 0) == 1


async def test_group_goes_on_where_another_is(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.topics.update(TopicConfig(topic_name="U"))
        for topic in ("T", "U", "gone"):
            broker.offsets.commit("CG", topic, 0, 5, "test")
        header = CloneGroupOffsetRequestHeader(src_group="CG", dest_group="new")
        assert (await broker.tool().call(RequestCode.CLONE_GROUP_OFFSET, header)).code == 0
        assert broker.offsets.topics_of("new") == {"T", "U"}
        assert broker.offsets.query("new", "T", 0) == 5


@pytest.mark.parametrize("offline", [False, True])
async def test_topics_that_members_left_are_cloned_only_when_asked(tmp_path: Path, offline: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.topics.update(TopicConfig(topic_name="U"))
        broker.groups.update(SubscriptionGroupConfig(group_name="CG"))
        await broker.connect().heartbeat(consumer("CG", T="*"))
        for topic in ("T", "U"):
            broker.offsets.commit("CG", topic, 0, 5, "test")
        header = CloneGroupOffsetRequestHeader(src_group="CG", dest_group="new", topic="U", offline=offline)
        assert (await broker.tool().call(RequestCode.CLONE_GROUP_OFFSET, header)).code == 0
        assert broker.offsets.topics_of("new") == ({"U"} if offline else set())
