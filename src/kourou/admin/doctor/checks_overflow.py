"""Checks of overflow policies: topics over their limits, and policies that cannot be applied."""

from __future__ import annotations

from typing import Final

from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity
from kourou.admin.overflow import broker_overflow, describe_limits
from kourou.errors import RemotingError, ResponseError
from kourou.protocol.bodies.overflow import TopicOverflow
from kourou.protocol.overflow_rule import OverflowPolicy

_CHECK: Final = "overflow"


async def check_overflow(snapshot: ClusterSnapshot) -> list[Finding]:
    """Topics on every master that responds."""
    findings: list[Finding] = []
    for master in snapshot.living_masters:
        try:
            topics = await broker_overflow(snapshot.admin, master.place.address)
        except (RemotingError, ResponseError) as error:
            snapshot.skip(_CHECK, master.where, error)
            continue
        for state in topics:
            if state.problem:
                findings.append(_stuck(master, state))
            elif state.over_since_ms is not None:
                findings.append(_over(snapshot, master, state))
    return findings


def _stuck(master: BrokerView, state: TopicOverflow) -> Finding:
    return Finding(
        severity=Severity.PROBLEM,
        check=_CHECK,
        where=f"topic {state.topic}, {master.where}",
        what=f"its overflow policy {state.policy} cannot be applied: {state.problem}",
        meaning="the backlog grows beyond its limit; nothing is lost",
        cure="make room on the disk, or see the log of the broker; it tries again every second",
    )


def _over(snapshot: ClusterSnapshot, master: BrokerView, state: TopicOverflow) -> Finding:
    rejects = state.policy == OverflowPolicy.REJECT
    group = state.slowest_group
    return Finding(
        severity=Severity.PROBLEM if rejects else Severity.WARNING,
        check=_CHECK,
        where=f"topic {state.topic}, {master.where}",
        what=f"the backlog of group {group or '(none)'} is at its limit: {describe_limits(state)}",
        meaning="sends to the topic are rejected, until the backlog is at 90 % of the limit"
        if rejects
        else f"the group does not get all messages: the policy is {state.policy}",
        cure="start consumers of that group or make them faster; delete a group that is not needed; "
        "or raise the limit (docs/overflow.md)",
        commands=(
            snapshot.command("topicOverflow", "-t", state.topic),
            *((snapshot.command("consumerProgress", "-g", group),) if group else ()),
        ),
    )
