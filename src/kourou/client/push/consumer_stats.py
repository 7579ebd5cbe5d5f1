"""ConsumerStats: the counters of a consumer, for users and for tools."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kourou.protocol.bodies import ConsumeStatus

SAMPLE_INTERVAL_MS: Final = 10_000
_MINUTE_SAMPLES: Final = 6
_HOUR_SAMPLES: Final = 360


@dataclass(slots=True)
class TopicStats:
    """Totals of one topic since the consumer started; a retry counts for its original topic."""

    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    consumed: int = 0
    failed: int = 0
    """Failed messages; each failure of a message counts."""
    consume_s: float = 0.0
    """Time spent in handlers, in total."""


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """The result of `stats()`."""

    topics: Mapping[str, TopicStats]
    queues: int
    """Queues assigned to this consumer."""
    in_hand: int
    """Messages that were pulled and not consumed yet."""
    in_hand_bytes: int
    running_handlers: int
    timed_out: int
    """Handlers that took longer than `consume_timeout_ms`."""
    failure: BaseException | None = None
    """The error of a background task that failed; then stop the consumer and make a new one."""

    @property
    def consumed(self) -> int:
        """Messages consumed, over all topics."""
        return sum(topic.consumed for topic in self.topics.values())

    @property
    def failed(self) -> int:
        """Failures, over all topics."""
        return sum(topic.failed for topic in self.topics.values())


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    pulls: int
    pulled: int
    pull_s: float
    consumed: int
    failed: int
    consume_s: float


@dataclass(slots=True)
class StatsTable:
    """The counters by topic, with samples of the last hour."""

    topics: dict[str, TopicStats] = field(default_factory=dict)
    timed_out: int = 0
    _samples: dict[str, deque[_Sample]] = field(default_factory=dict)

    def of(self, topic: str) -> TopicStats:
        """The counters of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicStats()
            self._samples[topic] = deque([_sample(found)], maxlen=_HOUR_SAMPLES + 1)
        return found

    async def sample(self) -> None:
        """Take a sample of the counters; called every SAMPLE_INTERVAL_MS."""
        for topic, stats in self.topics.items():
            self._samples[topic].append(_sample(stats))

    def status(self, topic: str) -> ConsumeStatus:
        """The rates of the last minute, for tools."""
        now, samples = _sample(self.of(topic)), self._samples[topic]
        before = samples[max(0, len(samples) - _MINUTE_SAMPLES)]
        seconds = max(now.at - before.at, 0.001)
        consumed, failed = now.consumed - before.consumed, now.failed - before.failed
        return ConsumeStatus(
            pull_rt=_mean_ms(now.pull_s - before.pull_s, now.pulls - before.pulls),
            pull_tps=(now.pulled - before.pulled) / seconds,
            consume_rt=_mean_ms(now.consume_s - before.consume_s, consumed + failed),
            consume_ok_tps=consumed / seconds,
            consume_failed_tps=failed / seconds,
            consume_failed_msgs=now.failed - samples[0].failed,
        )


def _mean_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0


def _sample(stats: TopicStats) -> _Sample:
    return _Sample(
        time.monotonic(),
        stats.pulls,
        stats.pulled,
        stats.pull_s,
        stats.consumed,
        stats.failed,
        stats.consume_s,
    )
