"""Messages with a priority: the queues they are stored in, as RocketMQ 5.5.0 chooses them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageResponseHeader
from kourou.protocol.properties import encode_properties
from tests.e2e.broker.broker_kit import Peer, messages, running, send_header, topic_header
from tests.e2e.broker.transaction_kit import stored

pytestmark = pytest.mark.e2e

PRIORITY = "_SYS_MSG_PRIORITY_"


@pytest.fixture(params=[True, False], ids=["kernel", "python"])
def keys(request: pytest.FixtureRequest) -> dict[str, bool]:
    return {"compiled_kernel_enable": request.param}


async def make_topic(peer: Peer, topic: str, queues: int, attributes: str = "") -> None:
    header = topic_header(topic, queues, attributes)
    assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0


async def sent(peer: Peer, topic: str, queue_id: int, **properties: str) -> tuple[int, dict[str, str]]:
    """The queue that a message is stored in, and its properties there."""
    text = encode_properties({"UNIQ_KEY": "AC110001A1B218B4AAC2000000003039", **properties})
    answer = await peer.send(topic, properties=text, queue_id=queue_id)
    assert answer.code == 0, answer.remark
    header = answer.header(SendMessageResponseHeader)
    (message,) = messages(await peer.pull(topic, header.queue_offset, queue_id=header.queue_id))
    return header.queue_id, message.properties


@pytest.mark.parametrize("attributes", ["", "+message.type=PRIORITY"])
async def test_the_priority_is_the_queue_whatever_the_producer_chose(
    tmp_path: Path, keys: dict[str, bool], attributes: str
) -> None:
    """RocketMQ 5.5.0 looks at the message only, not at the type of its topic."""
    async with running(tmp_path, **keys) as peer:
        await make_topic(peer, "jobs", 8, attributes)
        queues = []
        for queue_id, priority in ((0, "3"), (7, "0"), (2, "7"), (1, "8"), (5, "2147483647")):
            queue, properties = await sent(peer, "jobs", queue_id, **{PRIORITY: priority})
            assert properties[PRIORITY] == priority
            queues.append(queue)
        assert queues == [3, 0, 7, 7, 7]


async def test_what_has_no_priority_stays_in_its_queue(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        await make_topic(peer, "jobs", 8, "+message.type=PRIORITY")
        assert (await sent(peer, "jobs", 5))[0] == 5
        for value in ("-1", "high"):
            queue, properties = await sent(peer, "jobs", 5, **{PRIORITY: value})
            assert (queue, properties[PRIORITY]) == (5, value)


async def test_an_ordered_or_delayed_message_loses_its_priority(
    tmp_path: Path, keys: dict[str, bool]
) -> None:
    async with running(tmp_path, **keys) as peer:
        await make_topic(peer, "jobs", 8, "+message.type=PRIORITY")
        queue, properties = await sent(peer, "jobs", 5, __SHARDINGKEY="k", **{PRIORITY: "2"})
        assert queue == 5
        assert PRIORITY not in properties
        await peer.send("jobs", properties=encode_properties({"DELAY": "1", PRIORITY: "2"}), queue_id=4)
        async with asyncio.timeout(10):
            while not (late := stored(peer.controller, "jobs", 4)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert PRIORITY not in late[0].properties


async def test_a_batch_stays_in_its_queue(tmp_path: Path, keys: dict[str, bool]) -> None:
    async with running(tmp_path, **keys) as peer:
        await make_topic(peer, "jobs", 8, "+message.type=PRIORITY")
        entries = [BatchEntry(0, b"x", encode_properties({PRIORITY: "2"}).encode()) for _ in range(2)]
        header = send_header("jobs", "", batch=True, queue_id=5)
        answer = await peer.call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch_entries(entries))
        assert answer.header(SendMessageResponseHeader).queue_id == 5


async def test_retries_keep_their_priority(tmp_path: Path, keys: dict[str, bool]) -> None:
    """Retry topics of groups that consume priorities have a queue for each."""
    async with running(tmp_path, **keys) as peer:
        await make_topic(peer, "jobs", 8, "+message.type=PRIORITY")
        group = ConsumerData("CG", subscription_data_set=[SubscriptionData("jobs", "*")])
        heartbeat = encode_body(HeartbeatData("client", consumer_data_set=[group]))
        assert (await peer.call(RequestCode.HEART_BEAT, body=heartbeat)).code == 0
        await sent(peer, "jobs", 0, **{PRIORITY: "6"})
        (message,) = stored(peer.controller, "jobs", 6)
        back = ConsumerSendMsgBackRequestHeader(phy_offset=message.phy_offset, group="CG", delay_level=1)
        assert (await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
        # The copy that a consumer sends itself where that fails.
        copy = encode_properties({"DELAY": "1", PRIORITY: "4", "RETRY_TOPIC": "jobs"})
        assert (await peer.send("%RETRY%CG", properties=copy, queue_id=0)).code == 0
        retries: list[str] = []
        async with asyncio.timeout(10):
            while len(retries) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
                found = [each for queue in (4, 6) for each in stored(peer.controller, "%RETRY%CG", queue)]
                retries = [each.properties[PRIORITY] for each in found]
        assert retries == ["4", "6"]


async def test_the_retry_topic_of_ordinary_topics_keeps_its_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await make_topic(peer, "jobs", 8)
        group = ConsumerData("CG", subscription_data_set=[SubscriptionData("jobs", "*")])
        heartbeat = encode_body(HeartbeatData("client", consumer_data_set=[group]))
        assert (await peer.call(RequestCode.HEART_BEAT, body=heartbeat)).code == 0
        assert peer.controller.services.topics.read_queues("%RETRY%CG") == 1
