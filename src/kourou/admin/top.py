"""top: the current activity of a cluster, from the difference of two samples.

Rates cover the time between the samples, not the minute that brokers average over: starts and stops show at
once. Nothing is changed, and no offset moves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kourou.admin.brokers import GroupQueueLag, broker_consume_stats
from kourou.admin.clusters import BrokerSummary, cluster_list
from kourou.admin.each import map_each
from kourou.admin.replication import SlaveLag, read_replication, slave_lags
from kourou.admin.session import Admin
from kourou.admin.topics import topic_names, topic_status
from kourou.clock import wall_ms
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import ResponseCode
from kourou.protocol.failover_status import FailoverStatus
from kourou.protocol.names import is_dlq_topic, is_retry_topic, is_system_group, is_system_topic, reply_topic

FIRST_SAMPLE_S: Final = 1.0
"""Between the first sample and the first result, if the interval is longer."""
_STATS_TIMEOUT_FACTOR: Final = 3


@dataclass(frozen=True, slots=True)
class SetPart:
    """A broker's part in a set that chooses its master."""

    member_id: int
    epoch: int
    is_in_sync: bool
    in_sync: int
    """How many members of the set are in sync."""
    alive: int

    @classmethod
    def of(cls, runtime: Mapping[str, str]) -> SetPart | None:
        """From a broker's state; None if it is no member of a set."""
        status = FailoverStatus.of(runtime)
        if status is None:
            return None
        is_in_sync = status.member_id in status.in_sync
        return cls(status.member_id, status.epoch, is_in_sync, len(status.in_sync), len(status.alive))


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker; rates are messages per second, over its last ten seconds."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    version: str
    in_tps: float
    out_tps: float
    disk_ratio: float
    problem: str = ""
    lag_bytes: int | None = None
    """How far a slave is behind its master; None for a master, or if it is not known."""
    lag_ms: int | None = None
    replication_problem: str = ""
    """Why a slave does not follow its master."""
    failover: SetPart | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic: messages per second, stored and delivered to all its groups."""

    topic: str
    in_tps: float
    out_tps: float
    groups: int
    messages: int
    """Messages stored since it was created."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One consumer group: messages consumed per second, lag, and growth of the lag."""

    group: str
    topics: int
    consume_tps: float
    lag: int
    lag_change: float
    """Per second; negative if it catches up."""
    behind_s: float
    """The age of the last consumed message, of the queue where it is longest, among queues with a lag."""


@dataclass(frozen=True, slots=True)
class TopView:
    """A cluster at one moment, the busiest first."""

    timestamp_ms: int
    seconds: float
    """Between the two samples."""
    brokers: list[BrokerRow]
    topics: list[TopicRow]
    groups: list[GroupRow]
    problems: list[str]
    """What could not be read."""


@dataclass(frozen=True, slots=True)
class TopSample:
    """The offsets of everything at one moment."""

    taken_s: float
    brokers: list[BrokerSummary]
    ends: dict[str, int]
    """The sum of the end offsets of its queues, by topic."""
    queues: list[GroupQueueLag]
    problems: list[str] = field(default_factory=list)
    slaves: list[SlaveLag] = field(default_factory=list)


async def watch(
    admin: Admin, cluster: str | None = None, *, interval_s: float = 2.0, count: int | None = None
) -> AsyncGenerator[TopView, None]:
    """Views in sequence, endless or `count` of them. Temporary failures are in `problems`."""
    before = await take_sample(admin, cluster)
    shown = 0
    pause_s = min(interval_s, FIRST_SAMPLE_S)
    while count is None or shown < count:
        await asyncio.sleep(pause_s)
        after = await take_sample(admin, cluster)
        yield view(before, after)
        before, pause_s = after, interval_s
        shown += 1


async def take_sample(admin: Admin, cluster: str | None = None) -> TopSample:
    """Read all offsets once. NoNameServerError if no name server responds."""
    problems: list[str] = []
    brokers = await cluster_list(admin, cluster)
    problems += [f"broker {one.broker_name} ({one.address}): {one.problem}" for one in brokers if one.problem]
    clusters = {one.cluster for one in brokers}
    own = clusters | set(map(reply_topic, clusters)) | {one.broker_name for one in brokers}
    masters = [one for one in brokers if one.broker_id == MASTER_ID and not one.problem]
    names = {one.broker_name for one in masters}
    topics = [topic for topic in await topic_names(admin) if topic not in own and is_user_topic(topic)]

    async def stats(master: BrokerSummary) -> list[GroupQueueLag]:
        timeout_ms = _STATS_TIMEOUT_FACTOR * admin.settings.request_timeout_ms
        try:
            return (await broker_consume_stats(admin, master.address, timeout_ms=timeout_ms)).queues
        except KourouError as error:
            problems.append(f"groups of broker {master.broker_name}: {error}")
            return []

    async def end(topic: str) -> tuple[str, int | None]:
        try:
            queues = [
                queue for queue in (await topic_status(admin, topic)).queues if queue.broker_name in names
            ]
        except KourouError as error:
            if not (isinstance(error, ResponseError) and error.code == ResponseCode.TOPIC_NOT_EXIST):
                problems.append(f"topic {topic}: {error}")
            return topic, None
        return topic, sum(queue.max_offset for queue in queues) if queues else None

    replicas = await read_replication(admin, ((one.place, one.runtime) for one in brokers))
    found = [queue for queues in await asyncio.gather(*map(stats, masters)) for queue in queues]
    ends = {topic: at for topic, at in await map_each(topics, end) if at is not None}
    return TopSample(time.monotonic(), brokers, ends, found, problems, slave_lags(replicas))


