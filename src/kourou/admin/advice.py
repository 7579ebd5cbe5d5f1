"""Advice for responses about missing topics and groups, or unsupported requests."""

from __future__ import annotations

import asyncio
from typing import Final

from kourou.admin.groups import group_configs
from kourou.admin.session import Admin
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import ClusterInfo
from kourou.protocol.bodies.codec import decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.names import is_inner_topic, retry_topic
from kourou.protocol.pop.retry_topics import retry_groups
from kourou.wording import nearest

_NOT_THERE: Final = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.CONSUMER_NOT_ONLINE,
)


async def advice_on(
    admin: Admin, error: ResponseError, *, topic: str | None = None, group: str | None = None
) -> str:
    """The next step after `error`, to be appended to it: the names that were probably meant, that no broker
    is registered, or that the address is a name server's. Empty if none of these applies."""
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return await _namesrv_instead(admin, error.address)
    if error.code not in _NOT_THERE and f"[{group}]" not in error.remark:
        return ""
    try:
        masters = await admin.masters()
        if not masters:
            return "; no broker is registered there: start one, or check its namesrvAddr"
        topics = await admin.api.topic_names()
        groups, _ = retry_groups(topics)
        if group is not None and group not in groups:
            tables = await asyncio.gather(*(group_configs(admin, master.address) for master in masters))
            groups.update(*tables)
    except KourouError:
        return ""
    if group is not None and group not in groups:
        near = nearest(group, groups)
        if near:
            return f"; did you mean group {near}?"
        # Other responses already name the missing group.
        return f"; no broker knows group {group}" if retry_topic(group) in error.remark else ""
    if topic is not None and topic not in topics:
        near = nearest(topic, (name for name in topics if is_inner_topic(name) == is_inner_topic(topic)))
        return (
            f"; did you mean topic {near}?"
            if near
            else "; create it with updateTopic, or start the broker that has it"
        )
    return ""


async def _namesrv_instead(admin: Admin, address: str) -> str:
    """Only name servers can list a cluster. Empty for a server of another kind."""
    try:
        answer = await admin.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        table = decode_body(answer.body, ClusterInfo).broker_addr_table
    except KourouError:
        return ""
    brokers = sorted(address for broker in table.values() for address in broker.broker_addrs.values())
    known = f"its brokers are {', '.join(brokers)}" if brokers else "no broker is registered there"
    return f"; {address} is a name server, not a broker; {known}"
