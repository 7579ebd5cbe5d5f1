"""The overview: the whole cluster on one page."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kourou.admin.session import command_line
from kourou.admin.top import GroupRow, TopicRow
from kourou.console.api.brokers import BrokerItem, broker_items
from kourou.console.api.doctor import FindingCounts
from kourou.console.endpoints import Call, Endpoint, NoBody, Read
from kourou.console.history import Series
from kourou.protocol.names import is_system_group

_TOP: Final = 10


class OverviewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time that the charts show."""

    range: Literal["1h", "24h"] = "1h"


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the cluster. `in` counts stored messages, `out` delivered ones."""

    brokers: int
    slaves: int
    topics: int
    groups: int
    in_tps: float
    out_tps: float
    in_today: int
    out_today: int
    in_yesterday: int
    out_yesterday: int
    lag: int
    disk_ratio: float
    """Of the fullest disk."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at a glance."""

    totals: Totals
    brokers: list[BrokerItem]
    top_topics: list[TopicRow]
    """The busiest."""
    top_groups: list[GroupRow]
    """Those with the largest lag."""
    history: Series | None
    """None if the visitor's account may not see it, or nothing is sampled."""
    findings: FindingCounts | None
    """Of the last examination by doctor; None if there was none."""
    as_of: int
    problems: list[str]
    commands: list[str]


async def _overview(call: Call[OverviewQuery, NoBody]) -> Overview:
    view, history = call.view, call.context.history_for(call.visitor)
    reading = await view.brokers()
    brokers = await broker_items(call)
    activity = await view.activity()
    groups = await view.groups()
    masters = [broker for broker in brokers if broker.role == "master"]
    totals = Totals(
        brokers=len(masters),
        slaves=len(brokers) - len(masters),
        topics=len(await view.user_topics()),
        groups=sum(not is_system_group(group) for group in groups.data),
        in_tps=sum(broker.in_tps for broker in masters),
        out_tps=sum(broker.out_tps for broker in brokers),
        in_today=sum(broker.in_today for broker in masters),
        out_today=sum(broker.out_today for broker in brokers),
        in_yesterday=sum(broker.in_yesterday for broker in masters),
        out_yesterday=sum(broker.out_yesterday for broker in brokers),
        lag=sum(group.lag for group in activity.data.groups),
        disk_ratio=max((broker.disk_ratio for broker in brokers), default=0.0),
    )
    series = None
    if history is not None:
        series = history.last_hour() if call.query.range == "1h" else history.last_day()
    return Overview(
        totals=totals,
        brokers=brokers,
        top_topics=activity.data.topics[:_TOP],
        top_groups=sorted(activity.data.groups, key=lambda group: (-group.lag, group.group))[:_TOP],
        history=series,
        findings=call.session.doctor.counts(),
        as_of=reading.as_of,
        problems=list(dict.fromkeys([*reading.problems, *activity.problems, *groups.problems])),
        commands=[command_line(call.admin.namesrvs, command) for command in ("clusterList", "top")],
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/overview",
        summary="The whole cluster: rates, lag, disks, busiest topics, charts",
        query=OverviewQuery,
        handler=_overview,
        returns=Overview,
    ),
)
