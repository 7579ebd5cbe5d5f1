"""LagTable: the progress of all groups, summed by topic and by group.

Built once for each reading of the cluster, whatever the number of users.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kourou.admin.brokers import GroupQueueLag

GroupTopic = tuple[str, str]
"""A group and a topic."""


@dataclass(slots=True)
class LagSum:
    """The progress of a group in a topic, or a sum of several."""

    lag: int = 0
    """Messages not yet consumed."""
    waiting_since_ms: int | None = None
    """The store time of the oldest message that is not consumed; None without lag."""

    def add(self, queue: GroupQueueLag) -> None:
        """Add the progress on a broker."""
        self.lag += max(0, queue.diff)
        if queue.diff > 0 and queue.last_timestamp > 0:
            since = self.waiting_since_ms
            self.waiting_since_ms = min(since, queue.last_timestamp) if since else queue.last_timestamp

    def behind_ms(self, now_ms: int) -> int | None:
        """The age of the oldest message that is not consumed; 0 without lag, None if unknown."""
        if not self.lag:
            return 0
        return None if self.waiting_since_ms is None else max(0, now_ms - self.waiting_since_ms)


@dataclass(slots=True)
class LagTable:
    """All progress of one reading."""

    as_of: int
    brokers: dict[GroupTopic, list[GroupQueueLag]] = field(default_factory=dict)
    """The progress on each broker."""
    by_group: dict[str, LagSum] = field(default_factory=dict)
    by_topic: dict[str, LagSum] = field(default_factory=dict)
    by_pair: dict[GroupTopic, LagSum] = field(default_factory=dict)
    groups_of: dict[str, list[str]] = field(default_factory=dict)
    """Topic → groups with an offset in it, sorted."""
    topics_of: dict[str, list[str]] = field(default_factory=dict)
    """Group → topics, sorted."""


def lag_table(queues: Iterable[GroupQueueLag], as_of: int) -> LagTable:
    """The table of a reading."""
    table = LagTable(as_of)
    for queue in queues:
        pair = (queue.group, queue.topic)
        table.brokers.setdefault(pair, []).append(queue)
        table.by_pair.setdefault(pair, LagSum()).add(queue)
        table.by_group.setdefault(queue.group, LagSum()).add(queue)
        table.by_topic.setdefault(queue.topic, LagSum()).add(queue)
    for group, topic in sorted(table.brokers):
        table.groups_of.setdefault(topic, []).append(group)
        table.topics_of.setdefault(group, []).append(topic)
    return table
