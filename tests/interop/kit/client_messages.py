"""Messages that the scenarios of our clients send."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from tests.interop.kit.client_kit import ClientKit, until
from tests.interop.kit.kourou_broker import BROKER_NAME


async def send_all(
    producer: AsyncProducer, topic: str, bodies: Iterable[bytes], queue_id: int | None = None
) -> list[SendResult]:
    """Send bodies one after the other, all to one queue if `queue_id` is given."""
    queue = None if queue_id is None else MessageQueue(topic, BROKER_NAME, queue_id)
    return [await producer.send(Message(topic, body), queue=queue) for body in bodies]


def names(label: str, count: int) -> list[bytes]:
    """Bodies of messages."""
    return [f"{label}-{number}".encode() for number in range(count)]


def select_by_number(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """A selector as users write them."""
    assert isinstance(arg, int)
    return queues[arg]


def now_ms() -> int:
    """What time it is for messages."""
    return time.time_ns() // 1_000_000


async def send_around(kit: ClientKit, topic: str) -> datetime:
    """Messages long before a time, one at it, others later: at a broker of 5 a search finds the first at or
    after a time, at one of 4.9 the nearest, and any of several at the same time."""
    async with kit.producer() as producer:
        await send_all(producer, topic, names("old", 4))
        old_ms = max(message.store_timestamp for message in (await kit.stored(topic, 4)).values())
        await until(lambda: now_ms() > old_ms + 500, "a time that is later")
        first, *rest = names("new", 4)
        (result,) = await send_all(producer, topic, [first])
        first_ms = (await kit.stored(topic, 5))[result.msg_id].store_timestamp
        await until(lambda: now_ms() > first_ms, "the next millisecond")
        await send_all(producer, topic, rest)
    await kit.stored(topic, 8)
    return datetime.fromtimestamp(first_ms / 1_000, UTC)


_COLOURS: Final = ("red", "green", "blue")


async def send_colours(producer: AsyncProducer, topic: str) -> None:
    """Messages `red 0`, `green 1`, `blue 2`, `red 3` … with tag, colour and size to select them by."""
    for number in range(9):
        colour = _COLOURS[number % 3]
        properties = {"colour": colour, "size": str(number)}
        await producer.send(
            Message(topic, b"%s %d" % (colour.encode(), number), tags=colour, properties=properties)
        )
