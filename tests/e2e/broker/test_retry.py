"""Messages that consumers send back: when they come again, what they remember, when they are given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.bodies import LockBatchRequestBody, MessageQueue, SubscriptionGroupConfig, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.message import MessageExt
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer, messages
from tests.e2e.broker.delay_kit import clocked, count_in, pulled, settle

pytestmark = pytest.mark.e2e

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
RETRY, DLQ = "%RETRY%consumers", "%DLQ%consumers"
PROPERTIES = "UNIQ_KEY\x01ID1\x02TAGS\x01TagA\x02"


async def send_back(peer: Peer, phy_offset: int, delay_level: int = 0, **fields: Any) -> RemotingCommand:
    header = {
        "phy_offset": phy_offset,
        "group": "consumers",
        "delay_level": delay_level,
        "origin_msg_id": "ID1",
        "origin_topic": "TopicTest",
        **fields,
    }
    return await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(**header))


async def first(peer: Peer) -> MessageExt:
    """A message, as a consumer got it."""
    await peer.send(properties=PROPERTIES, body=b"again")
    return (await pulled(peer, 1))[0]


async def test_a_message_comes_again_in_the_retry_topic(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        message = await first(peer)
        answer = await send_back(peer, message.phy_offset)
        assert (answer.code, answer.ext_fields, answer.body) == (0, None, b"")
        (waiting,) = messages(await peer.pull(SCHEDULE, queue_id=2))  # 10 s, the third level
        assert waiting.reconsume_times == 1
        clock.advance(9_000)
        await settle()
        assert count_in(peer, RETRY) == 0
        clock.advance(1_000)
        (again,) = await pulled(peer, 1, RETRY)
        assert (again.body, again.reconsume_times, again.tags) == (b"again", 1, "TagA")
        assert again.born_timestamp == message.born_timestamp
        assert again.properties["RETRY_TOPIC"] == "TopicTest"
        assert again.properties["ORIGIN_MESSAGE_ID"] == message.offset_msg_id
        assert again.properties["UNIQ_KEY"] == "ID1"
        assert again.properties["REAL_TOPIC"] == RETRY
        assert again.prepared_transaction_offset == waiting.phy_offset + 1


async def test_each_attempt_waits_longer_and_the_last_ends_in_the_dead_letters(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        origin = message = await first(peer)
        levels = []
        for attempt in range(16):
            assert (await send_back(peer, message.phy_offset)).code == 0
            store = peer.controller.services.store
            levels.append(
                next(n for n in range(18) if store.max_offset_in_queue(SCHEDULE, n) and n not in levels)
            )
            clock.advance(2 * 3_600_000)
            message = (await pulled(peer, attempt + 1, RETRY))[-1]
            assert message.reconsume_times == attempt + 1
        assert levels == list(range(2, 18))
        assert (await send_back(peer, message.phy_offset)).code == 0
        (dead,) = await pulled(peer, 1, DLQ)
        assert dead.reconsume_times == 17
        assert dead.properties["DELAY"] == "0"
        assert dead.properties["ORIGIN_MESSAGE_ID"] == origin.offset_msg_id
        assert dead.properties["RETRY_TOPIC"] == "TopicTest"


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (7, 6), (99, 17)])
async def test_a_consumer_may_choose_the_level(tmp_path: Path, level: int, queue_id: int) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        message = await first(peer)
        assert (await send_back(peer, message.phy_offset, level)).code == 0
        assert count_in(peer, SCHEDULE, queue_id) == 1


async def test_below_zero_means_no_more(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        message = await first(peer)
        assert (await send_back(peer, message.phy_offset, -1)).code == 0
        (dead,) = await pulled(peer, 1, DLQ)
        assert dead.reconsume_times == 1
        topic = peer.controller.services.topics.get(DLQ)
        assert topic is not None and (topic.perm, topic.write_queue_nums) == (6, 1)


@pytest.mark.parametrize(("version", "is_dead"), [(479, True), (100, False)])
async def test_the_clients_limit_counts_if_it_is_new_enough(
    tmp_path: Path, version: int, is_dead: bool
) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        message = await first(peer)
        header = ConsumerSendMsgBackRequestHeader(
            phy_offset=message.phy_offset, group="consumers", delay_level=0, max_reconsume_times=0
        )
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        command.version = version
        assert (await peer.client.call(peer.controller.address, command, 5_000)).code == 0
        assert count_in(peer, DLQ) == int(is_dead)
        assert count_in(peer, SCHEDULE, 2) == int(not is_dead)


async def test_the_groups_limit_counts_without_the_clients(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        group = SubscriptionGroupConfig(group_name="consumers", retry_max_times=0)
        peer.controller.services.groups.update(group)
        message = await first(peer)
        assert (await send_back(peer, message.phy_offset)).code == 0
        assert count_in(peer, DLQ) == 1


async def test_a_group_without_retry_queues_lets_go(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        group = SubscriptionGroupConfig(group_name="consumers", retry_queue_nums=0)
        peer.controller.services.groups.update(group)
        message = await first(peer)
        assert (await send_back(peer, message.phy_offset)).code == 0
        assert count_in(peer, SCHEDULE, 2) == 0


async def test_what_is_refused_and_in_which_words(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock(), auto_create_subscription_group=False) as peer:
        services = peer.controller.services
        services.groups.update(SubscriptionGroupConfig(group_name="consumers"))
        message = await first(peer)
        answer = await send_back(peer, message.phy_offset, group="nobody")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        answer = await send_back(peer, message.phy_offset + 1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(f"look message by offset failed, {message.phy_offset + 1}")
        topic = services.topics.get(RETRY)
        assert topic is not None
        topic.perm = 4
        answer = await send_back(peer, message.phy_offset)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the topic[{RETRY}] sending message is forbidden"
        services.update_config({"brokerPermission": "4"})
        answer = await send_back(peer, message.phy_offset)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending message is forbidden" in (answer.remark or "")


async def test_send_backs_are_counted(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        message = await first(peer)
        await send_back(peer, message.phy_offset)
        assert peer.controller.services.stats.view("SNDBCK_PUT_NUMS", "TopicTest@consumers") is not None


# -- consumers that send to the retry topic themselves ------------------------------------------------


async def test_the_clients_own_way_back(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        properties = f"{PROPERTIES}RETRY_TOPIC\x01TopicTest\x02DELAY\x013\x02"
        answer = await peer.send(RETRY, b"again", properties, reconsume_times=1, max_reconsume_times=16)
        assert answer.code == 0
        clock.advance(10_000)
        (again,) = await pulled(peer, 1, RETRY)
        assert again.reconsume_times == 1


async def test_the_clients_own_way_ends_in_the_dead_letters_too(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        properties = f"{PROPERTIES}DELAY\x0119\x02"
        answer = await peer.send(RETRY, b"again", properties, reconsume_times=17, max_reconsume_times=16)
        assert answer.code == 0
        (dead,) = await pulled(peer, 1, DLQ)
        assert dead.properties["DELAY"] == "-1"


async def test_what_an_orderly_group_sends_is_dead_at_once(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        queue = MessageQueue(topic="TopicTest", broker_name="broker-a", queue_id=0)
        body = LockBatchRequestBody(consumer_group="consumers", client_id="c1", mq_set=[queue])
        assert (await peer.call(RequestCode.LOCK_BATCH_MQ, None, encode_body(body))).code == 0
        await peer.send(RETRY, b"again", f"{PROPERTIES}DELAY\x013\x02", reconsume_times=1)
        assert count_in(peer, DLQ) == 1
