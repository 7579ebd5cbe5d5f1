"""Broker sets that choose their master by themselves: the members in sync, and handing over.

The requests are those of RocketMQ's controller. Kourou's members answer them, so the address of any member
stands for that of a controller; with Apache's brokers it is the controller's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.targets import brokers_of
from kourou.errors import ConfigError, KourouError, ResponseError
from kourou.protocol.bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ReplicasInfo,
    decode_body,
    encode_body,
)
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.controller import (
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
)
from kourou.wording import suggestion

DEFAULT_WAIT_S: Final = 30.0
"""How long a handover is waited for."""
_POLL_S: Final = 0.05
_ANY_MEMBER: Final = -1


@dataclass(frozen=True, slots=True)
class ControllerMetaData:
    """A controller: its leader and all its members."""

    group: str | None
    leader_id: str | None
    leader_address: str | None
    peers: list[str]


@dataclass(frozen=True, slots=True)
class ElectedMaster:
    """The response to an election: the master of the reign that begins, and the members by id."""

    cluster: str
    broker_name: str
    master_id: int | None
    master_address: str | None
    master_epoch: int | None
    sync_state_set_epoch: int | None
    brokers: dict[int, str]


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """A member of a broker set."""

    member_id: int
    address: str

    def __str__(self) -> str:
        return f"member {self.member_id} ({self.address})"


@dataclass(frozen=True, slots=True)
class Handover:
    """A handover that was done."""

    broker_name: str
    old_master: MemberPlace
    new_master: MemberPlace
    requested: int
    """The member that was to take over."""
    epoch: int
    in_sync: list[int]
    seconds: float
    """From the request until clients find the new master at the name server."""


# -- sets --------------------------------------------------------------------------------------------


async def controller_metadata(admin: Admin, controller: str) -> ControllerMetaData:
    """The leader of a controller; of a broker set, its master."""
    answer = await admin.call(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
    header = answer.header(GetMetaDataResponseHeader)
    peers = [peer for peer in (header.peers or "").split(";") if peer]
    return ControllerMetaData(
        header.group, header.controller_leader_id, header.controller_leader_address, peers
    )


async def sync_state_sets(
    admin: Admin, controller: str, broker_names: Sequence[str]
) -> dict[str, ReplicasInfo]:
    """The sets of these names that a controller knows."""
    leader = await _leader(admin, controller)
    return await _read_sets(admin, leader, broker_names)


async def registered_sets(
    admin: Admin, *, cluster: str | None = None, broker_name: str | None = None
) -> dict[str, ReplicasInfo]:
    """The broker sets that the name servers know, by name: of one cluster, of one name, or all. ConfigError
    if there is none."""
    places = await (brokers_of(admin, cluster) if cluster is not None else admin.brokers())
    if broker_name is not None:
        places = _named(places, broker_name)
    by_name: dict[str, list[BrokerAddress]] = {}
    for place in places:
        by_name.setdefault(place.broker_name, []).append(place)
    found = await asyncio.gather(*(_set_of(admin, name, of_name) for name, of_name in by_name.items()))
    sets = {name: info for name, info in zip(by_name, found, strict=True) if info is not None}
    if not sets:
        raise ConfigError(_not_a_set(f"broker {broker_name}" if broker_name is not None else "no broker"))
    return sets


def _named(places: Iterable[BrokerAddress], broker_name: str) -> list[BrokerAddress]:
    known = list(places)
    found = [place for place in known if place.broker_name == broker_name]
    if not found:
        names = sorted({place.broker_name for place in known})
        there = f"; there are: {', '.join(names)}" if names else "; no broker is registered"
        raise ConfigError(
            f"broker {broker_name}: no broker of this name is registered at the name server"
            f"{suggestion(broker_name, names) or there}"
        )
    return found


def _not_a_set(what: str) -> str:
    is_not = "is a member" if what.startswith("no ") else "is not a member"
    return (
        f"{what} {is_not} of a broker set that chooses its master (failoverEtcdEndpoints, docs/failover.md); "
        "for Apache's brokers give the controller with -a"
    )


async def _set_of(admin: Admin, name: str, members: Sequence[BrokerAddress]) -> ReplicasInfo | None:
    """The set as the first member that responds sees it, the master first; None if it is none."""
    problem: KourouError | None = None
    for member in members:
        try:
            return (await _read_sets(admin, member.address, [name])).get(name)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            problem = error
        except KourouError as error:
            problem = error
    if problem is not None:
        raise problem
    return None


async def _read_sets(admin: Admin, address: str, broker_names: Sequence[str]) -> dict[str, ReplicasInfo]:
    answer = await admin.call(
        address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body(list(broker_names))
    )
    return decode_body(answer.body, BrokerReplicasInfo).replicas_info_table


async def _leader(admin: Admin, controller: str) -> str:
    leader = (await controller_metadata(admin, controller)).leader_address
    if not leader:
        raise ConfigError(f"the controller at {controller} has no leader now; try again, or another address")
    return leader


# -- handing over ------------------------------------------------------------------------------------


async def any_member(admin: Admin, broker_name: str) -> str:
    """The address of a registered broker of this name, of the master if there is one. ConfigError: there is
    none."""
    return _named(await admin.brokers(), broker_name)[0].address


async def elect_master(
    admin: Admin, controller: str, *, cluster: str, broker_name: str, broker_id: int = _ANY_MEMBER
) -> ElectedMaster:
    """Let a member become master; returns when that was started. ResponseError with the reason if it
    cannot."""
    header = ElectMasterRequestHeader(
        cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, designate_elect=True
    )
    leader = await _leader(admin, controller)
    answer = await admin.call(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)
    elected = answer.header(ElectMasterResponseHeader)
    group = decode_body(answer.body, BrokerMemberGroup) if answer.body else BrokerMemberGroup()
    return ElectedMaster(
        cluster,
        broker_name,
        elected.master_broker_id,
        elected.master_address,
        elected.master_epoch,
        elected.sync_state_set_epoch,
        group.broker_addrs,
    )


async def hand_over(
    admin: Admin, broker_name: str, target: int | None = None, *, wait_s: float = DEFAULT_WAIT_S
) -> Handover:
    """Let another member of a set become master, `target` or the preferred one, and wait until clients find
    it. ConfigError or KourouError with the reason if it cannot, or if it takes longer than `wait_s`."""
    (before,) = (await registered_sets(admin, broker_name=broker_name)).values()
    old = _master_of(before)
    if old is None:
        raise KourouError(f"broker {broker_name} has no master at present; see mqadmin getSyncStateSet")
    places = _named(await admin.brokers(), broker_name)
    began = time.monotonic()
    try:
        elected = await elect_master(
            admin,
            old.address,
            cluster=places[0].cluster,
            broker_name=broker_name,
            broker_id=_ANY_MEMBER if target is None else target,
        )
    except ResponseError as error:
        raise KourouError(f"broker {broker_name}: {error.remark}") from error
    requested = elected.master_id if elected.master_id is not None else _ANY_MEMBER
    try:
        async with asyncio.timeout(wait_s):
            after = await _wait_reign(admin, broker_name, before.master_epoch)
    except TimeoutError:
        raise KourouError(
            f"broker {broker_name}: {old} was to hand over to member {requested}, but no new master is "
            f"registered after {wait_s:g} s; see mqadmin getSyncStateSet and the logs of both"
        ) from None
    new = _master_of(after)
    assert new is not None
    in_sync = [each.broker_id for each in after.in_sync_replicas if each.broker_id is not None]
    return Handover(broker_name, old, new, requested, after.master_epoch, in_sync, time.monotonic() - began)


async def _wait_reign(admin: Admin, broker_name: str, old_epoch: int) -> ReplicasInfo:
    """The set when a master of a later epoch is the registered one."""
    while True:
        info = await _registered_reign(admin, broker_name)
        if info is not None and info.master_epoch > old_epoch:
            return info
        await asyncio.sleep(_POLL_S)


async def _registered_reign(admin: Admin, broker_name: str) -> ReplicasInfo | None:
    """The set if its master is the one that name servers return."""
    try:
        data = (await admin.cluster_info()).broker_addr_table.get(broker_name)
        address = data.broker_addrs.get(MASTER_ID) if data is not None else None
        if address is None:
            return None
        info = (await _read_sets(admin, address, [broker_name])).get(broker_name)
    except KourouError:  # members restart while the role changes
        return None
    return info if info is not None and info.master_address == address else None


def _master_of(info: ReplicasInfo) -> MemberPlace | None:
    if info.master_broker_id is None or not info.master_address:
        return None
    return MemberPlace(info.master_broker_id, info.master_address)
