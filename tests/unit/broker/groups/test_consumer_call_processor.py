"""Calls that are passed on to a consumer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from kourou.protocol.message_id import offset_msg_id
from kourou.protocol.record import decode_record
from tests.unit.broker.admin_kit import AdminBroker, AdminPeer, admin_broker
from tests.unit.broker.tables_kit import Peer, consumer
from tests.unit.store.message_stores import STORE_HOST

INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY


async def _member(broker: AdminBroker) -> Peer:
    peer = broker.connect(40_001)
    await peer.heartbeat(consumer("CG"))
    peer.received()
    return peer


async def _start(tool: AdminPeer, member: Peer, header: object, code: RequestCode) -> RemotingCommand:
    """Send a tool's request; what the member is asked."""
    tool.start(code, header)  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        while not (asked := member.received()):  # noqa: ASYNC110  a transport in memory does not notify
            await asyncio.sleep(0)
    return asked[0]


def _running_info(client_id: str = "c40001") -> GetConsumerRunningInfoRequestHeader:
    return GetConsumerRunningInfoRequestHeader(consumer_group="CG", client_id=client_id, jstack_enable=True)


async def test_running_info_is_the_members_answer(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        member, tool = await _member(broker), broker.tool()
        asked = await _start(tool, member, _running_info(), INFO)
        assert asked.code == INFO
        assert asked.header(GetConsumerRunningInfoRequestHeader) == _running_info()
        said = RemotingCommand(0, opaque=asked.opaque, flag=1, remark="fine", body=b'{"jstack":"x"}')
        member.connection.data_received(said.encode())
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert (answer.code, answer.remark, answer.body) == (0, "fine", b'{"jstack":"x"}')


async def test_members_refusal_is_passed_on(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        member, tool = await _member(broker), broker.tool()
        asked = await _start(tool, member, _running_info(), INFO)
        said = RemotingCommand(1, opaque=asked.opaque, flag=1, remark="no such group here")
        member.connection.data_received(said.encode())
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert answer.code == 1
        assert answer.remark is not None
        assert answer.remark.startswith("consumer <CG> <c40001> at ")
        assert answer.remark.endswith(" answers: no such group here")


async def test_member_that_does_not_answer_is_207(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        member, tool = await _member(broker), broker.tool()
        await _start(tool, member, _running_info(), INFO)
        member.connection.calls.expire(float("inf"))
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert answer.remark is not None and answer.remark.startswith("consumer <CG> <c40001> Timeout: ")


async def test_member_that_goes_away_is_an_error(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        member, tool = await _member(broker), broker.tool()
        await _start(tool, member, _running_info(), INFO)
        member.transport.break_off()
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("invoke consumer <CG> <c40001> Exception: ")


async def test_member_that_is_not_online_is_refused_in_apaches_words(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        await _member(broker)
        refused = await broker.tool().refused(INFO, _running_info("other"))
        assert refused == (1, "The Consumer <CG> <other> not online")


@pytest.mark.parametrize("is_cold", [False, True])
async def test_member_gets_the_stored_message(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        member, tool = await _member(broker), broker.tool()
        (place,) = broker.put(b"hello")
        if is_cold:
            broker.go_cold()
        msg_id = offset_msg_id(STORE_HOST, place)
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="CG", client_id="c40001", msg_id=msg_id
        )
        asked = await _start(tool, member, header, DIRECTLY)
        assert decode_record(asked.body).body == b"hello"
        assert asked.ext_fields == {
            "consumerGroup": "CG",
            "clientId": "c40001",
            "msgId": msg_id,
            "brokerName": "broker-a",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        said = RemotingCommand(0, opaque=asked.opaque, flag=1, body=b'{"consumeResult":"CR_SUCCESS"}')
        member.connection.data_received(said.encode())
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize(
    ("msg_id", "words"),
    [
        (None, "msgId is missing"),
        ("xyz", "instead of 32 or 56"),
        (offset_msg_id(STORE_HOST, 7), "can not find message by the offset, 7"),
    ],
)
async def test_message_that_is_not_there_is_refused(tmp_path: Path, msg_id: str | None, words: str) -> None:
    async with admin_broker(tmp_path) as broker:
        await _member(broker)
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="CG", client_id="c40001", msg_id=msg_id
        )
        code, remark = await broker.tool().refused(DIRECTLY, header)
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark is not None and words in remark
