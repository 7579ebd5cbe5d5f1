"""EventCounters: what happens to messages beside puts and gets, since the start: dead letters, ends of
transactions, delays. Counted where it happens, for metrics.

Not here: puts and gets (broker_stats.py), names and labels of metrics (broker/metrics/).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kourou.metrics.families import Histogram

DELAY_BOUNDS_S: Final = (60.0, 600.0, 3600.0, 43200.0, 86400.0, 259200.0)
FINISH_BOUNDS_S: Final = (5.0, 60.0, 600.0, 3600.0, 43200.0, 86400.0)
"""Apache's."""


class EventCounters:
    """Plain numbers by topic, dead letters by topic and group. Owned by the loop's thread."""

    def __init__(self) -> None:
        self.dead_letters: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.commits: defaultdict[str, int] = defaultdict(int)
        self.rollbacks: defaultdict[str, int] = defaultdict(int)
        self.halves: defaultdict[str, int] = defaultdict(int)
        """Half messages that were stored, less those that have ended."""
        self.finish_s: dict[str, Histogram] = {}
        self.delay_s: dict[str, Histogram] = {}

    def dead_letter(self, group: str, topic: str) -> None:
        """A message of `topic` became a dead letter of `group`."""
        self.dead_letters[topic, group] += 1

    def half_stored(self, topic: str) -> None:
        """A transaction for `topic` has begun."""
        self.halves[topic] += 1

    def transaction_ended(self, topic: str, age_ms: int, *, is_commit: bool) -> None:
        """A transaction for `topic` has ended, so long after its half message was sent."""
        if self.halves[topic] > 0:  # else it began before the start of the broker
            self.halves[topic] -= 1
        if not is_commit:
            self.rollbacks[topic] += 1
            return
        self.commits[topic] += 1
        latencies = self.finish_s.get(topic)
        if latencies is None:
            latencies = self.finish_s[topic] = Histogram(FINISH_BOUNDS_S)
        latencies.add(max(0, age_ms) // 1000)

    def delayed(self, topic: str, delay_ms: int) -> None:
        """A timer message for `topic` is to be delivered so much later."""
        delays = self.delay_s.get(topic)
        if delays is None:
            delays = self.delay_s[topic] = Histogram(DELAY_BOUNDS_S)
        delays.add(delay_ms / 1000)

    def remove_topic(self, topic: str) -> None:
        """A topic was deleted: forget its counters."""
        counts: tuple[dict[str, int], ...] = (self.commits, self.rollbacks, self.halves)
        for numbers in counts:
            numbers.pop(topic, None)
        for latencies in (self.finish_s, self.delay_s):
            latencies.pop(topic, None)
        self._forget(key for key in list(self.dead_letters) if key[0] == topic)

    def remove_group(self, group: str) -> None:
        """A group was deleted: forget its counters."""
        self._forget(key for key in list(self.dead_letters) if key[1] == group)

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            del self.dead_letters[key]
