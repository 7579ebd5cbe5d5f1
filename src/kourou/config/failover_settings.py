"""The keys of fail-over: each is declared here and nowhere else.

The form is that of broker_settings.py. What they promise together: docs/failover.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config import checks
from kourou.config.keys import BOOL, INT, STRING, setting

_key = partial(setting, "Fail-over", live=False)

DEFAULT_LEASE_SECONDS: Final = 6


# The methods are generated once, for BrokerConfig: there are many fields, and a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class FailoverSettings:
    """How the brokers of one name choose their master by themselves."""

    failover_etcd_endpoints: str = _key(
        "failoverEtcdEndpoints",
        STRING,
        "",
        "The members of the etcd through which the brokers of this `brokerName` choose their master, "
        "`host:port` or `https://host:port`, separated by `;`. Empty: the role is that of `brokerRole` "
        "([failover.md](failover.md)). With it, `brokerRole` is `SYNC_MASTER` or `ASYNC_MASTER`, and says "
        "how this broker acknowledges when it is master; `brokerId` has no effect.",
        check=checks.endpoints,
        important=True,
        protected=True,
    )
    failover_etcd_user: str = _key("failoverEtcdUser", STRING, "", "The user of etcd; empty: none.")
    failover_etcd_password: str = _key(
        "failoverEtcdPassword", STRING, "", "The password of the user of etcd.", secret=True, protected=True
    )
    failover_etcd_ca_file: str = _key(
        "failoverEtcdCaFile",
        STRING,
        "",
        "The certificates by which etcd is verified, a PEM file; empty: those of the system.",
        protected=True,
    )
    failover_etcd_prefix: str = _key(
        "failoverEtcdPrefix", STRING, "/kourou", "What the keys in etcd begin with.", check=checks.key_prefix
    )
    failover_lease_seconds: int = _key(
        "failoverLeaseSeconds",
        INT,
        DEFAULT_LEASE_SECONDS,
        "After so many seconds without a sign of life another member becomes master. etcd makes a lease at "
        "least 1.5 times its election timeout, 2 s by default.",
        low=2,
        high=600,
    )
    failover_may_lose_messages: bool = _key(
        "failoverMayLoseMessages",
        BOOL,
        False,
        "Let a member become master that may lack acknowledged messages, if none that has all of them is "
        "alive. They are lost then.",
    )
    failover_continues_without_etcd: bool = _key(
        "failoverContinuesWithoutEtcd",
        BOOL,
        False,
        "While etcd cannot be reached, the master goes on as long as every member in sync answers and "
        "promises not to take over. All members have the same value. Not with `failoverMayLoseMessages`.",
    )
    broker_election_priority: int = _key(
        "brokerElectionPriority",
        INT,
        2_147_483_647,
        "Of the members that may become master the one with the lowest number does.",
        low=0,
    )
    ha_max_time_slave_not_catchup: int = _key(
        "haMaxTimeSlaveNotCatchup",
        INT,
        15_000,
        "In a fail-over set: a slave that is behind for so many ms leaves the in-sync set.",
        low=100,
    )

    @property
    def has_failover(self) -> bool:
        """Whether this broker is a member of a fail-over set."""
        return bool(self.failover_etcd_endpoints)
