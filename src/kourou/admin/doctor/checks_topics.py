"""Checks of topics: permissions, placement, order configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kourou.admin.doctor.cluster_snapshot import ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity
from kourou.admin.order_conf import ORDER_TOPIC_CONFIG
from kourou.errors import ResponseError
from kourou.protocol.bodies import KVTable, decode_body
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.headers.namesrv import GetKVListByNamespaceRequestHeader

_ACTIONS: Final = {PermName.WRITE: "written to", PermName.READ: "read"}
_WHO: Final = {PermName.WRITE: "producers", PermName.READ: "consumers"}


# -- permissions -------------------------------------------------------------------------------------


async def check_permissions(snapshot: ClusterSnapshot) -> list[Finding]:
    """Topics without write or read permission, on some brokers or on all; and excluded brokers."""
    excluded = _unwritable_brokers(snapshot)
    findings = [_excluded(snapshot, broker_name) for broker_name in sorted(excluded)]
    for topic in snapshot.user_topics:
        for bit in _ACTIONS:
            skipped = excluded if bit is PermName.WRITE else set()
            findings += _blocked(snapshot, topic, bit, skipped)
    return findings


def _unwritable_brokers(snapshot: ClusterSnapshot) -> set[str]:
    """Brokers without write permission on any of their user topics, if they have several."""
    perms: dict[str, list[int]] = {}
    for topic in snapshot.user_topics:
        for data in snapshot.routes[topic].queue_datas:
            perms.setdefault(data.broker_name, []).append(data.perm)
    return {
        name
        for name, found in perms.items()
        if len(found) > 1 and not any(perm & PermName.WRITE for perm in found)
    }


def _excluded(snapshot: ClusterSnapshot, broker_name: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check="permissions",
        where=f"broker {broker_name}",
        what="none of its topics can be written to",
        meaning="producers skip it and the other brokers receive all messages",
        cure="correct while it is being taken out of service; otherwise restore the write permission, "
        "and check its brokerPermission (6: read and write)",
        commands=(snapshot.command("addWritePerm", "-b", broker_name),),
    )


def _blocked(snapshot: ClusterSnapshot, topic: str, bit: PermName, skipped: set[str]) -> Iterator[Finding]:
    route = snapshot.routes[topic]
    blocked = sorted(data.broker_name for data in route.queue_datas if not data.perm & bit)
    is_everywhere = len(blocked) == len(route.queue_datas)
    if not blocked or set(blocked) <= skipped:
        return
    yield Finding(
        severity=Severity.PROBLEM if is_everywhere else Severity.WARNING,
        check="permissions",
        where=f"topic {topic}",
        what=f"it cannot be {_ACTIONS[bit]} on {', '.join(blocked)}"
        + (", which are all its brokers" if is_everywhere else ""),
        meaning=f"{_WHO[bit]} find no queue for it at all"
        if is_everywhere
        else f"{_WHO[bit]} use the other brokers only; waiting messages stay on these",
        cure="restore the permission, unless this is intended",
        commands=tuple(
            snapshot.command("updateTopicPerm", "-t", topic, "-p", "6", "-b", name) for name in blocked
        ),
    )


# -- where topics are --------------------------------------------------------------------------------


async def check_spread(snapshot: ClusterSnapshot) -> list[Finding]:
    """Topics that are missing on some masters of their cluster."""
    clusters: dict[str, set[str]] = {}
    for master in snapshot.masters:
        clusters.setdefault(master.place.cluster, set()).add(master.place.broker_name)
    findings: list[Finding] = []
    for topic in snapshot.user_topics:
        names = {data.broker_name for data in snapshot.routes[topic].queue_datas}
        for cluster, masters in clusters.items():
            if names & masters and (missing := sorted(masters - names)):
                findings.append(_missing(snapshot, topic, cluster, missing))
    return findings


def _missing(snapshot: ClusterSnapshot, topic: str, cluster: str, missing: list[str]) -> Finding:
    read, write = map(str, snapshot.queue_nums(topic))
    return Finding(
        severity=Severity.WARNING,
        check="topics on all masters",
        where=f"topic {topic}",
        what=f"cluster {cluster} has it, but not on {', '.join(missing)}",
        meaning="these brokers take none of its load, and when the others are down nothing can be sent; "
        "typical for topics that were created by a first send",
        cure="create it on all masters",
        commands=(snapshot.command("updateTopic", "-c", cluster, "-t", topic, "-r", read, "-w", write),),
    )


# -- order configuration -----------------------------------------------------------------------------


async def check_order_conf(snapshot: ClusterSnapshot) -> list[Finding]:
    """Order configurations that name missing brokers."""
    header = GetKVListByNamespaceRequestHeader(namespace=ORDER_TOPIC_CONFIG)
    try:
        answer = await snapshot.admin.call_namesrv(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
    except ResponseError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return []
    known = set((await snapshot.admin.cluster_info()).broker_addr_table)
    findings: list[Finding] = []
    for topic, conf in sorted(decode_body(answer.body, KVTable).table.items()):
        names = {entry.partition(":")[0] for entry in conf.split(";") if entry}
        if gone := sorted(names - known):
            findings.append(_gone(snapshot, topic, conf, gone))
    return findings


def _gone(snapshot: ClusterSnapshot, topic: str, conf: str, gone: list[str]) -> Finding:
    left = ";".join(entry for entry in conf.split(";") if entry and entry.partition(":")[0] not in gone)
    change = ("-m", "put", "-v", left) if left else ("-m", "delete")
    return Finding(
        severity=Severity.PROBLEM,
        check="order configuration",
        where=f"topic {topic}",
        what=f"its order configuration, {conf}, names {', '.join(gone)}, which no name server knows",
        meaning="messages for the queues of that broker cannot be sent: to keep the order, they have to wait "
        "for it",
        cure="start the broker again; if it is gone for good, remove it from the configuration, which moves "
        "its keys to other queues",
        commands=(snapshot.command("updateOrderConf", "-t", topic, *change),),
    )
