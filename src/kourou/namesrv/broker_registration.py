"""BrokerRegistration: who registers, with which topics, and what it learns in return.

Not here: the request these are read from (broker_processor.py), what becomes of them (route_info.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.namesrv.topic_queues import TopicSettings
from kourou.protocol.bodies import DataVersion, TopicQueueMappingInfo

# Four missed rounds of registration, which come every 30 s.
BROKER_EXPIRY_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable:
    """The topics of a broker, or the part that has changed."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicSettings] = field(default_factory=dict)
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: Sequence[str] = ()

    @property
    def may_be_increment(self) -> bool:
        """True for one topic: brokers send just that when they create it."""
        return len(self.topics) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """Who registers. `digest` stands for the table: equal ones mean the same table, None is unknown."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str = ""
    zone_name: str | None = None
    timeout_ms: int = BROKER_EXPIRY_MS
    enable_acting_master: bool | None = None  # None: a 4.x broker, which does not say
    digest: int | None = None


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """What a slave learns of its master; of both None when there is none, or for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
