"""A RocketMQ cluster for tests: `LocalCluster`, and pytest's fixtures `rocketmq` and `rocketmq_topic`.

The other modules test Kourou itself: clocks, certificates, faulty files. Nothing else in the package
imports any of it. Names here are loaded on first use: pytest imports the package at every start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kourou.testing.errors import ClusterStateError, NotConsumedError, UnknownTopicError
    from kourou.testing.local_cluster import AsyncLocalCluster, LocalCluster

__all__ = [
    "AsyncLocalCluster",
    "ClusterStateError",
    "LocalCluster",
    "NotConsumedError",
    "UnknownTopicError",
]

_HOMES: Final = {
    "AsyncLocalCluster": "kourou.testing.local_cluster",
    "ClusterStateError": "kourou.testing.errors",
    "LocalCluster": "kourou.testing.local_cluster",
    "NotConsumedError": "kourou.testing.errors",
    "UnknownTopicError": "kourou.testing.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kourou.testing' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
