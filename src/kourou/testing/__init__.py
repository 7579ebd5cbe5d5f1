"""A RocketMQ cluster for tests: `LocalCluster`, and the pytest fixtures `rocketmq` and `rocketmq_topic`.

The other modules test Kourou itself: clocks, certificates, faulty files. Nothing else in the package
imports any of it. Names here are loaded on first use: pytest imports the package at every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from kourou.testing.errors import ClusterStateError, NotConsumedError, UnknownTopicError
    from kourou.testing.local_cluster import AsyncLocalCluster, LocalCluster
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "kourou.testing.errors": ("ClusterStateError", "NotConsumedError", "UnknownTopicError"),
            "kourou.testing.local_cluster": ("AsyncLocalCluster", "LocalCluster"),
        },
        see_also=("kourou", "kourou.errors"),
    )

__all__ = [
    "AsyncLocalCluster",
    "ClusterStateError",
    "LocalCluster",
    "NotConsumedError",
    "UnknownTopicError",
]
