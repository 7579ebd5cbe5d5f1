"""The traffic of each topic: rates, daily counts, and lag."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.connections import consumers_of_topic
from kourou.admin.consume_stats import consume_stats
from kourou.admin.session import Admin
from kourou.admin.topics import topic_names
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import BrokerStatsData, TopicRouteData, decode_body
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import ViewBrokerStatsDataRequestHeader
from kourou.protocol.names import is_dlq_topic, is_retry_topic

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages per second in the last minute, and messages in the last 24 hours."""

    tps: float
    in_24_hours: int


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """A topic and one of its groups; `group` is None for a topic without consumers.

    `problem` is what could not be determined.
    """

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float
    in_24_hours: int
    out_24_hours: int
    problem: str = ""

    @property
    def is_active(self) -> bool:
        """Whether there was a message in the last 24 hours."""
        return self.in_24_hours > 0 or self.out_24_hours > 0


@dataclass(frozen=True, slots=True)
class TopicFlows:
    """All rows of one topic, and how many of all topics are done."""

    topic: str
    rows: list[TopicFlow]
    done: int
    total: int


async def all_flows(
    admin: Admin, topic: str | None = None, *, only_active: bool = False
) -> AsyncIterator[TopicFlows]:
    """Topic by topic, sorted, without retry and dead-letter topics.

    ResponseError TOPIC_NOT_EXIST for a single topic that does not exist.
    """
    names = [
        name
        for name in await topic_names(admin)
        if topic in (None, name) and not is_retry_topic(name) and not is_dlq_topic(name)
    ]
    if topic is not None and not names:
        await admin.route(topic)
        names = [topic]
    for index, name in enumerate(names):
        try:
            rows = await topic_flows(admin, name, only_active=only_active)
        except (RemotingError, ResponseError) as error:
            rows = [] if _is_without_route(error) else [_failed(name, error)]
        yield TopicFlows(name, rows, index + 1, len(names))


def _is_without_route(error: KourouError) -> bool:
    # Name servers list some system topics that no broker has.
    return isinstance(error, ResponseError) and error.code == ResponseCode.TOPIC_NOT_EXIST


def _failed(topic: str, error: KourouError) -> TopicFlow:
    return TopicFlow(topic, None, 0, 0.0, 0.0, 0, 0, str(error))


async def topic_flows(admin: Admin, topic: str, *, only_active: bool = False) -> list[TopicFlow]:
    """A row for each group of a topic, or one without a group; `only_active`: only with recent messages."""
    route = await admin.route(topic)
    groups = await consumers_of_topic(admin, topic)
    coming = await _flow(admin, route, TOPIC_PUT_NUMS, topic)
    if groups:
        of_groups = (_group_flow(admin, route, topic, group, coming) for group in groups)
        rows = list(await asyncio.gather(*of_groups))
    else:
        rows = [TopicFlow(topic, None, 0, coming.tps, 0.0, coming.in_24_hours, 0)]
    rows = [row for row in rows if row.is_active or not only_active]
    return list(await asyncio.gather(*(_with_accumulation(admin, row) for row in rows)))


async def _group_flow(admin: Admin, route: TopicRouteData, topic: str, group: str, coming: Flow) -> TopicFlow:
    going = await _flow(admin, route, GROUP_GET_NUMS, f"{topic}@{group}")
    return TopicFlow(topic, group, 0, coming.tps, going.tps, coming.in_24_hours, going.in_24_hours)


async def _with_accumulation(admin: Admin, row: TopicFlow) -> TopicFlow:
    if row.group is None:
        return row
    accumulation, problem = await _accumulation(admin, row.topic, row.group)
    return replace(row, accumulation=accumulation, problem=problem)


async def _accumulation(admin: Admin, topic: str, group: str) -> tuple[int, str]:
    """The lag of a group in a topic; 0 without offsets at brokers."""
    try:
        progress = await consume_stats(admin, group, topic)
    except ResponseError:
        return 0, ""
    except RemotingError as error:
        return 0, str(error)
    return max(0, progress.diff_total), ""


async def _flow(admin: Admin, route: TopicRouteData, name: str, key: str) -> Flow:
    """The sum over all masters of a route; those that counted nothing respond with an error."""
    addresses = [
        broker.broker_addrs[MASTER_ID] for broker in route.broker_datas if MASTER_ID in broker.broker_addrs
    ]
    found = await asyncio.gather(*(broker_stats(admin, address, name, key) for address in addresses))
    known = [stats for stats in found if stats is not None]
    return Flow(
        sum(stats.stats_minute.tps for stats in known), sum(count_of_24_hours(stats) for stats in known)
    )


async def broker_stats(admin: Admin, address: str, name: str, key: str) -> BrokerStatsData | None:
    """A broker's counters for a key; None if there are none."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    try:
        answer = await admin.call(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
    except ResponseError:
        return None
    return decode_body(answer.body, BrokerStatsData)


def count_of_24_hours(stats: BrokerStatsData) -> int:
    """The sum over the longest counted time."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum
