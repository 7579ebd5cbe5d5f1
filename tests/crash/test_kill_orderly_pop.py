"""kill -9 of a broker at any moment of orderly POP: no message that was acknowledged comes again, none is
passed over, and a queue stays blocked until the time of what was popped from it is over.

A consumer pops a few messages of one queue, acknowledges some of them in order, and pops again, while the
broker is killed and started. Offsets are written every 5 s, so that most of what counts is in the
journal.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.errors import RemotingError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from kourou.protocol.pop.offset_infos import PoppedQueue, decode_offset_infos
from kourou.protocol.pop.receipt_handle import ORDERLY_REVIVE_QUEUE_ID, ReceiptHandle
from kourou.testing.store_check import assert_store_ok
from kourou.transport.client import RemotingClient
from tests.crash.killed_broker import KilledBroker
from tests.crash.rounds import replayable, seeds
from tests.e2e.broker.broker_kit import send_header

TOPIC, GROUP = "OrderedTopic", "ordered"
# Longer than a start takes, or so short that the round goes on.
_LONG_MS, _SHORT_MS = 2_500, 60
_KILLS = 20
"""In one round."""
_AHEAD = 200
"""So many messages wait when a life begins."""
_CALL_MS = 3_000


class OrderedConsumer:
    """Pops from one queue, and checks each answer by what it knows."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.client: RemotingClient
        self.sent = 0
        self.next_offset = 0
        """The first message that is not known to be acknowledged."""
        self.asked_offset = 0
        """The first whose ack was not even sent."""
        self.blocked_until_ms = 0
        self.attempts = 0

    async def run(self, chance: random.Random) -> None:
        """Consume until cancelled; while the broker is away, try again."""
        while True:
            with suppress(RemotingError):
                await self.consume(chance)
            await asyncio.sleep(0.005)

    async def consume(self, chance: random.Random, *, acks_all: bool = False) -> None:
        """One pop, and the acks of its first messages."""
        invisible_ms = _LONG_MS if chance.random() < 0.1 else _SHORT_MS
        answer = await self._pop(chance.randrange(1, 5), invisible_ms)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return
        # Not ready yet, or stopping.
        if answer.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR):
            return
        assert answer.code == 0, answer.remark
        header = answer.header(PopMessageResponseHeader)
        (queue,) = decode_offset_infos(header.start_offset_info, header.msg_offset_info)
        self._check(header, queue)
        self.blocked_until_ms = header.pop_time + header.invisible_time
        count = chance.choice([len(queue.offsets)] * 3 + list(range(len(queue.offsets))))
        if acks_all:
            count = len(queue.offsets)
        for offset in queue.offsets[:count]:
            await self._ack(header, queue, offset)
        if count == len(queue.offsets):
            self.blocked_until_ms = 0

    def _check(self, header: PopMessageResponseHeader, queue: PoppedQueue) -> None:
        first = queue.offsets[0]
        assert first >= self.next_offset, (
            f"{first} comes again, all below {self.next_offset} are acknowledged"
        )
        assert first <= self.asked_offset, f"{first} comes, and {self.asked_offset} was never acknowledged"
        assert list(queue.offsets) == list(range(first, first + len(queue.offsets)))
        if first < self.asked_offset or self.blocked_until_ms == 0:
            return  # the last ack may have ended the block, without an answer
        assert header.pop_time >= self.blocked_until_ms, "popped while others were in flight"

    async def _pop(self, count: int, invisible_ms: int) -> RemotingCommand:
        self.attempts += 1
        header = PopMessageRequestHeader(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=0,
            max_msg_nums=count,
            invisible_time=invisible_ms,
            poll_time=0,
            born_time=0,
            init_mode=0,
            order=True,
            attempt_id=str(self.attempts),
        )
        command = RemotingCommand.request(RequestCode.POP_MESSAGE, header)
        return await self.client.call(self._address, command, _CALL_MS)

    async def _ack(self, header: PopMessageResponseHeader, queue: PoppedQueue, offset: int) -> None:
        handle = ReceiptHandle(
            queue.start_offset,
            header.pop_time,
            header.invisible_time,
            ORDERLY_REVIVE_QUEUE_ID,
            queue.kind,
            "broker-a",
            queue.queue_id,
            offset,
        )
        request = AckMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, extra_info=handle.encode(), queue_offset=offset
        )
        self.asked_offset = offset + 1
        command = RemotingCommand.request(RequestCode.ACK_MESSAGE, request)
        answer = await self.client.call(self._address, command, _CALL_MS)
        if answer.code == 0:
            self.next_offset = offset + 1
        else:
            assert answer.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR), (
                answer.remark
            )


async def send(address: str, consumer: OrderedConsumer) -> None:
    """Have messages wait for the consumer; their bodies are their offsets."""
    client = RemotingClient()
    while consumer.sent < consumer.next_offset + _AHEAD:
        header = send_header(TOPIC, default_topic_queue_nums=1)
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % consumer.sent)
        assert (await client.call(address, command, _CALL_MS)).code == 0
        consumer.sent += 1
    await client.stop()


async def live(broker: KilledBroker, consumer: OrderedConsumer, chance: random.Random) -> None:
    """Consume until the broker is killed."""
    await send(broker.address, consumer)
    consumer.client = RemotingClient()
    work = asyncio.ensure_future(consumer.run(chance))
    done, _ = await asyncio.wait([work], timeout=chance.uniform(0.05, 1.2))
    await asyncio.to_thread(broker.kill)
    work.cancel()
    await asyncio.wait([work])
    if done:
        work.result()
    await consumer.client.stop()


async def finish(consumer: OrderedConsumer, chance: random.Random) -> None:
    """Consume the rest."""
    consumer.client = RemotingClient()
    async with asyncio.timeout(60):
        while consumer.next_offset < consumer.sent:
            await consumer.consume(chance, acks_all=True)
            await asyncio.sleep(0.005)
    await consumer.client.stop()


def run(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    broker = KilledBroker(folder, defaultTopicQueueNums=1)
    consumer = OrderedConsumer(broker.address)
    for _ in range(_KILLS):
        broker.start()
        asyncio.run(live(broker, consumer, chance))
    assert consumer.attempts > _KILLS
    broker.start()
    asyncio.run(finish(consumer, chance))
    broker.stop()
    assert_store_ok(folder / "store")


@pytest.mark.slow
def test_orderly_pop_goes_on_after_every_kill(folder: Path) -> None:
    for seed in seeds(f"{_KILLS} kills under orderly POP", seconds=12, full=60):
        with replayable(seed):
            root = folder / str(seed)
            root.mkdir()
            run(root, seed)
