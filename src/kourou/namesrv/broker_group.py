"""BrokerGroup: the brokers that share a broker name, a master and its slaves.

RocketMQ's brokerAddrTable and brokerLiveTable in one: a broker is in its group exactly as long
as it is alive. Not here: which topics a broker may bring (route_info.py), how a group reads on
the wire (route_json.py).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from kourou.namesrv.route_json import JsonForm, broker_data_json
from kourou.namesrv.topic_queues import QueueEntry, QueueKey, TopicQueues
from kourou.protocol.bodies import BrokerData, DataVersion
from kourou.protocol.bodies.route import MASTER_ID

# A broker whose topics have more different settings than this shares less memory, no more.
_SHARED_ENTRIES: Final = 64


@dataclass(slots=True, eq=False)
class LiveBroker:
    """One broker process that has registered: its place in the group and its heartbeat."""

    group: BrokerGroup
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    last_update_ms: int
    timeout_ms: int
    connection: Hashable
    # Of the last table, None before the first.
    data_version: DataVersion | None = None
    # False while single topics are all that is known: the whole table may not have come yet.
    is_complete: bool = False
    filter_servers: tuple[str, ...] = ()
    # What was applied last (see RouteInfo.has_applied); None after anything of it was undone.
    applied: tuple[int, bool, bool | None] | None = None

    @property
    def known_version(self) -> DataVersion | None:
        """The data version we can vouch for; without one the broker sends its whole table."""
        return self.data_version if self.is_complete else None

    def is_dead(self, now_ms: int) -> bool:
        """True when the broker was silent for longer than its timeout."""
        return self.last_update_ms + self.timeout_ms < now_ms


class BrokerGroup:
    """All live brokers of one name, and the topics this name serves."""

    __slots__ = (
        "brokers",
        "cluster",
        "enable_acting_master",
        "entries",
        "filter_servers",
        "name",
        "pieces",
        "topics",
        "zone_name",
    )

    def __init__(self, name: str, cluster: str) -> None:
        self.name = name
        self.cluster = cluster
        self.enable_acting_master = False
        self.zone_name: str | None = None
        self.brokers: dict[int, LiveBroker] = {}
        self.topics: set[TopicQueues] = set()
        # Address of a broker to the filter servers beside it; a feature of 3.x that routes still show.
        self.filter_servers: dict[str, list[str]] = {}
        self.entries: dict[QueueKey, QueueEntry] = {}
        # The group as JSON, by form and whether a slave acts as master; None until requested.
        self.pieces: list[bytes | None] = [None] * (2 * len(JsonForm))

    @property
    def min_broker_id(self) -> int:
        """The lowest id alive; of a group without brokers, the master's."""
        return min(self.brokers, default=MASTER_ID)

    @property
    def has_master(self) -> bool:
        """True when a broker with id 0 is alive."""
        return MASTER_ID in self.brokers

    @property
    def broker_addrs(self) -> dict[int, str]:
        """Address of each id, lowest id first."""
        return {broker_id: self.brokers[broker_id].broker_addr for broker_id in sorted(self.brokers)}

    def broker_at(self, broker_addr: str) -> LiveBroker | None:
        """The broker at an address. Groups are a handful of brokers: no index needed."""
        for broker in self.brokers.values():
            if broker.broker_addr == broker_addr:
                return broker
        return None

    def new_entry(self, key: QueueKey) -> QueueEntry:
        """Make the entry for settings that are not in `entries`, and keep it there.

        A thousand topics with the same settings share one entry, and its JSON is made once.
        """
        if len(self.entries) >= _SHARED_ENTRIES:
            self.entries.clear()
        entry = self.entries[key] = QueueEntry(self.name, key)
        return entry

    def broker_data(self, *, acting_master: bool = False) -> BrokerData:
        """The group as routes show it; with `acting_master` the lowest id is shown as the master."""
        addrs = self.broker_addrs
        if acting_master:
            addrs = {MASTER_ID: addrs.pop(self.min_broker_id), **addrs}
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs=addrs,
            enable_acting_master=self.enable_acting_master,
            zone_name=self.zone_name,
        )

    def json(self, form: JsonForm, acting_master: bool = False) -> bytes:
        """`broker_data` as JSON, kept in `pieces` until `changed`."""
        text = self.pieces[form * 2 + acting_master]
        if text is None:
            text = broker_data_json(self.broker_data(acting_master=acting_master), form)
            self.pieces[form * 2 + acting_master] = text
        return text

    def changed(self) -> None:
        """Forget the JSON: an address, the cluster or a flag of the group has changed."""
        self.pieces = [None] * (2 * len(JsonForm))
        brokers = self.brokers.values()
        self.filter_servers = {b.broker_addr: list(b.filter_servers) for b in brokers if b.filter_servers}

    def forget_applied(self) -> None:
        """Make the next registration of each broker count in full, even if it repeats the last."""
        for broker in self.brokers.values():
            broker.applied = None
