"""Which replicas of a broker are in sync (5.x): BrokerReplicasInfo (1006), SyncStateSet (1004)."""

from __future__ import annotations

from kourou.protocol.bodies.shape import Body, Int32, Int64


class ReplicaIdentity(Body):
    """One replica; its id is the one it keeps whether it is master or slave."""

    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    alive: bool | None = None


class ReplicasInfo(Body):
    """One broker set. Epochs count masters, and changes of the set in sync."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 = 0
    sync_state_set_epoch: Int32 = 0
    in_sync_replicas: list[ReplicaIdentity] = []
    not_in_sync_replicas: list[ReplicaIdentity] = []

    @property
    def replicas(self) -> list[ReplicaIdentity]:
        """All of them."""
        return [*self.in_sync_replicas, *self.not_in_sync_replicas]


class BrokerReplicasInfo(Body):
    """Body of the response to 1006: sets by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = {}


class SyncStateSet(Body):
    """Body of the response to 1004, and of 1001: the ids of the replicas in sync."""

    sync_state_set: list[Int64] = []
    sync_state_set_epoch: Int32 = 0
