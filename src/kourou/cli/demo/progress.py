"""The progress of the demo's topics and groups, from the brokers' statistics."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from kourou.admin.consume_stats import consume_stats
from kourou.admin.session import Admin
from kourou.admin.topics import topic_status
from kourou.errors import ResponseError
from kourou.protocol.names import dlq_topic, retry_topic

# Rates cover the last second.
_WINDOW_S: Final = 1.0


@dataclass(frozen=True)
class Flow:
    """One topic, its number of queues on each broker, and the group that consumes it."""

    topic: str
    queues: int
    group: str


@dataclass(frozen=True)
class Progress:
    """The progress of one flow."""

    stored: int = 0
    consumed: int = 0
    retries: int = 0
    """Messages that the group has sent back, counting each attempt."""
    dead: int = 0
    """Its dead letters."""

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed yet."""
        return max(0, self.stored - self.consumed)


@dataclass(frozen=True)
class Row:
    """The state of one flow at one time."""

    flow: Flow
    progress: Progress
    in_per_s: float
    out_per_s: float


class FlowRates:
    """Converts the counts of one flow to rates."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._samples: deque[tuple[float, Progress]] = deque()

    def add(self, now: float, progress: Progress) -> Row:
        """The flow at `now`, in seconds of a monotonic clock."""
        self._samples.append((now, progress))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0]
        seconds = (now - since) or 1.0
        return Row(
            self._flow,
            progress,
            (progress.stored - before.stored) / seconds,
            # A group that was reset has consumed less than before.
            max(0.0, (progress.consumed - before.consumed) / seconds),
        )


async def flow_progress(admin: Admin, flow: Flow) -> Progress:
    """Read the progress of a flow from all brokers."""
    stored, consumed, retries, dead = await asyncio.gather(
        _stored(admin, flow.topic),
        _consumed(admin, flow),
        _stored(admin, retry_topic(flow.group)),
        _stored(admin, dlq_topic(flow.group)),
    )
    return Progress(stored, consumed, retries, dead)


async def _stored(admin: Admin, topic: str) -> int:
    try:
        status = await topic_status(admin, topic)
    except ResponseError:
        return 0  # nothing was ever sent there: the topic does not exist
    return sum(queue.max_offset for queue in status.queues)


async def _consumed(admin: Admin, flow: Flow) -> int:
    try:
        progress = await consume_stats(admin, flow.group, flow.topic)
    except ResponseError:
        return 0  # the group has not started
    return sum(max(0, queue.consumer_offset) for queue in progress.queues if queue.topic == flow.topic)
