"""Where a topic is, of what the name server knows."""

from __future__ import annotations

from kourou.admin.topics import clusters_of
from kourou.protocol.bodies import BrokerData, ClusterInfo


def test_a_topic_in_two_clusters_is_found_in_both() -> None:
    brokers = [BrokerData(cluster, name, {0: "h:1"}) for cluster, name in (("east", "a"), ("west", "b"))]
    info = ClusterInfo({}, {"west": ["b", "c"], "east": ["a"], "north": ["d"]})
    assert clusters_of(info, brokers) == ["east", "west"]
    assert clusters_of(info, []) == []
