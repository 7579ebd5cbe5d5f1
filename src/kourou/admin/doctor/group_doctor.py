"""The checks of doctor for the members of one group, without those of the rest of the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kourou.admin.connections import consumer_connection
from kourou.admin.doctor.checks_groups import (
    check_client_ids,
    check_client_versions,
    check_subscriptions,
    check_unheld_queues,
)
from kourou.admin.doctor.cluster_snapshot import ClusterSnapshot, GroupView, Member, read_member
from kourou.admin.doctor.findings import Finding, NotChecked
from kourou.admin.session import Admin
from kourou.errors import ResponseError
from kourou.protocol.bodies import ConsumerConnection
from kourou.protocol.codes import ResponseCode

_CHECKS = (check_subscriptions, check_client_ids, check_client_versions, check_unheld_queues)


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """The members of a group with their reports, and what is wrong between them."""

    members: list[Member]
    findings: list[Finding]
    not_checked: list[NotChecked]


async def examine_group(admin: Admin, group: str) -> GroupHealth:
    """Ask every member of a group for its report, and compare. An offline group has no members and no
    findings."""
    try:
        connection = await consumer_connection(admin, group)
    except ResponseError as error:
        if error.code not in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST):
            raise
        connection = ConsumerConnection()
    found = sorted(connection.connection_set, key=lambda one: (one.client_id, one.client_addr))
    members = list(await asyncio.gather(*(read_member(admin, group, one) for one in found)))
    snapshot = ClusterSnapshot(admin, 0.0, groups=[GroupView(group, connection, members, None)])
    topics = sorted({one.topic for member in members if member.info for one in member.info.subscriptions})
    routes = await asyncio.gather(*map(admin.api.topic_route, topics))
    snapshot.routes = {topic: route for topic, route in zip(topics, routes, strict=True) if route is not None}
    findings = [finding for check in _CHECKS for finding in await check(snapshot)]
    return GroupHealth(members, findings, snapshot.not_checked)
