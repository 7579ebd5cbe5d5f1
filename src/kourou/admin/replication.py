"""Replication of a cluster: how far each slave is behind its master.

In bytes for every broker, from where the logs end. In milliseconds, and whether a slave follows at all, as
far as brokers report it (907): Kourou's do, those of RocketMQ 4 do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kourou.admin.session import Admin, BrokerAddress
from kourou.errors import KourouError
from kourou.protocol.bodies import HARuntimeInfo, decode_body
from kourou.protocol.codes import RequestCode

_LOG_END: Final = "commitLogMaxOffset"
_NOT_CONNECTED: Final = "it is not connected to its master"


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker as it was read: its state, and its replication if it reports that."""

    place: BrokerAddress
    runtime: Mapping[str, str]
    ha: HARuntimeInfo | None = None

    @property
    def log_end(self) -> int | None:
        """Where its log ends."""
        text = self.runtime.get(_LOG_END, "")
        return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class SlaveLag:
    """How far a slave is behind its master; None where that is not known."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    lag_bytes: int | None = None
    lag_ms: int | None = None
    problem: str = ""
    """Why it does not follow its master; empty if it does, or if that is not known."""

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        parts = [
            f"{number} {unit}"
            for number, unit in ((self.lag_bytes, "bytes"), (self.lag_ms, "ms"))
            if number is not None
        ]
        return f"{', '.join(parts)} behind its master" if parts else "its lag is not known"


async def read_replication(
    admin: Admin, brokers: Iterable[tuple[BrokerAddress, Mapping[str, str]]], also: Container[str] = ()
) -> list[Replica]:
    """The replication of brokers that were read before, each with its state. Requests go to those that share
    a name with a slave, and those in `also`, by address."""
    found = list(brokers)
    with_slaves = {place.broker_name for place, _ in found if not place.is_master}

    async def read(place: BrokerAddress, runtime: Mapping[str, str]) -> Replica:
        if not runtime or not (place.broker_name in with_slaves or place.address in also):
            return Replica(place, runtime)
        try:
            answer = await admin.call(place.address, RequestCode.GET_BROKER_HA_STATUS)
            return Replica(place, runtime, decode_body(answer.body, HARuntimeInfo))
        except KourouError:  # 4.9 does not know the request
            return Replica(place, runtime)

    return list(await asyncio.gather(*(read(place, runtime) for place, runtime in found)))


def slave_lags(replicas: Iterable[Replica]) -> list[SlaveLag]:
    """The lag of each slave, in the order of the brokers."""
    read = list(replicas)
    masters = {replica.place.broker_name: replica for replica in read if replica.place.is_master}
    return [
        _lag(replica, masters.get(replica.place.broker_name))
        for replica in read
        if not replica.place.is_master
    ]


def _lag(slave: Replica, master: Replica | None) -> SlaveLag:
    place = slave.place
    where = (place.cluster, place.broker_name, place.broker_id, place.address)
    problem = (slave.ha and slave.ha.ha_client_runtime_info.kourou_problem) or ""
    if master is None:
        return SlaveLag(*where, problem=problem or "no master of its name is registered")
    ends = (master.log_end, slave.log_end)
    lag_bytes = max(0, ends[0] - ends[1]) if ends[0] is not None and ends[1] is not None else None
    if master.ha is None:
        return SlaveLag(*where, lag_bytes, problem=problem)
    by_id = {link.kourou_broker_id: link for link in master.ha.ha_connection_info}
    link = by_id.get(place.broker_id)
    if link is not None:
        return SlaveLag(*where, link.diff, link.kourou_lag_ms, problem)
    # Apache's brokers do not report which connection is that of which slave.
    is_missing = None not in by_id
    return SlaveLag(*where, lag_bytes, problem=problem or (_NOT_CONNECTED if is_missing else ""))
