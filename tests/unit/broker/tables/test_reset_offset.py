"""Resets by the server and by the clients, and asking members for their offsets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.broker.pull.long_polling import Pull
from kourou.broker.pull.pull_targets import PullTarget
from kourou.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import LanguageCode, RequestCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.headers import (
    GetConsumerStatusRequestHeader,
    PullMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from kourou.transport.request import Request
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.broker.tables_kit import Peer, consumer
from tests.unit.store.message_stores import NOW_MS

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


def _reset(timestamp: int = -1, *, is_force: bool = True, **fields: object) -> ResetOffsetRequestHeader:
    known = {"topic": "T", "group": "CG", "timestamp": timestamp, "is_force": is_force}
    return ResetOffsetRequestHeader(**{**known, **fields})  # type: ignore[arg-type]


def _queue(queue_id: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", queue_id)


def _fill(broker: AdminBroker) -> None:
    """Ten messages in queue 0, a second apart, then five in queue 1; the group is in the middle."""
    broker.put(*[b"x"] * 10)
    broker.put(*[b"x"] * 5, queue_id=1)
    broker.offsets.commit("CG", "T", 0, 4, "test")
    broker.offsets.commit("CG", "T", 1, 2, "test")


# -- by the server ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cold", [False, True])
async def test_server_notes_the_offsets_of_a_time(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        if is_cold:
            broker.go_cold()
        body = await broker.tool().ask(RESET, ResetOffsetBody, _reset(NOW_MS + 6000))
        assert body.offset_table == {_queue(0): 6, _queue(1): 0}
        assert broker.offsets.reset_pending("T", "CG", 0) == 6
        assert broker.offsets.reset_pending("T", "CG", 1) == 0


async def test_held_pulls_learn_of_a_reset_at_once(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        pull = _held_pull(broker)
        broker.holds.hold(pull, 15_000)
        await broker.tool().ask(RESET, ResetOffsetBody, _reset(NOW_MS))
        assert broker.woken == [pull]


def _held_pull(broker: AdminBroker) -> Pull:
    header = PullMessageRequestHeader(
        consumer_group="CG",
        topic="T",
        queue_id=0,
        queue_offset=10,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=1,
    )
    head = CommandHead(RequestCode.PULL_MESSAGE)
    request = Request(broker.connect().connection, 0, head, b"")
    target = PullTarget(broker.topics.table["T"], broker.groups.table["CG"], None)
    return Pull(request, header, target)


async def test_minus_one_means_the_end(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        body = await broker.tool().ask(RESET, ResetOffsetBody, _reset(-1))
        assert body.offset_table == {_queue(0): 10, _queue(1): 5}


async def test_without_force_offsets_only_move_back(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        body = await broker.tool().ask(RESET, ResetOffsetBody, _reset(NOW_MS + 6000, is_force=False))
        assert body.offset_table == {_queue(0): 4, _queue(1): 0}


async def test_one_queue_is_moved_to_a_given_offset(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        tool = broker.tool()
        body = await tool.ask(RESET, ResetOffsetBody, _reset(queue_id=1, queue_offset=3, is_force=False))
        assert body.offset_table == {_queue(1): 3}
        assert broker.offsets.reset_pending("T", "CG", 0) is None
        body = await tool.ask(RESET, ResetOffsetBody, _reset(NOW_MS + 3000, queue_id=0, queue_offset=-1))
        assert body.offset_table == {_queue(0): 3}


async def test_offset_outside_of_the_queue_is_refused(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        _fill(broker)
        refused = await broker.tool().refused(RESET, _reset(queue_id=1, queue_offset=7))
        assert refused == (1, "Target offset 7 not in consume queue range [0-5]")
        assert broker.offsets.reset_pending("T", "CG", 1) is None


async def test_unknown_topic_and_group_are_refused(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        assert await tool.refused(RESET, _reset(topic="none")) == (17, "Topic none does not exist")
        assert await tool.refused(RESET, _reset(group="none")) == (26, "Group none does not exist")


async def test_slave_refuses(tmp_path: Path) -> None:
    async with admin_broker(tmp_path, broker_role="SLAVE", broker_id=1) as broker:
        assert await broker.tool().refused(RESET, _reset()) == (1, "Can not reset offset in slave broker")


# -- by the clients --------------------------------------------------------------------------------


async def test_members_are_sent_the_offsets(tmp_path: Path) -> None:
    async with admin_broker(tmp_path, use_server_side_reset_offset=False) as broker:
        _fill(broker)
        java, cpp = broker.connect(40_001), await _cpp_member(broker)
        await java.heartbeat(consumer())
        java.received(), cpp.received()
        body = await broker.tool().ask(RESET, ResetOffsetBody, _reset(NOW_MS + 6000))
        assert body.offset_table == {_queue(0): 6, _queue(1): 0}
        assert broker.offsets.reset_pending("T", "CG", 0) is None
        (reported,) = java.received()
        assert (reported.code, reported.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert reported.header(ResetOffsetRequestHeader) == _reset(NOW_MS + 6000)
        assert decode_body(reported.body, ResetOffsetBody) == body
        assert reported.body.startswith(b'{"offsetTable":{{')
        (told_cpp,) = cpp.received()
        assert told_cpp.body.startswith(b'{"offsetTable":[{')
        assert decode_body(told_cpp.body, ResetOffsetBody) == body


async def test_no_online_member_is_206_in_apaches_wording(tmp_path: Path) -> None:
    async with admin_broker(tmp_path, use_server_side_reset_offset=False) as broker:
        _fill(broker)
        assert await broker.tool().refused(RESET, _reset(NOW_MS)) == (
            206,
            f"Consumer not online, so can not reset offset, Group: CG Topic: T Timestamp: {NOW_MS}",
        )


async def test_group_that_never_consumed_is_refused(tmp_path: Path) -> None:
    async with admin_broker(tmp_path, use_server_side_reset_offset=False) as broker:
        assert await broker.tool().refused(RESET, _reset()) == (1, "THe consumer group <CG> not exist")
        code, remark = await broker.tool().refused(RESET, _reset(topic="none"))
        assert code == 1
        assert remark == "[reset-offset] reset offset failed, no topic in this broker. topic=none"


async def _cpp_member(broker: AdminBroker) -> Peer:
    peer = broker.connect(40_002)
    await peer.heartbeat(consumer())
    group = broker.consumers.get("CG")
    assert group is not None
    group.channels[peer.connection].language = LanguageCode.CPP
    return peer


# -- asking members --------------------------------------------------------------------------------

STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


async def test_members_report_their_offsets(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        one, other, tool = broker.connect(40_001), broker.connect(40_002), broker.tool()
        await one.heartbeat(consumer())
        await other.heartbeat(consumer())
        one.received(), other.received()
        tool.start(STATUS, GetConsumerStatusRequestHeader(topic="T", group="CG"))
        await _run_once()
        _answer_call(one, GetConsumerStatusBody({_queue(0): 4}))
        _answer_call(other, GetConsumerStatusBody({_queue(1): 2}))
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        body = decode_body(answer.body, GetConsumerStatusBody)
        assert body.consumer_table == {"c40001": {_queue(0): 4}, "c40002": {_queue(1): 2}}


async def test_member_that_is_silent_or_refuses_is_left_out(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        members = [broker.connect(port) for port in (40_001, 40_002, 40_003)]
        for member in members:
            await member.heartbeat(consumer())
        for member in members:
            member.received()
        tool = broker.tool()
        tool.start(STATUS, GetConsumerStatusRequestHeader(topic="T", group="CG"))
        await _run_once()
        _answer_call(members[0], GetConsumerStatusBody({_queue(0): 4}))
        _answer_call(members[1], GetConsumerStatusBody(), code=1)
        members[2].connection.calls.expire(float("inf"))
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert list(decode_body(answer.body, GetConsumerStatusBody).consumer_table) == ["c40001"]


async def test_only_the_member_asked_for_is_called(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        one, other, tool = broker.connect(40_001), broker.connect(40_002), broker.tool()
        await one.heartbeat(consumer())
        await other.heartbeat(consumer())
        one.received(), other.received()
        header = GetConsumerStatusRequestHeader(topic="T", group="CG", client_addr="c40002")
        tool.start(STATUS, header)
        await _run_once()
        assert one.received() == []
        _answer_call(other, GetConsumerStatusBody({_queue(1): 2}))
        await broker.tasks.wait_idle(5)
        assert len(tool.received()) == 1


async def test_group_without_members_is_refused(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        header = GetConsumerStatusRequestHeader(topic="T", group="CG")
        refused = await broker.tool().refused(STATUS, header)
        assert refused == (1, "No Any Consumer online in the consumer group: [CG]")


def _answer_call(member: Peer, body: GetConsumerStatusBody, code: int = 0) -> None:
    (asked,) = member.received()
    assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert asked.header(GetConsumerStatusRequestHeader).topic == "T"
    answer = RemotingCommand(code, opaque=asked.opaque, flag=1, body=encode_body(body))
    member.connection.data_received(answer.encode())


async def _run_once() -> None:
    """Let started tasks run until they wait."""
    for _ in range(3):
        await asyncio.sleep(0)
