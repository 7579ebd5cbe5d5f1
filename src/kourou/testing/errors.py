"""The errors of a LocalCluster, besides those of its servers."""

from __future__ import annotations

from collections.abc import Collection

from kourou.errors import KourouError
from kourou.wording import suggestion


class ClusterStateError(KourouError):
    """Not possible now: the cluster is not started, stopped, paused, or belongs to another process."""


class UnknownTopicError(KourouError, LookupError):
    """No broker of the cluster has the topic."""

    def __init__(self, topic: str, known: Collection[str]) -> None:
        there = f"; there are: {', '.join(sorted(known))}" if known else "; there are none yet"
        super().__init__(f"there is no topic {topic!r}{suggestion(topic, known) or there}")
        self.topic = topic


class NotConsumedError(KourouError):
    """A group has not consumed everything in time. `left` describes what is left."""

    def __init__(self, group: str, timeout_s: float, left: str) -> None:
        super().__init__(f"group {group!r} has not consumed everything within {timeout_s:g} s: {left}")
        self.group = group
        self.timeout_s = timeout_s
        self.left = left
