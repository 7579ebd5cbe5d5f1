"""WirePops: pops and acks at any broker by requests of their own, without a consumer's decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kourou.protocol.bodies import encode_body
from kourou.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody, encode_bit_set
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.message import MessageExt
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import topic_of_kind
from kourou.protocol.properties import MessageConst
from kourou.transport.client import RemotingClient
from tests.e2e.broker.pop_delivery_kit import PopAnswer, pop_header
from tests.interop.kit.kourou_broker import BROKER_NAME

_CALL_MS: Final = 10_000
_READY_S: Final = 30


class Held(NamedTuple):
    """A message, and the handle that acknowledges it."""

    message: MessageExt
    handle: ReceiptHandle

    @property
    def body(self) -> str:
        return self.message.body.decode()


class WirePops:
    """Messages of one topic for one group, at one broker."""

    def __init__(self, client: RemotingClient, address: str, topic: str, group: str) -> None:
        self._client = client
        self._address = address
        self.topic = topic
        self.group = group

    async def call(self, code: int, header: object = None, body: bytes = b"") -> RemotingCommand:
        """One request."""
        return await self._client.call(self._address, RemotingCommand.request(code, header, body), _CALL_MS)

    async def send(self, *bodies: str) -> None:
        """Send to queue 0; the topic is created with one queue."""
        for body in bodies:
            header = SendMessageRequestHeaderV2(
                producer_group="P",
                topic=self.topic,
                default_topic="TBW102",
                default_topic_queue_nums=1,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties=f"UNIQ_KEY\x01ID-{self.topic}-{body}\x02",
            )
            answer = await self.call(RequestCode.SEND_MESSAGE_V2, header, body.encode())
            assert answer.code == 0, answer.remark

    async def pop(self, most: int, invisible_s: float, **fields: Any) -> list[Held]:
        """What one pop brings; nothing, if there is nothing."""
        header = pop_header(
            self.topic,
            consumer_group=self.group,
            max_msg_nums=most,
            invisible_time=int(invisible_s * 1000),
            exp_type="TAG",
            exp="*",
            **fields,
        )
        answer = PopAnswer.of(await self.call(RequestCode.POP_MESSAGE, header))
        if answer.code != 0:
            return []
        assert answer.header is not None
        handles = [
            ReceiptHandle(
                queue.start_offset,
                answer.header.pop_time,
                answer.header.invisible_time,
                answer.header.revive_qid,
                queue.kind,
                BROKER_NAME,
                queue.queue_id,
                offset,
            )
            for queue in answer.queues
            for offset in queue.offsets
        ]
        return [
            Held(message, _own_handle(message) or handle)
            for message, handle in zip(answer.messages, handles, strict=True)
        ]

    async def pop_all(self, count: int, invisible_s: float, **fields: Any) -> list[Held]:
        """So many messages, by as many pops as it takes."""
        found: list[Held] = []
        async with asyncio.timeout(_READY_S):
            while len(found) < count:
                found += await self.pop(count - len(found), invisible_s, **fields)
                await asyncio.sleep(0.1)
        return found

    async def ack(self, held: Held) -> None:
        """Acknowledge one message."""
        header = AckMessageRequestHeader(
            consumer_group=self.group,
            topic=self._topic_of(held.handle),
            queue_id=held.handle.queue_id,
            extra_info=held.handle.encode(),
            queue_offset=held.handle.queue_offset,
        )
        answer = await self.call(RequestCode.ACK_MESSAGE, header)
        assert answer.code == 0, answer.remark

    async def ack_batch(self, held: Sequence[Held]) -> None:
        """Acknowledge messages of one check point by one request."""
        first = held[0].handle
        acks = BatchAck(
            consumer_group=self.group,
            topic=self.topic,
            retry=first.kind.value,
            start_offset=first.start_offset,
            queue_id=first.queue_id,
            revive_queue_id=first.revive_queue_id,
            pop_time=first.pop_time,
            invisible_time=first.invisible_time,
            bit_set=encode_bit_set(each.handle.queue_offset - first.start_offset for each in held),
        )
        body = encode_body(BatchAckMessageRequestBody(broker_name=BROKER_NAME, acks=[acks]))
        answer = await self.call(RequestCode.BATCH_ACK_MESSAGE, None, body)
        assert answer.code == 0, answer.remark

    async def change(self, held: Held, invisible_s: float) -> Held:
        """Have a message become visible so long from now; it with its new handle."""
        handle = held.handle
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self.group,
            topic=self._topic_of(handle),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            queue_offset=handle.queue_offset,
            invisible_time=int(invisible_s * 1000),
        )
        answer = await self.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert answer.code == 0, answer.remark
        changed = answer.header(ChangeInvisibleTimeResponseHeader)
        new = handle._replace(
            start_offset=handle.queue_offset,
            pop_time=changed.pop_time,
            invisible_time=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )
        return Held(held.message, new)

    async def until_stored(self, topic: str, count: int) -> None:
        """Wait until queue 0 of a topic, which may not be there yet, has so many messages."""
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
        async with asyncio.timeout(_READY_S):
            while True:
                answer = await self.call(RequestCode.GET_MAX_OFFSET, header)
                if answer.code == 0 and answer.header(GetMaxOffsetResponseHeader).queue_offset >= count:
                    return
                await asyncio.sleep(0.1)

    def _topic_of(self, handle: ReceiptHandle) -> str:
        return topic_of_kind(self.topic, self.group, handle.kind)


def _own_handle(message: MessageExt) -> ReceiptHandle | None:
    """Messages of a retry topic bring their handle."""
    text = message.properties.get(MessageConst.PROPERTY_POP_CK)
    return None if text is None else ReceiptHandle.decode(text)
