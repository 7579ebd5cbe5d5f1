"""ReceiptHandle: what a consumer shows to acknowledge a popped message, the property POP_CK and `extraInfo`.

Fields, separated by single spaces:

    startOffset popTime invisibleTime reviveQueueId topicKind brokerName queueId queueOffset

More fields may follow (the proxy of RocketMQ 5 adds the place in the log); they are ignored. The first seven
name a check point. After the invisible time was changed the handle is a new one, of a check point of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from kourou.errors import ProtocolError
from kourou.protocol.pop.retry_topics import PopTopicKind

__all__ = ["ORDERLY_REVIVE_QUEUE_ID", "ReceiptHandle"]

ORDERLY_REVIVE_QUEUE_ID: Final = 999
"""The revive queue in handles of orderly POP, which has no check points."""
_FIELDS: Final = 8
_MAX_CHARS: Final = 1024  # names of a topic and a broker, and six numbers
_SHOWN: Final = 200


class ReceiptHandle(NamedTuple):
    """One popped message, and the check point that it belongs to."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    kind: PopTopicKind
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def is_orderly(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDERLY_REVIVE_QUEUE_ID

    @property
    def visible_again_ms(self) -> int:
        """When the invisible time ends."""
        return self.pop_time + self.invisible_time

    def encode(self) -> str:
        """The handle as text."""
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.kind.value} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a handle. ProtocolError: it is none."""
        fields = text.split(" ", _FIELDS)
        try:
            if len(text) > _MAX_CHARS:
                raise ValueError("too long")
            start_offset, pop_time, invisible_time, revive_queue_id, kind, broker_name, queue_id, offset = (
                fields[:_FIELDS]
            )
            return cls(
                _number(start_offset),
                _number(pop_time),
                _number(invisible_time),
                _number(revive_queue_id),
                PopTopicKind(kind),
                broker_name,
                _number(queue_id),
                _number(offset),
            )
        except ValueError:
            raise ProtocolError(
                "a receipt handle has eight fields (startOffset popTime invisibleTime reviveQueueId "
                f"topicKind brokerName queueId queueOffset), not {text[:_SHOWN]!r}"
            ) from None


def _number(text: str) -> int:
    """A number that is not negative and fits into a long of Java."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ValueError(text)
    number = int(text)
    if number >= 1 << 63:
        raise ValueError(text)
    return number
