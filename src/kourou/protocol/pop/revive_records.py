"""The records of the revive topic: check points, which say what was popped, and their acks.

Each is a message with a body in JSON. Its tag says which of the three it is; the body's names are short:

    ck    so start offset, pt pop time, it invisible time, bm acked bits, n count, q queue, t topic popped
          from, c group, ro place in the revive queue, d offsets minus so, bn broker, rp times it was re-put
    ack   ao acked offset, so, c, t, q, pt, bn
    bAck  the same, ao -1, and aol, all acked offsets

The record of a pop also has the property POP_NEXT_PROPERTY, which Apache ignores: where the group continues.

A check point waits as a timer message until a second before its messages become visible again, an ack until
that time. t is the topic that the messages lie in, a retry topic for messages popped from there. An ack
belongs to the check point with the same t, c, q, so, pt and bn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import field

from kourou.protocol.bodies.shape import Body, Int32, Int64, ReshapedBody, renamed

__all__ = [
    "ACK_TAG",
    "BATCH_ACK_TAG",
    "CHECK_POINT_LEAD_MS",
    "CHECK_POINT_TAG",
    "MAX_CHECK_POINT_MESSAGES",
    "POP_NEXT_PROPERTY",
    "CheckPointBody",
    "CheckPointKey",
    "PopAckBody",
    "PopBatchAckBody",
]

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
MAX_CHECK_POINT_MESSAGES: Final = 32
"""What the bits of a check point can tell apart."""
CHECK_POINT_LEAD_MS: Final = 1000
"""So long before its messages become visible a check point is delivered to the revive topic."""
POP_NEXT_PROPERTY: Final = "__KOUROU_POP_NEXT"
"""The offset behind what was popped. Without it a check point has not moved its group: it keeps a message for
longer."""
_NO_OFFSET: Final = -1
_LONG_NAMES: Final = {
    "ackOffset": "ao",
    "startOffset": "so",
    "consumerGroup": "c",
    "topic": "t",
    "queueId": "q",
    "popTime": "pt",
    "brokerName": "bn",
    "ackOffsetList": "aol",
}


class CheckPointKey(NamedTuple):
    """What an ack and its check point have in common."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


class CheckPointBody(Body, kw_only=True):
    """What was popped from one queue at one time."""

    start_offset: Int64 = field(default=0, name="so")
    pop_time: Int64 = field(default=0, name="pt")
    invisible_time: Int64 = field(default=0, name="it")
    bit_map: Int32 = field(default=0, name="bm")
    count: Int32 = field(default=0, name="n")
    queue_id: Int32 = field(default=0, name="q")
    topic: str = field(default="", name="t")
    group: str = field(default="", name="c")
    revive_offset: Int64 = field(default=0, name="ro")
    offset_differences: list[Int64] | None = field(default=None, name="d")
    broker_name: str | None = field(default=None, name="bn")
    put_again_times: str | None = field(default=None, name="rp")

    @property
    def queue_offsets(self) -> list[int]:
        """The messages. Check points of early versions name none: theirs follow each other."""
        start = self.start_offset
        if self.offset_differences:
            return [start + difference for difference in self.offset_differences]
        return list(range(start, start + max(0, min(self.count, MAX_CHECK_POINT_MESSAGES))))

    def key(self, own_broker: str) -> CheckPointKey:
        """Its key; one without a broker is of `own_broker`."""
        return CheckPointKey(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker_name or own_broker,
        )

    def encode(self) -> bytes:
        """The body as Apache writes it; much faster than for any body, as each pop writes one."""
        differences, times = self.offset_differences, self.put_again_times
        return (
            f'{{"bm":{self.bit_map},"bn":{_text(self.broker_name)},"c":{_text(self.group)},'
            + (f'"d":[{",".join(map(str, differences))}],' if differences is not None else "")
            + f'"it":{self.invisible_time},"n":{self.count},"pt":{self.pop_time},"q":{self.queue_id},'
            f'"ro":{self.revive_offset},'
            + (f'"rp":{_text(times)},' if times is not None else "")
            + f'"so":{self.start_offset},"t":{_text(self.topic)}}}'
        ).encode()

    @property
    def uniq_key(self) -> str:
        """UNIQ_KEY of its record."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}"
            f"@{self.broker_name}@{CHECK_POINT_TAG}"
        )


class PopAckBody(ReshapedBody, kw_only=True):
    """One acked message."""

    ack_offset: Int64 = field(default=_NO_OFFSET, name="ao")
    start_offset: Int64 = field(default=0, name="so")
    group: str = field(default="", name="c")
    topic: str = field(default="", name="t")
    queue_id: Int32 = field(default=0, name="q")
    pop_time: Int64 = field(default=0, name="pt")
    broker_name: str | None = field(default=None, name="bn")

    @classmethod
    def reshape(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Accept the long names, too."""
        return renamed(tree, _LONG_NAMES)

    def key(self, own_broker: str) -> CheckPointKey:
        """The key of its check point; one without a broker is of `own_broker`."""
        return CheckPointKey(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker_name or own_broker,
        )

    @property
    def queue_offsets(self) -> Sequence[int]:
        """The acked messages."""
        return (self.ack_offset,)

    def encode(self) -> bytes:
        """The body as Apache writes it."""
        return self._encoded("")

    def _encoded(self, offsets: str) -> bytes:
        return (
            f'{{"ao":{self.ack_offset},{offsets}"bn":{_text(self.broker_name)},"c":{_text(self.group)},'
            f'"pt":{self.pop_time},"q":{self.queue_id},"so":{self.start_offset},"t":{_text(self.topic)}}}'
        ).encode()

    @property
    def uniq_key(self) -> str:
        """UNIQ_KEY of its record."""
        return (
            f"{self.topic}@{self.queue_id}@{self.ack_offset}@{self.group}@{self.pop_time}"
            f"@{self.broker_name}@{ACK_TAG}"
        )


class PopBatchAckBody(PopAckBody, kw_only=True):
    """Several acked messages of one check point."""

    ack_offsets: list[Int64] = field(default_factory=list, name="aol")

    @property
    def queue_offsets(self) -> Sequence[int]:
        """The acked messages."""
        return self.ack_offsets

    def encode(self) -> bytes:
        """The body as Apache writes it."""
        return self._encoded(f'"aol":[{",".join(map(str, self.ack_offsets))}],')

    @property
    def uniq_key(self) -> str:
        """UNIQ_KEY of its record."""
        offsets = ", ".join(map(str, self.ack_offsets))
        return f"{self.topic}@{self.queue_id}@[{offsets}]@{self.group}@{self.pop_time}@{BATCH_ACK_TAG}"


@lru_cache(maxsize=4096)
def _text(value: str | None) -> str:
    """A name in JSON."""
    return msgspec.json.encode(value).decode()