def is_user_topic(topic: str) -> bool:
    """Whether a topic is neither of the system nor of retries or dead letters."""
    return not (is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic))


# -- the difference of two samples -------------------------------------------------------------------


def view(before: TopSample, after: TopSample) -> TopView:
    """The activity between two samples."""
    seconds = max(after.taken_s - before.taken_s, 0.001)
    now_ms = wall_ms()
    consumed = _consumed(before.queues, after.queues)
    return TopView(
        now_ms,
        seconds,
        _broker_rows(after),
        _topic_rows(before, after, consumed, seconds),
        _group_rows(before, after, consumed, seconds, now_ms),
        after.problems,
    )


def _consumed(before: list[GroupQueueLag], after: list[GroupQueueLag]) -> dict[tuple[str, str], int]:
    """Messages that each group consumed of each topic; 0 for one that was reset backwards."""
    offsets = {_place(queue): queue.consumer_offset for queue in before}
    consumed: dict[tuple[str, str], int] = {}
    for queue in after:
        key = queue.group, queue.topic
        grown = queue.consumer_offset - offsets.get(_place(queue), queue.consumer_offset)
        consumed[key] = consumed.get(key, 0) + max(0, grown)
    return consumed


def _place(queue: GroupQueueLag) -> tuple[str, str, str, int]:
    return queue.group, queue.topic, queue.broker_name, queue.queue_id


def _broker_rows(sample: TopSample) -> list[BrokerRow]:
    slaves = {slave.address: slave for slave in sample.slaves}
    rows = [_broker_row(broker, slaves.get(broker.address)) for broker in sample.brokers]
    return sorted(rows, key=lambda row: (-row.in_tps - row.out_tps, row.broker_name, row.broker_id))


def _broker_row(broker: BrokerSummary, slave: SlaveLag | None) -> BrokerRow:
    return BrokerRow(
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.address,
        broker.text("brokerVersionDesc"),
        broker.put_tps,
        broker.get_tps,
        broker.disk_ratio,
        broker.problem,
        slave.lag_bytes if slave else None,
        slave.lag_ms if slave else None,
        slave.problem if slave else "",
        SetPart.of(broker.runtime),
    )


def _topic_rows(
    before: TopSample, after: TopSample, consumed: dict[tuple[str, str], int], seconds: float
) -> list[TopicRow]:
    of_topic: dict[str, list[int]] = {}
    for (_, topic), count in consumed.items():
        of_topic.setdefault(topic, []).append(count)
    rows = []
    for topic, end in after.ends.items():
        of_groups = of_topic.get(topic, [])
        came = max(0, end - before.ends.get(topic, end))
        rows.append(TopicRow(topic, came / seconds, sum(of_groups) / seconds, len(of_groups), end))
    return sorted(rows, key=lambda row: (-row.in_tps - row.out_tps, -row.messages, row.topic))


def _group_rows(
    before: TopSample, after: TopSample, consumed: dict[tuple[str, str], int], seconds: float, now_ms: int
) -> list[GroupRow]:
    lags_before = _lags(before.queues)
    done: dict[str, int] = {}
    for (group, _), count in consumed.items():
        done[group] = done.get(group, 0) + count
    of_group: dict[str, list[GroupQueueLag]] = {}
    for queue in after.queues:
        of_group.setdefault(queue.group, []).append(queue)
    rows = []
    for group, queues in of_group.items():
        if is_system_group(group):
            continue
        lag = sum(max(0, queue.diff) for queue in queues)
        waiting_since = [
            queue.last_timestamp for queue in queues if queue.diff > 0 and queue.last_timestamp > 0
        ]
        rows.append(
            GroupRow(
                group,
                len({queue.topic for queue in queues if not is_retry_topic(queue.topic)}),
                done[group] / seconds,
                lag,
                (lag - lags_before.get(group, lag)) / seconds,
                max(0, now_ms - min(waiting_since)) / 1000 if waiting_since else 0.0,
            )
        )
    return sorted(rows, key=lambda row: (-row.consume_tps - abs(row.lag_change), -row.lag, row.group))


def _lags(queues: list[GroupQueueLag]) -> dict[str, int]:
    lags: dict[str, int] = {}
    for queue in queues:
        lags[queue.group] = lags.get(queue.group, 0) + max(0, queue.diff)
    return lags
