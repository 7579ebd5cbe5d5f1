"""What tests of push consumers share: a topic, messages in it, a handler that notes what it got."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import QueryConsumerOffsetRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import encode_properties
from kourou.testing.cluster import Cluster
from tests.e2e.broker.broker_kit import send_header, topic_header

TOPIC = "TopicTest"
GROUP = "billing"
LIMIT_S = 20.0


async def until(condition: Callable[[], Any], what: str = "") -> None:
    """Poll until a condition holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT_S
    while not condition():  # noqa: ASYNC110
        assert loop.time() < end, f"never: {what or condition}"
        await asyncio.sleep(0.005)


async def call(
    running: Cluster, code: int, header: msgspec.Struct | None = None, body: bytes = b"", broker: int = 0
) -> RemotingCommand:
    """Ask a broker, in the plain protocol."""
    command = RemotingCommand.request(code, header, body)
    return await running.client.call(running.brokers[broker].address, command, 10_000)


async def make_topic(
    running: Cluster, topic: str = TOPIC, queues: int = 4, attributes: str | None = None
) -> None:
    """A topic with so many queues on every broker, known to the name server."""
    header = topic_header(topic, queues, attributes)
    for broker in range(len(running.brokers)):
        answer = await call(running, RequestCode.UPDATE_AND_CREATE_TOPIC, header, broker=broker)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send(
    running: Cluster, bodies: Sequence[bytes], *, topic: str = TOPIC, queue_id: int = 0, **properties: str
) -> None:
    """Messages into one queue of the first broker."""
    text = encode_properties(properties)
    for body in bodies:
        header = send_header(topic, text, queue_id=queue_id)
        answer = await call(running, RequestCode.SEND_MESSAGE_V2, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def spread(running: Cluster, count: int, topic: str = TOPIC, queues: int = 4) -> list[bytes]:
    """So many messages over the queues of a topic; their bodies."""
    bodies = [f"m{number}".encode() for number in range(count)]
    for queue_id in range(queues):
        await send(running, bodies[queue_id::queues], topic=topic, queue_id=queue_id)
    return bodies


async def stored_offset(
    running: Cluster, queue_id: int = 0, *, group: str = GROUP, topic: str = TOPIC
) -> int | None:
    """How far a group is, as the broker knows it."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    answer = await call(running, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return int((answer.ext_fields or {})["offset"])


class Notes:
    """A handler that notes each message, in the order they came; `results` are said in turn, then None."""

    def __init__(self, *results: ConsumeResult | Exception | None) -> None:
        self.messages: list[MessageExt] = []
        self._results = list(results)

    async def __call__(self, message: MessageExt) -> ConsumeResult | None:
        self.messages.append(message)
        result = self._results.pop(0) if self._results else None
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def consumer_of(running: Cluster, group: str = GROUP, **options: Any) -> AsyncPushConsumer:
    """A consumer that begins with what is there and stores its offsets often."""
    defaults: dict[str, Any] = {
        "namesrv": running.namesrv_addr,
        "consume_from": "first",
        "persist_interval_ms": 50,
        "stop_timeout_ms": 5_000,
    }
    return AsyncPushConsumer(group, **{**defaults, **options})


@contextlib.asynccontextmanager
async def consuming(
    running: Cluster, handler: Any, *, topic: str = TOPIC, expression: str = "*", **options: Any
) -> AsyncIterator[AsyncPushConsumer]:
    """A consumer of one topic, whose own tasks must not fail."""
    consumer = consumer_of(running, **options)
    await consumer.subscribe(topic, expression, handler)
    async with consumer:
        failed = asyncio.ensure_future(consumer.wait())
        yield consumer
        if failed.done():
            failed.result()
    await failed


def queues_of(consumer: AsyncPushConsumer, topic: str = TOPIC) -> list[int]:
    """The ids of the queues that a consumer has."""
    return [queue.queue_id for queue in consumer.queues if queue.topic == topic]
