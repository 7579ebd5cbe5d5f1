"""Checks of replication: roles and ids that do not fit, masters without slaves, slaves that are behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kourou.admin.brokers import broker_configs
from kourou.admin.doctor.cluster_snapshot import ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity
from kourou.admin.replication import Replica, SlaveLag, read_replication, slave_lags
from kourou.admin.session import BrokerAddress, places_in
from kourou.errors import KourouError
from kourou.protocol.bodies import ClusterInfo, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.failover_status import FailoverStatus
from kourou.transport.addresses import join_address
from kourou.wording import counted

_CHECK: Final = "replication"
_SLAVE: Final = "SLAVE"
_SYNC_MASTER: Final = "SYNC_MASTER"
LAG_WARNING_MS: Final = 10_000
_MAX_GAP_KEYS: Final = ("haMaxGapNotInSync", "haSlaveFallbehindMax")
_MAX_GAP_BYTES: Final = 268_435_456

Configs = Mapping[str, Mapping[str, str]]
"""The configuration of brokers, by address."""


async def check_replication(snapshot: ClusterSnapshot) -> list[Finding]:
    """Roles, ids and lag of all masters and slaves."""
    living = [broker for broker in snapshot.brokers if not broker.problem]
    if not living:
        return []
    pages = await broker_configs(snapshot.admin, [broker.place.address for broker in living])
    configs = {page.address: page.config for page in pages}
    sync = [address for address, config in configs.items() if config.get("brokerRole") == _SYNC_MASTER]
    brokers = [(broker.place, broker.runtime) for broker in snapshot.brokers]
    replicas = await read_replication(snapshot.admin, brokers, sync)
    snapshot.slaves = slave_lags(replicas)
    return [
        *id_findings(await _registered(snapshot)),
        *role_findings(replicas, configs),
        *sync_findings(replicas, configs),
        *lag_findings(replicas, snapshot.slaves, configs),
    ]


async def _registered(snapshot: ClusterSnapshot) -> list[BrokerAddress]:
    """Every broker with a name of these that any name server knows. Of brokers with the same name and id,
    only those that respond: a name server may have the address of one that has moved."""
    names = {broker.place.broker_name for broker in snapshot.brokers}
    found: set[BrokerAddress] = set()
    for address in snapshot.namesrvs:
        try:
            answer = await snapshot.admin.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except KourouError:  # a finding of its own
            continue
        found |= {
            place for place in places_in(decode_body(answer.body, ClusterInfo)) if place.broker_name in names
        }
    addresses: dict[tuple[str, int], set[str]] = {}
    for place in found:
        addresses.setdefault((place.broker_name, place.broker_id), set()).add(place.address)
    doubtful = set[str]().union(*(of_id for of_id in addresses.values() if len(of_id) > 1))
    silent = {address for address in doubtful if not await _is_responding(snapshot, address)}
    return sorted(
        (place for place in found if place.address not in silent),
        key=lambda each: (each.broker_name, each.broker_id, each.address, each.cluster),
    )


async def _is_responding(snapshot: ClusterSnapshot, address: str) -> bool:
    try:
        await snapshot.admin.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except KourouError:
        return False
    return True


def _where(place: BrokerAddress) -> str:
    return f"broker {place.broker_name} ({place.address})"


# -- roles and ids -----------------------------------------------------------------------------------


def id_findings(registered: Iterable[BrokerAddress]) -> Iterator[Finding]:
    """Two brokers with one name and id, and one name in two clusters."""
    addresses: dict[tuple[str, int], list[str]] = {}
    clusters: dict[str, list[str]] = {}
    for place in registered:
        of_id = addresses.setdefault((place.broker_name, place.broker_id), [])
        of_id += [place.address] if place.address not in of_id else []
        of_name = clusters.setdefault(place.broker_name, [])
        of_name += [place.cluster] if place.cluster not in of_name else []
    for (name, broker_id), of_id in addresses.items():
        if len(of_id) > 1:
            role = "masters" if broker_id == 0 else f"slaves with brokerId {broker_id}"
            yield Finding(
                severity=Severity.PROBLEM,
                check=_CHECK,
                where=f"broker {name}",
                what=f"{len(of_id)} {role} have this name: {', '.join(of_id)}",
                meaning="name servers return whichever registered last: clients change between them, and "
                "messages of one are not found at the other",
                cure="stop one of them; give it a name of its own, or make it a slave with an id of its own "
                "(brokerName, brokerRole, brokerId)",
            )
    for name, of_name in clusters.items():
        if len(of_name) > 1:
            yield Finding(
                severity=Severity.PROBLEM,
                check=_CHECK,
                where=f"broker {name}",
                what=f"brokers of this name are registered in {counted(len(of_name), 'cluster')}: "
                f"{', '.join(of_name)}",
                meaning="name servers know brokers by name: they replace each other there; masters refuse "
                "slaves of another cluster",
                cure="give brokers of different clusters different names (brokerName)",
            )


def role_findings(replicas: Sequence[Replica], configs: Configs) -> Iterator[Finding]:
    """Ids that do not fit the role, slaves without master, slaves of another master."""
    masters = {replica.place.broker_name: replica.place for replica in replicas if replica.place.is_master}
    without_master: set[str] = set()
    for replica in replicas:
        place, config = replica.place, configs.get(replica.place.address, {})
        role = config.get("brokerRole", "")
        if role and place.is_master is (role == _SLAVE):
            yield _wrong_id(place, role)
        if place.is_master:
            continue
        master = masters.get(place.broker_name)
        if master is None:
            if place.broker_name not in without_master and not _is_member(replica):
                yield _without_master(place)
            without_master.add(place.broker_name)
        elif other := _other_master(replica, config, configs.get(master.address, {})):
            yield _follows_other(place, other, master)


def _is_member(replica: Replica) -> bool:
    """Whether it belongs to a set that chooses its master: other rules hold there (checks_failover.py)."""
    return FailoverStatus.of(replica.runtime) is not None


def _wrong_id(place: BrokerAddress, role: str) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=_where(place),
        what=f"it is registered with id {place.broker_id}, but its role is {role}",
        meaning="id 0 is the master's: clients send to a slave, which rejects it, or never find this master",
        cure="set brokerId=0 and a master's brokerRole, or brokerRole=SLAVE and a brokerId above 0",
    )


def _without_master(place: BrokerAddress) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=f"broker {place.broker_name}",
        what=f"a slave ({place.address}) is registered, but no master",
        meaning="consumers read what the slave has; producers use other brokers, or fail if there are none",
        cure="start the master; if it does not come back, make a slave the master (docs/replication.md)",
    )


def _other_master(slave: Replica, config: Mapping[str, str], master: Mapping[str, str]) -> str | None:
    """The address that a slave follows, if it is not that of its master."""
    followed = slave.ha.ha_client_runtime_info.master_addr if slave.ha else None
    host, port = master.get("brokerIP2"), master.get("haListenPort", "")
    # An operator may name the master by another address of the same machine.
    if not followed or not host or not port.isdecimal() or config.get("haMasterAddress"):
        return None
    return followed if followed != join_address(host, int(port)) else None


def _follows_other(place: BrokerAddress, other: str, master: BrokerAddress) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=_where(place),
        what=f"it follows a master at {other}, which is not the registered one ({master.address})",
        meaning="there may be two masters of this name; messages of the registered one have no copy here",
        cure="look for a second master of this name and stop it, then restart the slave",
    )


# -- slaves ------------------------------------------------------------------------------------------


def sync_findings(replicas: Iterable[Replica], configs: Configs) -> Iterator[Finding]:
    """Masters that wait for slaves and have too few, and such that do not wait although it looks so."""
    for replica in replicas:
        config = configs.get(replica.place.address, {})
        if config.get("brokerRole") != _SYNC_MASTER or not replica.place.is_master or _is_member(replica):
            continue
        copies = config.get("inSyncReplicas", "0")
        if copies == "1":
            yield _waits_for_none(replica.place)
        elif replica.ha is not None and replica.ha.in_sync_slave_nums + 1 < _least_copies(config):
            yield _too_few_slaves(replica, config)
        elif replica.ha is not None and not replica.ha.in_sync_slave_nums:
            yield _no_slave(replica)


def _least_copies(config: Mapping[str, str]) -> int:
    """With fewer copies in sync, the master's among them, messages are rejected; 0: never."""
    copies = int(config.get("inSyncReplicas", "0"))
    is_less_enough = "true" in (config.get("enableAutoInSyncReplicas"), config.get("allAckInSyncStateSet"))
    return int(config.get("minInSyncReplicas", "1")) if copies and is_less_enough else copies


