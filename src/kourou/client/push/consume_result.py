"""The result of a handler, and its second argument."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kourou.protocol.bodies import MessageQueue


class ConsumeResult(enum.Enum):
    """The result of a handler. Returning None means SUCCESS, raising means LATER."""

    SUCCESS = "SUCCESS"
    """Consumed: not delivered again, as far as a broker can guarantee."""
    LATER = "LATER"
    """Deliver again after a delay, through the retry topic; for an orderly consumer the same as SUSPEND."""
    SUSPEND = "SUSPEND"
    """For an orderly consumer: deliver again after a pause of the queue. For others the same as LATER."""


@dataclass(slots=True)
class ConsumeContext:
    """The second argument of a handler that takes two. Its fields are read after the handler has returned."""

    queue: MessageQueue
    """The queue of the messages; for a retry, of the retry topic."""
    delay_level: int = 0
    """The delay of the next delivery after a failure: 0, the broker decides by the number of attempts; above
    0, a delay level; below 0, none: the message goes to the dead letters at once."""
    ack_index: int | None = None
    """For a batch that succeeds in part: the index of the last message that did, -1 for none. Messages up to
    it are consumed, whether the handler then returns or raises; the others are delivered again."""
    suspend_ms: int | None = None
    """For an orderly consumer: how long the queue pauses after a failure, from 10 ms to 30 s."""


def done_count(result: ConsumeResult, context: ConsumeContext | None, count: int) -> int:
    """How many messages at the beginning of a batch of `count` are consumed."""
    if context is not None and context.ack_index is not None:
        return max(0, min(context.ack_index + 1, count))
    return count if result is ConsumeResult.SUCCESS else 0
