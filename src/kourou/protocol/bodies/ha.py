"""HARuntimeInfo (907, 5.x): how far replication is; EpochEntryCache (1007, 5.x): the epochs of a log.

Fields `kourou…` are only in the answers of Kourou's brokers; Apache's tools skip them.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from kourou.protocol.bodies.shape import Body, Int32, Int64

LAST_EPOCH_END: Final = 2**63 - 1
"""The end of the epoch that goes on."""


class HAConnectionRuntimeInfo(Body):
    """One slave, as its master sees it."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0
    kourou_broker_id: Int64 | None = None
    """The slave's brokerId; Apache's slaves do not report it."""
    kourou_lag_ms: Int64 | None = None
    """For how long the slave has been behind; 0 if it has everything."""


class HAClientRuntimeInfo(Body):
    """The master, as its slave sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0
    kourou_problem: str | None = None
    """Why the slave does not follow its master."""


class HARuntimeInfo(Body):
    """Body of the response to 907."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


class EpochEntry(Body):
    """One epoch: the log from one start of a master to the next."""

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = LAST_EPOCH_END


class EpochEntryCache(Body):
    """Body of the answer to 1007."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 = 0
    epoch_list: list[EpochEntry] = []
    max_offset: Int64 = 0
