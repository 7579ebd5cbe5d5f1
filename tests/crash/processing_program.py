"""A program that processes a queue and kills itself at a named point, the nth time it gets there.

    python -m tests.crash.processing_program NAMESRV END_OFFSET POINT NTH

Points: `opened` (its name is opened, nothing is read), `read` (before a message is processed), `processed`
(after), `unsent` (before a batch of results is written), `sent` (written, not answered), `answered`. A point
that does not exist, such as `never`, lets it end.
"""

from __future__ import annotations

import asyncio
import sys

from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.producer_hooks import ProducerHook, SendContext
from kourou.client.producer.queue_processor import AsyncQueueProcessor
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt
from tests.crash.dying_client import die

POINTS = ("opened", "read", "processed", "unsent", "sent", "answered")
SOURCE = MessageQueue("Source", "broker-a", 0)
TARGET = MessageQueue("Target", "broker-a", 0)
STEP = 4


class Point(ProducerHook):
    """Where the program dies."""

    def __init__(self, name: str, nth: int) -> None:
        self._name = name
        self._left = nth

    def at(self, name: str) -> None:
        if self._is_due(name):
            die()

    def _is_due(self, name: str) -> bool:
        self._left -= name == self._name
        return name == self._name and self._left == 0

    def before_send(self, context: SendContext) -> None:
        self.at("unsent")
        if self._is_due("sent"):
            # After the request was written, in this turn of the loop.
            asyncio.get_running_loop().call_soon(die)

    def after_send(self, context: SendContext) -> None:
        self.at("answered")

    def process(self, message: MessageExt) -> Message | None:
        """Every fifth message has no result."""
        self.at("read")
        result = None if message.queue_offset % 5 == 4 else Message(TARGET.topic, b"<%s>" % message.body)
        self.at("processed")
        return result


class DyingProducer(AsyncProducer):
    """A producer that may die as soon as it has opened its name."""

    point: Point

    async def last_sequence(self, queue: MessageQueue) -> int:
        last = await super().last_sequence(queue)
        self.point.at("opened")
        return last


async def run(namesrv: str, end_offset: int, point: Point) -> None:
    """Process the queue up to `end_offset`."""
    producer = DyingProducer("copies", namesrv=namesrv, name="copy-0", explicit_sequences=True, hooks=[point])
    producer.point = point
    async with producer, AsyncPullConsumer("copies", namesrv=namesrv) as consumer:
        processor = AsyncQueueProcessor(
            SOURCE, TARGET, point.process, consumer=consumer, producer=producer, max_messages=STEP
        )
        await processor.run(end_offset)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), Point(sys.argv[3], int(sys.argv[4]))))
