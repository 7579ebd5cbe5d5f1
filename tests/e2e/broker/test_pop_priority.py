"""POP by priority: the highest first whatever waits, a share for low ones, retries with their priority."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.protocol.properties import encode_properties
from tests.e2e.broker.broker_kit import send_header
from tests.e2e.broker.pop_delivery_kit import GROUP, PopAnswer, PopPeer, popping, until
from tests.e2e.broker.transaction_kit import stored

pytestmark = pytest.mark.e2e

TOPIC = "jobs"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
QUEUES = 8
PRIORITY = "_SYS_MSG_PRIORITY_"
LOW, HIGH = 0, 7


def make_topic(pops: PopPeer) -> None:
    attributes = {"+message.type": "PRIORITY"}
    pops.peer.controller.services.topics.update(TopicConfig(TOPIC, QUEUES, QUEUES, attributes=attributes))


def set_factor(pops: PopPeer, factor: int) -> None:
    config = SubscriptionGroupConfig(GROUP, attributes={"+priority.factor": str(factor)})
    pops.peer.controller.services.groups.update(config)


async def send(pops: PopPeer, *priorities: int) -> None:
    for priority in priorities:
        properties = encode_properties({PRIORITY: str(priority)})
        assert (await pops.peer.send(TOPIC, properties=properties, queue_id=0)).code == 0


async def pile_up(pops: PopPeer, priority: int, count: int) -> None:
    """A backlog, stored as the batches of our producers store it."""
    properties = encode_properties({PRIORITY: str(priority)}).encode()
    for first in range(0, count, 1_000):
        entries = [BatchEntry(0, b"x", properties)] * min(1_000, count - first)
        header = send_header(TOPIC, batch=True, queue_id=priority)
        body = encode_batch_entries(entries)
        assert (await pops.peer.call(RequestCode.SEND_BATCH_MESSAGE, header, body)).code == 0


def priorities(answer: PopAnswer) -> list[int | None]:
    return [message.priority for message in answer.messages]


async def test_a_pop_goes_from_high_to_low(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        make_topic(pops)
        await send(pops, *range(QUEUES), *range(QUEUES))
        assert [priorities(await pops.pop(TOPIC, max_msg_nums=1))[0] for _ in range(3)] == [7, 7, 6]
        assert priorities(await pops.pop(TOPIC)) == [6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]


async def test_the_lowest_queue_may_be_the_highest_priority(tmp_path: Path) -> None:
    async with popping(tmp_path, priority_order_asc=False) as pops:
        make_topic(pops)
        await send(pops, 3, 0, 7)
        assert priorities(await pops.pop(TOPIC)) == [0, 3, 7]


@pytest.mark.parametrize("backlog", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_a_high_one_is_next_behind_a_backlog_of_low_ones(tmp_path: Path, backlog: int) -> None:
    async with popping(tmp_path) as pops:
        make_topic(pops)
        await pile_up(pops, LOW, backlog)
        assert priorities(await pops.pop(TOPIC)) == [LOW] * 32
        await send(pops, HIGH)
        assert priorities(await pops.pop(TOPIC, max_msg_nums=1)) == [HIGH]
        assert priorities(await pops.pop(TOPIC, max_msg_nums=1)) == [LOW]


async def test_low_ones_are_not_starved_with_a_factor(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        make_topic(pops)
        set_factor(pops, 88)
        await pile_up(pops, LOW, 100)
        await pile_up(pops, HIGH, 500)
        found: Counter[int | None] = Counter()
        for chance in range(100):
            pops.chances[0] = chance
            found.update(priorities(await pops.pop(TOPIC, max_msg_nums=1)))
        # Twelve of a hundred pops begin at any queue and go down: two of these begin at the highest.
        assert found == {HIGH: 90, LOW: 10}


async def test_without_a_factor_pops_do_not_order(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        make_topic(pops)
        set_factor(pops, 0)
        await send(pops, LOW, HIGH)
        pops.chances[0] = 1  # from queue 0 on
        assert priorities(await pops.pop(TOPIC)) == [LOW, HIGH]


async def test_retries_keep_their_priority(tmp_path: Path) -> None:
    """A high one that failed does not wait behind low ones, whether these have failed or not."""
    async with popping(tmp_path) as pops:
        make_topic(pops)
        await send(pops, LOW, LOW, HIGH, 3)
        popped = await pops.pop(TOPIC, invisible_time=1_000)
        assert priorities(popped) == [HIGH, 3, LOW, LOW]
        controller = pops.peer.controller
        await until(lambda: len(stored(controller, RETRY, LOW)) == 2)
        assert [len(stored(controller, RETRY, queue_id)) for queue_id in (HIGH, 3, LOW)] == [1, 1, 2]
        await send(pops, 5, LOW)
        again = await pops.pop(TOPIC)
        assert priorities(again) == [HIGH, 5, 3, LOW, LOW, LOW]
        assert [message.reconsume_times for message in again.messages] == [1, 0, 1, 0, 1, 1]
        retries = [queue.queue_id for queue in again.queues if queue.kind is PopTopicKind.RETRY_V1]
        assert retries == [HIGH, 3, LOW]


async def test_all_retries_may_come_first(tmp_path: Path) -> None:
    async with popping(tmp_path, pop_from_retry_probability_for_priority=100) as pops:
        make_topic(pops)
        await send(pops, LOW, 3)
        await pops.pop(TOPIC, invisible_time=1_000)
        await until(lambda: bool(stored(pops.peer.controller, RETRY, LOW)))
        await send(pops, HIGH)
        assert priorities(await pops.pop(TOPIC)) == [3, LOW, HIGH]


async def test_any_topic_may_have_a_retry_queue_for_each_queue(tmp_path: Path) -> None:
    async with popping(tmp_path, use_separate_retry_queue=True) as pops:
        topics = pops.peer.controller.services.topics
        topics.update(TopicConfig(TOPIC, QUEUES, QUEUES))
        await send(pops, 5)
        await pops.pop(TOPIC, invisible_time=1_000)
        await until(lambda: bool(stored(pops.peer.controller, RETRY, 5)))
        config = topics.get(RETRY)
        assert config is not None and config.read_queue_nums == QUEUES
        assert priorities(await pops.pop(TOPIC)) == [5]
