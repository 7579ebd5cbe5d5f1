"""Sending to a real broker: what is stored, what is answered, what is refused and in which words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.broker.hooks import BrokerHooks, SendContext
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.message_id import parse_offset_msg_id
from tests.e2e.broker.broker_kit import Peer, messages, running, send_header, send_header_v1

pytestmark = pytest.mark.e2e


async def stored(peer: Peer, topic: str = "TopicTest", **fields: int) -> list[bytes]:
    return [message.body for message in messages(await peer.pull(topic, **fields))]


async def test_a_message_is_stored_with_what_it_came_with(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answer = await peer.send(
            body=b"hello",
            properties="UNIQ_KEY\x01ABC0123\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02"
            "WAIT\x01true\x02me\x01mine\x02",
            queue_id=3,
            flag=7,
            sys_flag=1,
        )
        header = answer.header(SendMessageResponseHeader)
        assert (answer.code, header.queue_id, header.queue_offset) == (0, 3, 0)
        assert header.transaction_id == "ABC0123"
        assert (header.msg_region, header.trace_on) == ("DefaultRegion", True)
        place = parse_offset_msg_id(header.msg_id)
        assert (place.address, place.phy_offset) == (peer.controller.address, 0)
        (message,) = messages(await peer.pull(queue_id=3))
        assert (message.stored_body, message.flag, message.sys_flag, message.queue_id) == (b"hello", 7, 1, 3)
        assert message.born_timestamp == 1_700_000_000_000
        assert message.properties == {
            "UNIQ_KEY": "ABC0123",
            "TAGS": "TagA",
            "KEYS": "k1 k2",
            "WAIT": "true",
            "me": "mine",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }


async def test_the_old_form_of_a_send_is_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answer = await peer.call(RequestCode.SEND_MESSAGE, send_header_v1("TopicTest"), b"old")
        assert answer.header(SendMessageResponseHeader).queue_offset == 0
        assert await stored(peer) == [b"old"]


async def test_a_message_without_an_id_gets_one(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        given = (await peer.send()).header(SendMessageResponseHeader).transaction_id
        (message,) = messages(await peer.pull())
        assert given and message.properties["UNIQ_KEY"] == given


async def test_an_id_that_json_has_to_escape_comes_back_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answer = await peer.send(properties='UNIQ_KEY\x01a"b\\c é\x02')
        assert answer.header(SendMessageResponseHeader).transaction_id == 'a"b\\c é'


async def test_the_binary_form_is_answered_in_kind(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_header("TopicTest"), b"x")
        command.serialize_type = 1
        answer = await peer.client.call(peer.controller.address, command, 5_000)
        assert (answer.serialize_type, answer.header(SendMessageResponseHeader).queue_offset) == (1, 0)


async def test_a_batch_takes_consecutive_places_and_has_an_id_for_each(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(body=b"before")
        header = (await peer.send_batch("TopicTest", [b"a", b"b", b"c"])).header(SendMessageResponseHeader)
        assert (len(header.msg_id.split(",")), header.queue_offset) == (3, 1)
        assert await stored(peer) == [b"before", b"a", b"b", b"c"]


async def test_one_way_sends_are_stored_and_not_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.oneway(RequestCode.SEND_MESSAGE_V2, send_header("TopicTest"), b"gone")
        await peer.send(body=b"after")
        assert await stored(peer) == [b"gone", b"after"]


async def test_a_queue_below_zero_lets_the_broker_choose(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        chosen = {
            (await peer.send(queue_id=-1)).header(SendMessageResponseHeader).queue_id for _ in range(60)
        }
        assert chosen == {0, 1, 2, 3}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_many_senders_at_once_keep_their_order(tmp_path: Path, flush: str) -> None:
    async with running(tmp_path, flush_disk_type=flush) as peer:
        await asyncio.gather(*(peer.send(body=b"%d" % n, queue_id=n % 4) for n in range(400)))
        for queue_id in range(4):
            bodies = await stored(peer, queue_id=queue_id, max_msg_nums=1000, kourou_large_pull=True)
            assert bodies == [b"%d" % n for n in range(queue_id, 400, 4)]


async def test_a_pass_of_many_bytes_is_written_early(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        bodies = [bytes([n]) * 60_000 for n in range(60)]
        await asyncio.gather(*(peer.send(body=body) for body in bodies))
        taken: list[bytes] = []
        while len(taken) < 60:
            taken += await stored(peer, queue_offset=len(taken))
        assert taken == bodies


# -- topics --------------------------------------------------------------------------------------


async def test_an_unknown_topic_is_made_from_the_default_one(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send("Fresh", default_topic_queue_nums=3)
        config = peer.controller.services.topics.table["Fresh"]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)


async def test_a_topic_and_its_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send("Fresh", b"kept")
    async with running(tmp_path) as peer:
        assert "Fresh" in peer.controller.services.topics.table
        assert await stored(peer, "Fresh") == [b"kept"]


async def test_queues_whose_topic_is_lost_get_it_back(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send("Fresh", b"kept", queue_id=2)
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "store" / "config" / name).unlink(missing_ok=True)
    async with running(tmp_path) as peer:
        assert peer.controller.services.topics.table["Fresh"].read_queue_nums == 3
        assert await stored(peer, "Fresh", queue_id=2) == [b"kept"]


@pytest.mark.parametrize(
    ("topic", "fields", "code", "says"),
    [
        ("bad name", {}, ResponseCode.INVALID_PARAMETER, "bad name"),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ("T", {"default_topic": "NoSuch"}, ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist, apply first"),
        ("TopicTest", {"queue_id": 9}, ResponseCode.INVALID_PARAMETER, "request queueId[9] is illegal"),
    ],
)
async def test_what_cannot_be_sent_is_refused(
    tmp_path: Path, topic: str, fields: dict[str, object], code: int, says: str
) -> None:
    async with running(tmp_path) as peer:
        await peer.send("TopicTest")
        answer = await peer.send(topic, **fields)
        assert answer.code == code and says in (answer.remark or "")
        assert await stored(peer) == [b"hello"]


async def test_a_body_over_the_limit_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answers = await asyncio.gather(
            peer.send(body=b"small"), peer.send(body=bytes(64 * 1024 + 1)), peer.send(body=b"small too")
        )
        assert [answer.code for answer in answers] == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
        assert "msg body length limit 65536B" in (answers[1].remark or "")
        assert await stored(peer) == [b"small", b"small too"]


async def test_a_batch_to_a_retry_topic_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answer = await peer.send_batch("%RETRY%group", [b"a"])
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_batch_that_is_none_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        answer = await peer.call(
            RequestCode.SEND_BATCH_MESSAGE, send_header("TopicTest", batch=True), b"garbage"
        )
        assert answer.code != 0 and "batch" in (answer.remark or "")


async def test_a_message_tried_too_often_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send("%RETRY%group", b"again", reconsume_times=2, max_reconsume_times=3)
        await peer.send("%RETRY%group", b"enough", reconsume_times=4, max_reconsume_times=3)
        assert await stored(peer, "%RETRY%group") == [b"again"]
        assert await stored(peer, "%DLQ%group") == [b"enough"]


async def test_a_hook_sees_messages_and_may_refuse_them(tmp_path: Path) -> None:
    seen: list[SendContext] = []

    def no_secrets(context: SendContext) -> None:
        seen.append(context)
        if b"secret" in context.body:
            raise RequestError(ResponseCode.NO_PERMISSION, "no secrets here")

    hooks = BrokerHooks(before_send=[no_secrets])
    async with running(tmp_path, hooks=hooks) as peer:
        assert (await peer.send(body=b"open")).code == 0
        answer = await peer.send(body=b"a secret")
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "no secrets here")
        assert [context.body for context in seen] == [b"open", b"a secret"]
        assert await stored(peer) == [b"open"]
