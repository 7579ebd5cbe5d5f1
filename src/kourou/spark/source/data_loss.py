"""DataLossError: messages that a batch should have read no longer exist."""

from __future__ import annotations

from kourou.errors import KourouError
from kourou.protocol.bodies import MessageQueue

GO_ON = "set failOnDataLoss=false to continue without them"


class DataLossError(KourouError):
    """Offsets `begin` (inclusive) to `end` (exclusive) of a queue are gone. The message names the cause."""

    def __init__(self, queue: MessageQueue, begin: int, end: int, cause: str) -> None:
        count = end - begin
        super().__init__(
            f"{count} message{'s' if count != 1 else ''} of topic {queue.topic!r}, "
            f"broker {queue.broker_name!r}, queue {queue.queue_id} cannot be read: "
            f"offsets {begin} to {end - 1}. {cause}; {GO_ON}"
        )
        self.queue = queue
        self.begin = begin
        self.end = end
        self.cause = cause

    def __reduce__(self) -> tuple[type[DataLossError], tuple[MessageQueue, int, int, str]]:
        # Workers pickle it for the driver.
        return type(self), (self.queue, self.begin, self.end, self.cause)
