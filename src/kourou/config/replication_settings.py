"""The keys of replication, master's and slave's: each is declared here and nowhere else.

The form is that of broker_settings.py. What they promise together: docs/replication.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.keys import BOOL, ENUM, INT, LONG, STRING, setting
from kourou.config.networks import networks

ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")

_role = partial(setting, "Replication", live=False)
_link = partial(setting, "Replication")


# The methods are generated once, for BrokerConfig: there are many fields, and a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationSettings:
    """How brokers of one name copy each other's messages."""

    broker_role: str = _role(
        "brokerRole",
        ENUM,
        "ASYNC_MASTER",
        "`ASYNC_MASTER` acknowledges a message without waiting for slaves, `SYNC_MASTER` once a slave has "
        "it; a `SLAVE` (with a `brokerId` above 0) copies the master of its `brokerName` "
        "([replication.md](replication.md)).",
        choices=ROLES,
        important=True,
    )
    ha_listen_port: int | None = _role(
        "haListenPort",
        INT,
        None,
        "Port for slaves; one above `listenPort` if not set.",
        low=0,
        high=65_535,
    )
    fast_listen_port: int | None = _role(
        "fastListenPort",
        INT,
        None,
        "A second port of a master for all requests: Apache's slaves copy the topics from there. Two below "
        "`listenPort` if not set, as in RocketMQ; 0: none.",
        low=0,
        high=65_535,
    )
    ha_master_address: str | None = _role(
        "haMasterAddress",
        STRING,
        None,
        "The master's address for slaves, `host:port`; a slave without it gets it from the name servers.",
    )
    ha_allowed_addresses: str = _link(
        "haAllowedAddresses",
        STRING,
        "",
        "Kourou's own, with access control: the brokers of Apache, slaves or master, by address, "
        "as in `10.0.0.7,10.1.0.0/16`. Brokers of Kourou prove that they have "
        "`innerClientAuthenticationCredentials` instead. Empty: none.",
        check=networks,
        protected=True,
        shown=False,
    )
    sync_from_last_file: bool = _link(
        "syncFromLastFile",
        BOOL,
        False,
        "Let a slave with an empty store begin with the last file of the log, as Apache's masters do, "
        "instead of all there is.",
    )
    ha_transfer_batch_size: int = _link(
        "haTransferBatchSize",
        INT,
        32_768,
        "How much an Apache slave gets at once, in bytes.",
        low=1,
        high=4_000_000,
    )
    ha_send_heartbeat_interval: int = _link(
        "haSendHeartbeatInterval",
        INT,
        5_000,
        "After how long without messages master and slave let each other know that they are there, in ms.",
        low=1,
    )
    ha_housekeeping_interval: int = _link(
        "haHousekeepingInterval",
        INT,
        20_000,
        "After how long of silence the link between master and slave is closed, in ms.",
        low=1,
    )
    slave_timeout: int = _link(
        "slaveTimeout",
        INT,
        3_000,
        "How long a send waits for slaves, in ms, before it is answered with FLUSH_SLAVE_TIMEOUT.",
        low=1,
    )
    ha_max_gap_not_in_sync: int = _link(
        "haMaxGapNotInSync",
        LONG,
        268_435_456,
        "A slave that is this many bytes behind, or more, is not waited for.",
        old_names=("haSlaveFallbehindMax",),
        low=1,
    )
    in_sync_replicas: int = _link(
        "inSyncReplicas",
        INT,
        0,
        "How many copies, the master's among them, a `SYNC_MASTER` waits for, as in RocketMQ 5; while fewer "
        "are in sync, messages are rejected. 0: one slave, as in RocketMQ 4; without a slave the answer is "
        "SLAVE_NOT_AVAILABLE.",
        low=0,
    )
    min_in_sync_replicas: int | None = _link(
        "minInSyncReplicas",
        INT,
        None,
        "With `enableAutoInSyncReplicas`, `allAckInSyncStateSet` or fail-over: fewer copies than this are "
        "never enough. 1 if not set, and 2 with fail-over.",
        low=1,
    )
    enable_auto_in_sync_replicas: bool = _link(
        "enableAutoInSyncReplicas",
        BOOL,
        False,
        "Wait for fewer copies while fewer slaves are in sync, down to `minInSyncReplicas`.",
    )
    all_ack_in_sync_state_set: bool = _link(
        "allAckInSyncStateSet", BOOL, False, "Wait for every slave that is in sync."
    )
    offset_check_in_slave: bool = _link(
        "offsetCheckInSlave",
        BOOL,
        False,
        "Let a slave correct consumers whose offset it does not have; off: they wait until it has it.",
    )
