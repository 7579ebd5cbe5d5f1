"""ReceiptHandle: what a consumer shows to acknowledge a popped message, the property POP_CK and `extraInfo`.

Fields, separated by single spaces:

    startOffset popTime invisibleTime reviveQueueId topicKind brokerName queueId queueOffset

More fields may follow (the proxy of RocketMQ 5 adds the place in the log); they are ignored. The first seven
name a check point. After the invisible time was changed the handle is a new one, of a check point of its own.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from kourou.errors import ProtocolError
from kourou.protocol.pop.retry_topics import PopTopicKind

__all__ = ["ORDERLY_REVIVE_QUEUE_ID", "ReceiptHandle"]

ORDERLY_REVIVE_QUEUE_ID: Final = 999
"""The revive queue in handles of orderly POP, which has no check points."""
_HANDLE: Final = re.compile(
    r"(\d{1,19} \d{1,19} \d{1,19} \d{1,19} [012] [^ ]* \d{1,19}) (\d{1,19})(?: .*)?", re.ASCII | re.DOTALL
).fullmatch
_KINDS: Final = {kind.value: kind for kind in PopTopicKind}
_MAX_LONG: Final = (1 << 63) - 1
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

    @staticmethod
    def split(text: str) -> tuple[str, int] | None:
        """What the handles of one pop and queue have in common, and the queue offset. None: it is none."""
        found = _HANDLE(text) if len(text) <= _MAX_CHARS else None
        return None if found is None else (found[1], int(found[2]))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a handle. ProtocolError: it is none."""
        parts = cls.split(text)
        if parts is not None:
            start_offset, pop_time, invisible_time, revive_queue_id, kind, broker_name, queue_id = parts[
                0
            ].split(" ")
            handle = cls(
                int(start_offset),
                int(pop_time),
                int(invisible_time),
                int(revive_queue_id),
                _KINDS[kind],
                broker_name,
                int(queue_id),
                parts[1],
            )
            if max(handle[:4] + handle[6:]) <= _MAX_LONG:
                return handle
        raise ProtocolError(
            "a receipt handle has eight fields (startOffset popTime invisibleTime reviveQueueId "
            f"topicKind brokerName queueId queueOffset), not {text[:_SHOWN]!r}"
        )