def _waits_for_none(place: BrokerAddress) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=_where(place),
        what="its role is SYNC_MASTER, but inSyncReplicas=1 counts only the master itself",
        meaning="a message is acknowledged before a slave has it; it is lost if the master's disk is lost",
        cure="set inSyncReplicas=2 to wait for one slave",
    )


def _too_few_slaves(replica: Replica, config: Mapping[str, str]) -> Finding:
    in_sync = replica.ha.in_sync_slave_nums if replica.ha else 0
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=_where(replica.place),
        what=f"{counted(in_sync + 1, 'copy', 'copies')} in sync, the master's included; "
        f"messages need {_least_copies(config)}",
        meaning='messages are rejected ("in-sync replicas not enough"); Apache brokers without a controller '
        "answer FLUSH_SLAVE_TIMEOUT",
        cure="start its slaves, or see the log of the slaves for why they do not follow; else lower "
        "inSyncReplicas or minInSyncReplicas",
    )


def _no_slave(replica: Replica) -> Finding:
    connected = len(replica.ha.ha_connection_info) if replica.ha else 0
    slaves = "no slave is connected" if not connected else f"none of {counted(connected, 'slave')} is in sync"
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=_where(replica.place),
        what=f"its role is SYNC_MASTER, but {slaves}",
        meaning="messages are stored on this broker only; with inSyncReplicas=0 producers get the status "
        "SLAVE_NOT_AVAILABLE",
        cure="start its slave, or see the log of the slave for why it does not follow; without slaves set "
        "brokerRole=ASYNC_MASTER",
    )


