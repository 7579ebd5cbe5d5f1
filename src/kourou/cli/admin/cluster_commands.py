"""Commands about clusters: the list of brokers, and their response times."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from kourou.admin.clusters import BrokerSummary, SendTimes, cluster_list, measure_sends, prober
from kourou.admin.session import BrokerAddress
from kourou.admin.targets import brokers_of
from kourou.cli.admin.command import AdminCommand, Call, interval_of
from kourou.cli.admin.formatting import truth
from kourou.cli.admin.options import flag, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.client.producer.producer import AsyncProducer
from kourou.clock import wall_ms

# The time zone of clusterRT's log in Apache's tools, on every machine.
_LOG_ZONE: Final = timezone(timedelta(hours=8))

_V5_HEAD: Final = (
    "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:<11}  {:<12}  {:<8}  {:<10}"
)
_V5_ROW: Final = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:>11}  {:<12}  {:<8}  {:>10}"
_V4_ROW: Final = "{:<16}  {:<22}  {:<4}  {:<22} {:<16} {:>19} {:>19} {:>10} {:>5} {:>6}"
_PLACE: Final = (
    "#Cluster Name",
    "#Broker Name",
    "#BID",
    "#Addr",
    "#Version",
    "#InTPS(LOAD)",
    "#OutTPS(LOAD)",
)


# -- clusterList -------------------------------------------------------------------------------------


async def _cluster_list(call: Call) -> list[BrokerSummary]:
    return await cluster_list(call.admin, call.args.get("clusterName"))


def _show_cluster_list(brokers: list[BrokerSummary], screen: Screen) -> None:
    if screen.args.flag("moreStats"):
        _show_totals(brokers, screen)
    elif screen.is_v4:
        rows = (_v4_cells(broker) for broker in brokers)
        screen.table(_V4_ROW, (*_PLACE, "#PCWait(ms)", "#Hour", "#SPACE"), rows)
    else:
        names = (*_PLACE, "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED")
        screen.table(_V5_HEAD, names, (_v5_cells(broker) for broker in brokers), _V5_ROW)
    for broker in brokers:
        if broker.problem:
            screen.trouble(f"{broker.broker_name}: {broker.problem}")


def _place_cells(broker: BrokerSummary) -> tuple[object, ...]:
    return (
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.address,
        broker.text("brokerVersionDesc"),
        f"{broker.put_tps:9.2f}({_load(broker, 'send')})",
    )


def _v4_cells(broker: BrokerSummary) -> tuple[object, ...]:
    return (
        *_place_cells(broker),
        f"{broker.get_tps:9.2f}({_load(broker, 'pull')})",
        broker.text("pageCacheLockTimeMills"),
        f"{broker.age_hours(wall_ms()):.2f}",
        f"{broker.disk_ratio:.4f}",
    )


def _v5_cells(broker: BrokerSummary) -> tuple[object, ...]:
    return (
        *_place_cells(broker),
        f"{broker.get_tps:9.2f}({_load(broker, 'pull')}|{_load(broker, 'ack', unknown='N')})",
        _timer(broker),
        broker.text("pageCacheLockTimeMills"),
        f"{broker.age_hours(wall_ms()):.2f}",
        f"{broker.disk_ratio:.4f}",
        truth(broker.text("brokerActive").lower() == "true"),
    )


def _load(broker: BrokerSummary, pool: str, unknown: str = "") -> str:
    """The length of a request queue, and how long its first request has waited."""
    # A broker that did not respond has no load to report.
    unknown = "" if broker.problem else unknown
    size = broker.text(f"{pool}ThreadPoolQueueSize", unknown)
    return f"{size},{broker.text(f'{pool}ThreadPoolQueueHeadWaitTimeMills', unknown)}ms"


def _timer(broker: BrokerSummary) -> str:
    rates = [broker.rate(name) for name in ("timerEnqueueTps", "timerDequeueTps")]
    return (
        f"{broker.number('timerReadBehind')}-{broker.number('timerOffsetBehind')}"
        f"({broker.number('timerCongestNum') / 10_000:.1f}w, {rates[0]:.1f}, {rates[1]:.1f})"
    )


def _show_totals(brokers: list[BrokerSummary], screen: Screen) -> None:
    screen.table(
        "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}",
        (*_PLACE[:2], "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"),
        (
            (
                broker.cluster,
                broker.broker_name,
                *(_between(broker, way, "YesterdayMorning", "TodayMorning") for way in ("Put", "Get")),
                *(_between(broker, way, "TodayMorning", "TodayNow") for way in ("Put", "Get")),
            )
            for broker in brokers
        ),
    )


def _between(broker: BrokerSummary, way: str, first: str, last: str) -> int:
    return broker.number(f"msg{way}Total{last}") - broker.number(f"msg{way}Total{first}")


# -- clusterRT ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SendRound:
    """One round of messages to all brokers."""

    number: int
    at_ms: int
    brokers: list[SendTimes]


async def _measure_clusters(call: Call) -> AsyncIterator[_SendRound]:
    args = call.args
    amount, size = args.number("amount", 100), args.number("size", 128)
    interval_s = args.number("interval", 10)
    if amount < 1 or size < 1 or interval_s < 0:
        raise UsageError("-a and -s must be above 0, -i must not be negative")
    brokers = await _one_of_each_name(call)
    async with prober(call.admin, str(wall_ms())) as producer:
        for number in itertools.count(1):
            rows = [await _measure(call, producer, broker, amount, size) for broker in brokers]
            yield _SendRound(number, wall_ms(), rows)
            call.screen.flush()
            await asyncio.sleep(interval_s)


async def _measure(
    call: Call, producer: AsyncProducer, broker: BrokerAddress, amount: int, size: int
) -> SendTimes:
    def progress(sent: int) -> None:
        call.screen.progress(f"{broker.broker_name}: {sent} of {amount} messages")

    return await measure_sends(producer, broker, amount=amount, size=size, progress=progress)


async def _one_of_each_name(call: Call) -> list[BrokerAddress]:
    cluster = call.args.get("cluster")
    brokers = await (brokers_of(call.admin, cluster) if cluster is not None else call.admin.brokers())
    return list({(broker.cluster, broker.broker_name): broker for broker in brokers}.values())


def _show_round(round_: _SendRound, screen: Screen) -> None:
    is_log = screen.args.truth("print log")
    if round_.number == 1 and not is_log:
        names = (*_PLACE[:2], "#RT", "#successCount", "#failCount")
        screen.head("{:<24}  {:<24}  {:<4}  {:<8}  {:<8}".format(*names))
    for row in round_.brokers:
        if is_log:
            moment = datetime.fromtimestamp(round_.at_ms / 1000, UTC).astimezone(_LOG_ZONE)
            rt = Decimal(row.rt_ms).quantize(Decimal(1), ROUND_HALF_UP)
            room = screen.args.text("machine room", "noname")
            screen.line(f"{moment:%Y-%m-%d %H:%M:%S}|{room}|{row.cluster}|{row.broker_name}|{rt}")
        else:
            counts = f"{row.success_count:<16}  {row.fail_count:<16}"
            screen.line(f"{row.cluster:<24}  {row.broker_name:<24}  {f'{row.rt_ms:.2f}':<8}  {counts}")
        if row.problem:
            screen.trouble(row.problem)


CLUSTER_COMMANDS: Final = (
    AdminCommand(
        name="clusterList",
        about="List all brokers with version, load, message age and disk space.",
        example="clusterList -n 127.0.0.1:9876",
        options=(
            flag("m", "moreStats", "messages in and out, yesterday and today"),
            value("i", "interval", "repeat after so many seconds, until interrupted"),
            value("c", "clusterName", "only this cluster"),
        ),
        ask=_cluster_list,
        show=_show_cluster_list,
        interval_s=interval_of("interval"),
    ),
    AdminCommand(
        name="clusterRT",
        about="Measure repeatedly how long each broker takes to store a message.",
        example="clusterRT -n 127.0.0.1:9876 -a 100 -i 10",
        options=(
            value("a", "amount", "messages per broker (default: 100)"),
            value("s", "size", "size of each in bytes (default: 128)"),
            value("c", "cluster", "only this cluster"),
            value("p", "print log", "true: print log lines"),
            value("m", "machine room", "name in the log lines (default: noname)"),
            value("i", "interval", "seconds between rounds (default: 10)"),
        ),
        stream=_measure_clusters,
        show=_show_round,
        aliases=("clusterListRT",),
    ),
)
