"""What is in flight at a whole broker, without pops: a test takes messages by the broker's own means, and
acknowledges them by requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kourou.broker.pop.contracts import Popped
from kourou.broker.pop.in_flight import MessagesInFlight
from kourou.protocol.bodies import encode_body
from kourou.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody, encode_bit_set
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from kourou.protocol.message import MessageExt
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind, revive_topic
from kourou.protocol.record import decode_record
from kourou.store.log.put_status import PutStatus
from tests.e2e.broker.broker_kit import Peer

TOPIC, GROUP = "TopicTest", "consumers"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
REVIVE = revive_topic("DefaultCluster")
INVISIBLE_MS = 60_000


def in_flight(peer: Peer) -> MessagesInFlight:
    """The messages in flight of a broker."""
    return peer.controller.running.in_flight.in_flight


async def prepare(peer: Peer, messages: int, **fields: str) -> None:
    """Send messages, the bodies numbered from 0."""
    for number in range(messages):
        properties = f"UNIQ_KEY\x01ID{number}\x02TAGS\x01TagA\x02"
        answer = await peer.send(TOPIC, b"%d" % number, properties=properties, **fields)
        assert answer.code == 0, answer.remark


async def take(
    peer: Peer,
    offsets: Sequence[int],
    *,
    topic: str = TOPIC,
    group: str = GROUP,
    invisible_time_ms: int = INVISIBLE_MS,
    revive_queue_id: int = 3,
    before_done: Callable[[], None] = lambda: None,
) -> list[ReceiptHandle]:
    """Take messages as a pop does; their handles."""
    services = peer.controller.services
    services.groups.find(group)
    pop_time = services.now_ms()
    stored: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

    def done(status: PutStatus) -> None:
        if status.is_stored:
            services.offsets.commit(group, topic, 0, offsets[-1] + 1, "test")
        stored.set_result(status)

    popped = Popped(
        topic=topic,
        group=group,
        queue_id=0,
        start_offset=offsets[0],
        offsets=offsets,
        next_offset=offsets[-1] + 1,
        pop_time=pop_time,
        invisible_time_ms=invisible_time_ms,
        revive_queue_id=revive_queue_id,
    )
    in_flight(peer).take(popped, done)
    before_done()
    assert (await stored).is_stored
    return [
        ReceiptHandle(
            offsets[0],
            pop_time,
            invisible_time_ms,
            revive_queue_id,
            PopTopicKind.of(topic),
            services.config.broker_name,
            0,
            offset,
        )
        for offset in offsets
    ]


def ack_header(
    handle: ReceiptHandle, *, topic: str = TOPIC, group: str = GROUP, **fields: int
) -> AckMessageRequestHeader:
    """The header of an ack; `fields` in place of those of the handle."""
    return AckMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=fields.get("queue_id", handle.queue_id),
        extra_info=handle.encode(),
        queue_offset=fields.get("queue_offset", handle.queue_offset),
    )


async def ack(peer: Peer, handle: ReceiptHandle, **fields: str) -> RemotingCommand:
    """Acknowledge one message."""
    return await peer.call(RequestCode.ACK_MESSAGE, ack_header(handle, **fields))  # type: ignore[arg-type]


async def change(
    peer: Peer, handle: ReceiptHandle, invisible_time_ms: int, *, topic: str = TOPIC, group: str = GROUP
) -> tuple[RemotingCommand, ReceiptHandle]:
    """Change the invisible time of a message: the answer, and the new handle."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=handle.queue_id,
        extra_info=handle.encode(),
        queue_offset=handle.queue_offset,
        invisible_time=invisible_time_ms,
    )
    answer = await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    changed = answer.header(ChangeInvisibleTimeResponseHeader)
    new = handle._replace(
        start_offset=handle.queue_offset, pop_time=changed.pop_time, invisible_time=changed.invisible_time
    )
    return answer, new


async def batch_ack(peer: Peer, *acks: BatchAck, broker_name: str = "broker-a") -> RemotingCommand:
    """Acknowledge many messages."""
    body = BatchAckMessageRequestBody(broker_name=broker_name, acks=list(acks))
    return await peer.call(RequestCode.BATCH_ACK_MESSAGE, None, encode_body(body))


def batch_of(handles: Sequence[ReceiptHandle], **fields: str | int) -> BatchAck:
    """The part of a batch that acknowledges messages of one check point."""
    first = handles[0]
    default = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "retry": first.kind.value,
        "start_offset": first.start_offset,
        "queue_id": first.queue_id,
        "revive_queue_id": first.revive_queue_id,
        "pop_time": first.pop_time,
        "invisible_time": first.invisible_time,
        "bit_set": encode_bit_set(handle.queue_offset - first.start_offset for handle in handles),
    }
    return BatchAck(**{**default, **fields})  # type: ignore[arg-type]


def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[MessageExt]:
    """All messages of a queue."""
    store = peer.controller.services.store
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return []
    units = [queue.unit(offset) for offset in range(queue.min_queue_offset, queue.max_queue_offset)]
    return [decode_record(store.log.read(unit.phy_offset, unit.size) or b"") for unit in units if unit]


def bodies(peer: Peer, topic: str = RETRY) -> list[str]:
    """The bodies of a topic's messages."""
    return [message.body.decode() for message in stored(peer, topic)]


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.01)
