"""Sends of an operator: one message, or several to see how long each takes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

from kourou.admin.messages import started_producer
from kourou.admin.session import Admin
from kourou.client.send_result import SendResult
from kourou.errors import KourouError, MessageRefusedError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Where a message was stored; `status` in RocketMQ's words."""

    status: str
    msg_id: str
    offset_msg_id: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of(cls, result: SendResult) -> Self:
        """From what a producer is told."""
        queue = result.queue
        return cls(
            result.status.name,
            result.msg_id,
            result.offset_msg_id,
            queue.broker_name,
            queue.queue_id,
            result.queue_offset,
        )


@dataclass(frozen=True, slots=True)
class TimedSend:
    """One send, and how long it took."""

    broker_name: str
    queue_id: int
    is_ok: bool
    rt_ms: int
    problem: str = ""


async def send_message(
    admin: Admin,
    topic: str,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
    trace: bool = False,
) -> SentMessage:
    """Send one message: to a queue if one is given, to any of the topic otherwise."""
    try:
        message = Message(topic, body, tags=tags, keys=keys or ())
    except ValueError as error:
        raise MessageRefusedError(str(error)) from None
    queue = None
    if broker is not None and queue_id is not None:
        queue = MessageQueue(topic, await admin.broker_name(broker), queue_id)
    # A topic that is missing is said at once, instead of made by a broker under the operator's hands.
    await admin.route(topic)
    async with started_producer(admin, _own_group(), trace=trace) as producer:
        return SentMessage.of(await producer.send(message, queue=queue))


async def check_send_rt(
    admin: Admin, topic: str, *, amount: int = 100, size_bytes: int = 128
) -> AsyncIterator[TimedSend]:
    """Send messages to the queues of a topic in turn, one after the other."""
    await admin.route(topic)
    message = Message(topic, b"a" * size_bytes)
    async with started_producer(admin, _own_group()) as producer:
        queues = await producer.queues(topic)
        for number in range(amount):
            queue = queues[number % len(queues)]
            began = time.perf_counter_ns()
            problem = ""
            try:
                await producer.send(message, queue=queue)
            except KourouError as error:
                problem = str(error)
            rt_ms = (time.perf_counter_ns() - began) // 1_000_000
            yield TimedSend(queue.broker_name, queue.queue_id, not problem, rt_ms, problem)


def _own_group() -> str:
    """Apache's tools name their producers so."""
    return str(time.time_ns() // 1_000_000)
