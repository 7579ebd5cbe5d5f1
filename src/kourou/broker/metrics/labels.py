"""The labels that all series of one broker have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.config.checks import split_labels
from kourou.metrics.families import Labels

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig


def broker_scope(config: BrokerConfig) -> Labels:
    """Which broker it is, and `metricsLabel`. A slave has its master's name, so it has one label more."""
    return (
        ("cluster", config.broker_cluster_name),
        ("node_type", "broker"),
        ("node_id", config.broker_name),
        *((("broker_id", str(config.broker_id)),) if config.is_slave else ()),
        *split_labels(config.metrics_label),
    )
