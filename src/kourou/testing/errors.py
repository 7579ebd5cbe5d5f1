"""What a LocalCluster raises, besides what its servers do."""

from __future__ import annotations

from kourou.errors import KourouError


class ClusterStateError(KourouError):
    """The cluster cannot do this now: it is not started, stopped, paused, or of another process."""


class NotConsumedError(KourouError):
    """A group has not consumed everything in time. `left` says what is left."""

    def __init__(self, group: str, timeout_s: float, left: str) -> None:
        super().__init__(f"group {group!r} has not consumed everything within {timeout_s:g} s: {left}")
        self.group = group
        self.timeout_s = timeout_s
        self.left = left
