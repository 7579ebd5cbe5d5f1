"""Request-reply on a real broker: a reply is pushed to who asked, and stored."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.broker.send import reply_processor
from kourou.protocol.bodies import HeartbeatData, ProducerData, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import ReplyMessageRequestHeader
from kourou.protocol.properties import decode_properties
from kourou.transport.client import RemotingClient
from kourou.transport.request import Request
from tests.e2e.broker.broker_kit import Peer, messages, running, send_header, send_header_v1
from tests.e2e.broker.transaction_kit import stored

pytestmark = pytest.mark.e2e

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REPLY = (
    "MSG_TYPE\x01reply\x02CORRELATION_ID\x01corr-1\x02REPLY_TO_CLIENT\x01asker\x02"
    "TTL\x013000\x02UNIQ_KEY\x01R1\x02"
)


class Requester:
    """A client that waits for replies; `code` is what it answers."""

    def __init__(self) -> None:
        self.code: int | None = 0
        self.pushed: list[tuple[ReplyMessageRequestHeader, bytes]] = []
        self.client = RemotingClient(processors={RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take})

    def _take(self, request: Request) -> None:
        self.pushed.append((request.header(ReplyMessageRequestHeader), request.body))
        if self.code is not None:
            request.reply(code=self.code)


@contextlib.asynccontextmanager
async def asking(peer: Peer) -> AsyncIterator[Requester]:
    """A client `asker` that the broker knows."""
    requester = Requester()
    data = HeartbeatData(client_id="asker", producer_data_set=[ProducerData(group_name="Askers")])
    command = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
    try:
        assert (await requester.client.call(peer.controller.address, command)).code == 0
        yield requester
    finally:
        await requester.client.stop()


async def reply(peer: Peer, properties: str = REPLY) -> RemotingCommand:
    """Send a reply as the Java client does."""
    header = send_header(REPLY_TOPIC, properties, producer_group="Repliers")
    return await peer.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"pong")


async def test_a_reply_is_pushed_to_the_requester_and_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, asking(peer) as requester:
        answer = await reply(peer)
        assert answer.code == 0, answer.remark
        ((header, body),) = requester.pushed
        assert (header.topic, header.producer_group, header.queue_id) == (REPLY_TOPIC, "Repliers", 0)
        assert (header.store_host, body) == (peer.controller.address, b"pong")
        pushed = decode_properties(header.properties or "")
        assert (pushed["CORRELATION_ID"], pushed["MSG_TYPE"], pushed["UNIQ_KEY"]) == ("corr-1", "reply", "R1")
        assert pushed["PUSH_REPLY_TIME"] == str(header.store_timestamp)
        (record,) = stored(peer.controller, REPLY_TOPIC)
        assert record.stored_body == b"pong" and "PUSH_REPLY_TIME" not in record.properties
        fields = answer.ext_fields or {}
        assert fields["msgId"] == record.offset_msg_id
        assert (fields["queueId"], fields["queueOffset"]) == ("0", "0")
        assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("DefaultRegion", "true")


async def test_the_old_form_is_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, asking(peer) as requester:
        header = send_header_v1(REPLY_TOPIC, REPLY)
        assert (await peer.call(RequestCode.SEND_REPLY_MESSAGE, header, b"pong")).code == 0
        await peer.oneway(RequestCode.SEND_REPLY_MESSAGE, header, b"pong")
        assert (await reply(peer)).code == 0
        assert [body for _, body in requester.pushed] == [b"pong"] * 3


async def test_without_storing_the_answer_has_no_id(tmp_path: Path) -> None:
    async with running(tmp_path, store_reply_message_enable=False) as peer, asking(peer) as requester:
        answer = await reply(peer)
        fields = answer.ext_fields or {}
        assert (answer.code, fields["msgId"], fields["queueOffset"]) == (0, "0", "0")
        assert len(requester.pushed) == 1
        assert not stored(peer.controller, REPLY_TOPIC)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ("MSG_TYPE\x01reply\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        ("REPLY_TO_CLIENT\x01nobody\x02", "push reply message fail, channel of <nobody> not found."),
    ],
)
async def test_a_reply_without_a_requester_is_stored_and_reported_as_failed(
    tmp_path: Path, properties: str, words: str
) -> None:
    async with running(tmp_path) as peer:
        answer = await reply(peer, properties)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)
        (record,) = stored(peer.controller, REPLY_TOPIC)
        assert (answer.ext_fields or {})["msgId"] == record.offset_msg_id


async def test_a_requester_that_refuses_or_is_silent_or_gone_fails_the_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_processor, "_PUSH_TIMEOUT_MS", 50)
    async with running(tmp_path) as peer, asking(peer) as requester:
        for code in (1, None):
            requester.code = code
            answer = await reply(peer)
            assert answer.code == 1
            assert (answer.remark or "").startswith("push reply message to asker fail.")
        await requester.client.stop()
        assert (await reply(peer)).code == 1
        assert len(stored(peer.controller, REPLY_TOPIC)) == 3


async def test_a_reply_is_checked_as_any_send(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create_topic_enable=False) as peer, asking(peer) as requester:
        for topic, fields, code in (
            ("NoSuchTopic", {}, ResponseCode.TOPIC_NOT_EXIST),
            (REPLY_TOPIC, {"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
            (REPLY_TOPIC, {"batch": True}, ResponseCode.MESSAGE_ILLEGAL),
            ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION),
        ):
            header = send_header(topic, REPLY, **fields)
            assert (await peer.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"pong")).code == code
        assert not requester.pushed


async def test_a_whole_round_from_request_to_reply(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, asking(peer) as requester:
        ask = "CORRELATION_ID\x01corr-1\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000\x02"
        await peer.send("TopicTest", b"ping", ask)
        (request,) = messages(await peer.pull())
        assert request.properties["CLUSTER"] == "DefaultCluster"
        kept = ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")
        answer = "MSG_TYPE\x01reply\x02" + "".join(
            f"{name}\x01{request.properties[name]}\x02" for name in kept
        )
        assert (await reply(peer, answer)).code == 0
        ((header, _),) = requester.pushed
        assert decode_properties(header.properties or "")["CORRELATION_ID"] == "corr-1"