def lag_findings(
    replicas: Iterable[Replica], slaves: Iterable[SlaveLag], configs: Configs
) -> Iterator[Finding]:
    """Slaves that do not follow, or are far behind."""
    masters = {replica.place.broker_name: replica.place for replica in replicas if replica.place.is_master}
    for slave in slaves:
        place = BrokerAddress(slave.cluster, slave.broker_name, slave.broker_id, slave.address)
        master = masters.get(slave.broker_name)
        if master is None or slave.address not in configs:  # findings of their own
            continue
        max_gap = _max_gap_bytes(configs.get(master.address, {}))
        if slave.problem:
            yield _not_following(place, slave.problem)
        elif (slave.lag_bytes or 0) >= max_gap or (slave.lag_ms or 0) >= LAG_WARNING_MS:
            yield _behind(place, slave, max_gap)


def _max_gap_bytes(config: Mapping[str, str]) -> int:
    for key in _MAX_GAP_KEYS:
        if config.get(key, "").isdecimal():
            return int(config[key])
    return _MAX_GAP_BYTES


def _not_following(place: BrokerAddress, problem: str) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=_where(place),
        what=f"this slave does not follow its master: {problem}",
        meaning="new messages have no copy here; consumers that read from it get old messages only",
        cure="see its log and that of the master; if their logs have diverged, compare the stores "
        "(kourou store compare) and follow docs/replication.md",
    )


def _behind(place: BrokerAddress, slave: SlaveLag, max_gap: int) -> Finding:
    is_out = (slave.lag_bytes or 0) >= max_gap
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=_where(place),
        what=f"this slave is {slave}",
        meaning="messages of that time are lost if the master's disk is lost"
        + (f"; above haMaxGapNotInSync ({max_gap} bytes) a master does not wait for it" if is_out else ""),
        cure="normal while a new or restarted slave catches up; otherwise check its disk, CPU and network",
    )
