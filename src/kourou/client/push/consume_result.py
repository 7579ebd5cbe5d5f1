"""What a handler of messages says, and what it is told besides the message."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kourou.protocol.bodies import MessageQueue


class ConsumeResult(enum.Enum):
    """What became of a message. A handler that returns None means SUCCESS; one that raises, LATER."""

    SUCCESS = "SUCCESS"
    """Done: it does not come again, as far as a broker can promise."""
    LATER = "LATER"
    """Once more: by way of the retry topic after a delay; of an orderly consumer the same as SUSPEND."""
    SUSPEND = "SUSPEND"
    """Of an orderly consumer: once more after a pause, the queue waits. Of others the same as LATER."""


@dataclass(slots=True)
class ConsumeContext:
    """The second argument of a handler that takes two. What it sets counts when it has returned."""

    queue: MessageQueue
    """Where the messages come from; of a retry the retry topic's queue."""
    delay_level: int = 0
    """When a message that failed comes again: 0, the broker decides by the number of attempts; above 0,
    a delay level; below 0, never: it goes to the dead letters at once."""
    ack_index: int | None = None
    """Of a batch that succeeds in part: the index of the last message that did, -1 for none. Those up to it
    are done with, whether the handler then returns or raises; the others come again."""
    suspend_ms: int | None = None
    """Of an orderly consumer: how long the queue pauses after a failure, from 10 ms to 30 s."""


def done_count(result: ConsumeResult, context: ConsumeContext | None, count: int) -> int:
    """How many messages at the beginning of a batch of `count` are done with."""
    if context is not None and context.ack_index is not None:
        return max(0, min(context.ack_index + 1, count))
    return count if result is ConsumeResult.SUCCESS else 0
