"""BatchAckMessageRequestBody (200151, 5.x): many acks of POP messages in one request.

The bit set is Base64 of bytes in which bit i, counted from the lowest bit of the first byte,
stands for the message at `start_offset + i`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import field

from kourou.errors import ProtocolError
from kourou.protocol.bodies.codec import decode_body
from kourou.protocol.bodies.shape import Body, Int32, Int64, ReshapedBody, renamed

# What a broker reads in some 20 ms, on the thread that serves all clients. Long names take ten times as long.
_MAX_BYTES: Final = 1024 * 1024
_MAX_LONG_BYTES: Final = 64 * 1024
_MAX_PARTS: Final = 4_096
_LONG_NAMES: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAck(ReshapedBody):
    """Acks of one checkpoint. `retry` is 0 for the topic itself, 1 and 2 for its retry topics."""

    consumer_group: str = field(default="", name="c")
    topic: str = field(default="", name="t")
    retry: str = field(default="0", name="r")
    start_offset: Int64 = field(default=0, name="so")
    queue_id: Int32 = field(default=0, name="q")
    revive_queue_id: Int32 = field(default=0, name="rq")
    pop_time: Int64 = field(default=0, name="pt")
    invisible_time: Int64 = field(default=0, name="it")
    bit_set: str = field(default="", name="b")

    @classmethod
    def reshape(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Accept the long names, too."""
        return renamed(tree, _LONG_NAMES)

    def queue_offsets(self) -> list[int]:
        """The queue offsets that are acked, ascending."""
        try:
            content = base64.b64decode(self.bit_set, validate=True)
        except (binascii.Error, ValueError):
            raise ProtocolError(f"BatchAck: expected Base64 as bit set, got {self.bit_set[:80]!r}") from None
        return [
            self.start_offset + position * 8 + bit
            for position, byte in enumerate(content)
            for bit in range(8)
            if byte >> bit & 1
        ]


class BatchAckMessageRequestBody(Body):
    """Body of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str = ""
    acks: list[BatchAck] = []


_decoder: Final = msgspec.json.Decoder(BatchAckMessageRequestBody, strict=False)


def decode_batch_acks(raw: bytes) -> BatchAckMessageRequestBody:
    """The body of BATCH_ACK_MESSAGE. ProtocolError: it is none. Short names, which brokers get all the time,
    are read ten times as fast as long ones."""
    _check_size(len(raw), _MAX_BYTES, "bytes")
    try:
        body = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_long(raw)
    _check_size(len(body.acks), _MAX_PARTS, "check points")
    return body if all(ack.topic for ack in body.acks) else _decode_long(raw)


def _decode_long(raw: bytes) -> BatchAckMessageRequestBody:
    _check_size(len(raw), _MAX_LONG_BYTES, "bytes with long names")
    return decode_body(raw, BatchAckMessageRequestBody)


def _check_size(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise ProtocolError(f"a batch of acks has at most {limit} {what}, not {size}; send it in parts")


def encode_bit_set(positions: Iterable[int]) -> str:
    """The bit set with the bits at `positions` set."""
    content = bytearray()
    for position in positions:
        content.extend(bytes(max(0, position // 8 + 1 - len(content))))
        content[position // 8] |= 1 << position % 8
    return base64.b64encode(content).decode()
