"""Members of a group, and where it goes on, over connections in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.unit.broker.tables_kit import MemoryBroker, consumer
from tests.unit.store.message_stores import body_for, faulty, put


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MemoryBroker]:
    broker = MemoryBroker(tmp_path)
    yield broker
    await broker.close()


async def query(broker: MemoryBroker, set_zero: bool | None = None, queue_id: int = 0) -> RemotingCommand:
    header = QueryConsumerOffsetRequestHeader(
        consumer_group="CG", topic="orders", queue_id=queue_id, set_zero_if_not_found=set_zero
    )
    return await broker.connect().call(RequestCode.QUERY_CONSUMER_OFFSET, header)


async def update(broker: MemoryBroker, commit_offset: int = 5) -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="CG", topic="orders", queue_id=0, commit_offset=commit_offset
    )
    return await broker.connect().call(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def answered(answer: RemotingCommand) -> int:
    assert answer.code == ResponseCode.SUCCESS
    return answer.header(QueryConsumerOffsetResponseHeader).consumer_offset


async def test_the_members_of_a_group_are_listed(broker: MemoryBroker) -> None:
    header = GetConsumerListByGroupRequestHeader(consumer_group="CG")
    peer = broker.connect(7)
    answer = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, CG")
    await peer.heartbeat(consumer())
    answer = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    assert answer.body == b'{"consumerIdList":["c7"]}'


async def test_a_group_goes_on_where_it_committed(broker: MemoryBroker) -> None:
    broker.groups.find("CG")
    broker.topics.update(TopicConfig("orders"))
    assert (await update(broker)).code == ResponseCode.SUCCESS
    assert answered(await query(broker)) == 5


async def test_a_new_group_on_a_young_queue_begins_with_the_first_message(broker: MemoryBroker) -> None:
    put(broker.store, b"first")
    assert answered(await query(broker)) == 0
    assert answered(await query(broker, set_zero=True)) == 0
    answer = await query(broker, set_zero=False)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "Not found, do not set to zero, maybe this group boot first"


async def java_start_offset(broker: MemoryBroker, between: Callable[[], object]) -> int:
    """Where a Java consumer with CONSUME_FROM_LAST_OFFSET begins; `between` follows its first request."""
    answer = await query(broker)
    between()
    if answer.code != ResponseCode.QUERY_NOT_FOUND:
        return answered(answer)
    queue = broker.store.queues.find("orders", 0)
    return 0 if queue is None else queue.max_queue_offset


async def test_a_message_stored_while_a_new_group_begins_in_an_empty_queue_is_consumed(
    broker: MemoryBroker,
) -> None:
    put(broker.store, b"elsewhere", queue_id=1)
    assert await java_start_offset(broker, lambda: put(broker.store, b"stored in between")) == 0
    answer = await query(broker, set_zero=False)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_message_stored_while_a_new_group_begins_in_a_queue_emptied_by_retention_is_consumed(
    broker: MemoryBroker,
) -> None:
    file_bytes = broker.store.log.file_bytes
    for queue_id in (0, 1, 1):
        put(broker.store, body_for(file_bytes - 1000), queue_id=queue_id)
    delete_first_file(broker)
    assert broker.store.min_offset_in_queue("orders", 0) == 1
    assert await java_start_offset(broker, lambda: put(broker.store, b"stored in between")) == 1


def delete_first_file(broker: MemoryBroker) -> None:
    broker.store.flush()
    broker.store.flush_derived(thorough=True)
    broker.store.log.delete_first()
    broker.store.queues.delete_expired(broker.store.log.min_phy_offset)


async def test_on_a_queue_that_has_lost_its_beginning_the_consumer_says_where_it_begins(
    broker: MemoryBroker,
) -> None:
    file_bytes = broker.store.log.file_bytes
    for _ in range(3):
        put(broker.store, body_for(file_bytes - 1000))
    delete_first_file(broker)
    assert broker.store.min_offset_in_queue("orders", 0) == 1
    answer = await query(broker)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


async def test_on_a_queue_whose_beginning_is_cold_the_consumer_says_where_it_begins(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    for number in range(2):
        put(broker.store, b"%d" % number)
    broker.reopen(read_window_bytes=0)
    assert answered(await query(broker)) == 0, "older than the window, but in the page cache"
    broker.reopen(read_window_bytes=0)
    faulty(broker.store_kit).chill()
    assert (await query(broker)).code == ResponseCode.QUERY_NOT_FOUND
    await broker.close()


async def test_commits_of_unknown_groups_and_topics_are_refused(broker: MemoryBroker) -> None:
    answer = await update(broker)
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "Group CG not exist!",
    )
    broker.groups.find("CG")
    answer = await update(broker)
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "Topic orders not exist!")
    assert broker.offsets.offset_table == {}


async def test_a_commit_during_a_reset_is_not_taken(broker: MemoryBroker) -> None:
    broker.groups.find("CG")
    broker.topics.update(TopicConfig("orders"))
    broker.offsets.assign_reset("orders", "CG", 0, 2)
    answer = await update(broker)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    assert answered(await query(broker)) == 2
    broker.set_keys(use_server_side_reset_offset=False)
    await update(broker)
    assert answered(await query(broker)) == 5


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"commitOffset": "5"}, ResponseCode.INVALID_PARAMETER, "QueueId is null, topic is orders"),
        ({"queueId": "0"}, ResponseCode.INVALID_PARAMETER, "Offset is null, topic is orders"),
    ],
)
async def test_a_commit_without_queue_or_offset_is_refused(
    broker: MemoryBroker, fields: dict[str, str], code: int, remark: str
) -> None:
    command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET)
    command.ext_fields = {"consumerGroup": "CG", "topic": "orders", **fields}
    (answer,) = await broker.connect().send(command)
    assert (answer.code, answer.remark) == (code, remark)


async def test_a_commit_that_is_no_number_is_refused(broker: MemoryBroker) -> None:
    command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET)
    command.ext_fields = {"consumerGroup": "CG", "topic": "orders", "queueId": "x", "commitOffset": "1"}
    (answer,) = await broker.connect().send(command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "queueId" in answer.remark
