"""ClusterView: the whole cluster as lists need it, read with few requests and shared by all users.

Topics, groups and lag come from one request for each broker, not one for each topic or group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from kourou.admin.brokers import GroupQueueLag, group_lags
from kourou.admin.clusters import BrokerSummary, cluster_list
from kourou.admin.connections import producers_of_broker
from kourou.admin.consume_stats import consume_stats
from kourou.admin.groups import group_config, group_configs
from kourou.admin.messages.dead_letters import GroupDeadLetters, dead_letter_counts
from kourou.admin.messages.delayed import BrokerDelays, broker_delays
from kourou.admin.messages.half_messages import BrokerHalfMessages, broker_half_messages
from kourou.admin.replication import SlaveLag, read_replication, slave_lags
from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.top import TopSample, TopView, is_user_topic, view
from kourou.admin.topics import topic_config, topic_configs, topic_status
from kourou.clock import wall_ms
from kourou.console.group_members import GroupMembers, Members
from kourou.console.lag_table import LagTable, lag_table
from kourou.console.refusals import readable, refusal
from kourou.console.shared_read import SharedRead
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import ProducerInfo, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import DLQ_GROUP_TOPIC_PREFIX, is_dlq_topic, reply_topic

# Pages refresh every few seconds; tables change rarely, and a change made here drops them at once.
_STATE_KEEP_S: Final = 2.0
_TABLES_KEEP_S: Final = 10.0
_LAG_KEEP_S: Final = 5.0
# The broker reads a message of every queue for the time of the lag.
_LAG_TIMEOUT_FACTOR: Final = 3
_MAX_STATUS_REQUESTS: Final = 50
# A shorter time between two reads says nothing about the rate.
_MIN_RATE_S: Final = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """Data of several brokers, when it was read, and what could not be read."""

    data: T
    as_of: int
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second between the last two reads; empty after the first. Topics without a consumer group
    may be missing."""

    stored: dict[str, float]
    """By topic."""
    consumed: dict[str, float]
    """By group."""


def _shared(load: Callable[[], Awaitable[Reading[T]]], keep_s: float) -> SharedRead[Reading[T]]:
    return SharedRead(load, keep_s, is_partial=lambda reading: bool(reading.problems))


class ClusterView:
    """Shared reads of a cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._brokers = _shared(self._read_brokers, _STATE_KEEP_S)
        self._topics = _shared(self._read_topics, _TABLES_KEEP_S)
        self._groups = _shared(self._read_groups, _TABLES_KEEP_S)
        self._lags = _shared(self._read_lags, _LAG_KEEP_S)
        self._slaves = SharedRead(self._read_slaves, _STATE_KEEP_S)
        self._activity = _shared(self._read_activity, _LAG_KEEP_S)
        self._last_sample: TopSample | None = None
        # Brokers keep the lag for a while, too.
        self._has_changed = False
        self._derived: dict[str, tuple[tuple[object, ...], Any]] = {}
        self._producers = _shared(self._read_producers, _LAG_KEEP_S)
        self._dead_letters = _shared(self._read_dead_letters, _LAG_KEEP_S)
        self._delays = _shared(lambda: self._of_brokers(broker_delays), _LAG_KEEP_S)
        self._half_messages = _shared(lambda: self._of_brokers(broker_half_messages), _LAG_KEEP_S)
        self._others: dict[str, SharedRead[Any]] = {}
        self._members = GroupMembers(admin, self._brokers_of_group)

    async def brokers(self) -> Reading[list[BrokerSummary]]:
        """All brokers with their runtime information."""
        return await self._brokers.get()

    async def topics(self, *, is_new: bool = False) -> Reading[dict[str, dict[str, TopicConfig]]]:
        """The configuration of each topic on each broker: topic → broker name → configuration."""
        return await self._topics.get(is_new=is_new)

    async def user_topics(self) -> list[str]:
        """Topics of applications: without those of the system, of retries, dead letters and replies, and
        those that every broker has under its own name and that of its cluster."""
        masters = await self._admin.masters()
        own = {master.broker_name for master in masters} | {master.cluster for master in masters}
        own |= {reply_topic(master.cluster) for master in masters}
        return [topic for topic in (await self.topics()).data if is_user_topic(topic) and topic not in own]

    async def groups(self, *, is_new: bool = False) -> Reading[dict[str, dict[str, SubscriptionGroupConfig]]]:
        """The configuration of each group on each broker: group → broker name → configuration."""
        return await self._groups.get(is_new=is_new)

    async def topic(self, name: str) -> dict[str, TopicConfig]:
        """The same of one topic, read by itself: an account may see one topic, but not all."""
        return await self._one(lambda address: topic_config(self._admin, address, name))

    async def group(self, name: str) -> dict[str, SubscriptionGroupConfig]:
        """The same of one group."""
        return await self._one(lambda address: group_config(self._admin, address, name))

    async def lags(self) -> Reading[list[GroupQueueLag]]:
        """The progress of every group in every topic, a row for each broker."""
        return await self._lags.get()

    async def queue_lags(self, group: str, topic: str | None = None) -> list[GroupQueueLag]:
        """The progress of one group in every queue, of one topic or all; none if it has no offsets."""
        try:
            progress = await consume_stats(self._admin, group, topic, is_partial=True)
        except RemotingError:
            return []
        except ResponseError as error:
            if refusal(error) is not None:
                raise
            # A group that never had a member has no retry topic, and may have offsets nevertheless.
            if topic is not None or error.code != ResponseCode.TOPIC_NOT_EXIST:
                return []
            topics = (await self.lag_table()).data.topics_of.get(group, [])
            found = await asyncio.gather(*(self.queue_lags(group, one) for one in topics))
            return [queue for queues in found for queue in queues]
        return [
            GroupQueueLag(
                queue.topic,
                group,
                queue.broker_name,
                queue.queue_id,
                queue.broker_offset,
                queue.consumer_offset,
                queue.last_timestamp,
            )
            for queue in progress.queues
        ]

    async def slaves(self) -> list[SlaveLag]:
        """How far each slave is behind its master."""
        return await self._slaves.get()

    async def activity(self) -> Reading[TopView]:
        """What happens in topics and groups, from the difference to the read before; all rates are 0 the
        first time."""
        return await self._activity.get()

    async def lag_table(self) -> Reading[LagTable]:
        """The progress of all groups, summed by topic and group."""
        lags = await self.lags()
        table = self.derived("lag table", (lags,), lambda: lag_table(lags.data, lags.as_of))
        return Reading(table, lags.as_of, lags.problems)

    async def rates(self) -> Rates:
        """Messages per second of topics and groups."""
        activity = (await self.activity()).data
        return self.derived("rates", (activity,), lambda: _rates(activity))

    def derived(self, name: str, sources: tuple[object, ...], build: Callable[[], T]) -> T:
        """What `build` makes of these reads; the same object as long as they are the same."""
        kept = self._derived.get(name)
        if kept is None or any(old is not new for old, new in zip(kept[0], sources, strict=True)):
            kept = self._derived[name] = (sources, build())
        found: T = kept[1]
        return found

    async def producers(self) -> Reading[dict[str, dict[str, list[ProducerInfo]]]]:
        """The connected producers: broker name → group → clients."""
        return await self._producers.get()

    async def members(self, group: str) -> Members:
        """The online members of a group."""
        return await self._members.get(group)

    async def dead_letters(self) -> Reading[list[GroupDeadLetters]]:
        """How many dead letters each group has; without groups that never had one."""
        return await self._dead_letters.get()

    async def delays(self) -> Reading[list[BrokerDelays]]:
        """Delayed messages of each broker."""
        return await self._delays.get()

    async def half_messages(self) -> Reading[list[BrokerHalfMessages]]:
        """Half messages of each broker."""
        return await self._half_messages.get()

    async def shared(self, name: str, load: Callable[[], Awaitable[T]]) -> T:
        """What `load` reads, shared like the other reads: for data of one page only."""
        read = self._others.get(name)
        if read is None:
            read = self._others[name] = SharedRead(load, _STATE_KEEP_S)
        result: T = await read.get()
        return result

    def forget(self) -> None:
        """Read everything again when it is next needed: something was changed."""
        self._has_changed = True
        for shared in self._all():
            shared.forget()

    async def stop(self) -> None:
        """Cancel reads that are under way."""
        for shared in self._all():
            await shared.stop()

    def _all(self) -> Iterable[SharedRead[Any] | GroupMembers]:
        return (
            self._brokers,
            self._topics,
            self._groups,
            self._lags,
            self._slaves,
            self._activity,
            self._producers,
            self._dead_letters,
            self._delays,
            self._half_messages,
            self._members,
            *self._others.values(),
        )

    async def _brokers_of_group(self, group: str) -> list[str]:
        """The masters that have a group; all if none is known to."""
        masters = [broker for broker in (await self.brokers()).data if broker.place.is_master]
        having = (await self.groups()).data.get(group, {})
        chosen = [master for master in masters if master.broker_name in having] or masters
        return [master.address for master in chosen]

    # -- reading ---------------------------------------------------------------------------------

    async def _read_brokers(self) -> Reading[list[BrokerSummary]]:
        as_of = wall_ms()
        brokers = [replace(one, problem=readable(one.problem)) for one in await cluster_list(self._admin)]
        problems = [
            f"broker {one.broker_name} ({one.address}): {one.problem}" for one in brokers if one.problem
        ]
        return Reading(brokers, as_of, problems)

    async def _read_topics(self) -> Reading[dict[str, dict[str, TopicConfig]]]:
        return await self._table(lambda address: topic_configs(self._admin, address))

    async def _read_groups(self) -> Reading[dict[str, dict[str, SubscriptionGroupConfig]]]:
        return await self._table(lambda address: group_configs(self._admin, address))

    async def _read_dead_letters(self) -> Reading[list[GroupDeadLetters]]:
        topics = await self.topics()
        groups = [topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX) for topic in topics.data if is_dlq_topic(topic)]
        as_of = wall_ms()
        counts = await dead_letter_counts(self._admin, sorted(groups))
        problems = [f"{one.group}: {one.problem}" for one in counts if one.problem]
        return Reading(counts, as_of, [*topics.problems, *problems])

    async def _table(self, ask: Callable[[str], Awaitable[dict[str, T]]]) -> Reading[dict[str, dict[str, T]]]:
        found, as_of, problems = await self._of_masters(ask)
        table: dict[str, dict[str, T]] = {}
        for master, configs in found:
            for name, config in configs.items():
                table.setdefault(name, {})[master.broker_name] = config
        return Reading(table, as_of, problems)

    async def _one(self, ask: Callable[[str], Awaitable[T | None]]) -> dict[str, T]:
        """By broker name; brokers that do not show it are left out."""
        found, _, _ = await self._of_masters(ask)
        return {master.broker_name: config for master, config in found if config is not None}

    async def _read_lags(self) -> Reading[list[GroupQueueLag]]:
        timeout_ms = _LAG_TIMEOUT_FACTOR * self._admin.settings.request_timeout_ms
        max_age_ms = 0 if self._has_changed else round(_LAG_KEEP_S * 1000)
        self._has_changed = False

        async def ask(address: str) -> list[GroupQueueLag]:
            return await group_lags(self._admin, address, max_age_ms=max_age_ms, timeout_ms=timeout_ms)

        found, as_of, problems = await self._of_masters(ask)
        return Reading([queue for _, queues in found for queue in queues], as_of, problems)

    async def _read_producers(self) -> Reading[dict[str, dict[str, list[ProducerInfo]]]]:
        async def ask(address: str) -> dict[str, list[ProducerInfo]]:
            return (await producers_of_broker(self._admin, address)).data

        found, as_of, problems = await self._of_masters(ask)
        return Reading({master.broker_name: table for master, table in found}, as_of, problems)

    async def _read_slaves(self) -> list[SlaveLag]:
        brokers = (await self.brokers()).data
        return slave_lags(await read_replication(self._admin, ((one.place, one.runtime) for one in brokers)))

    async def _read_activity(self) -> Reading[TopView]:
        lags = await self.lags()
        topics = await self.topics()
        ends = await self._ends(lags.data, await self.user_topics())
        sample = TopSample(time.monotonic(), [], ends, lags.data)
        before, self._last_sample = self._last_sample or sample, sample
        return Reading(view(before, sample), lags.as_of, [*lags.problems, *topics.problems])

    async def _ends(self, lags: list[GroupQueueLag], topics: list[str]) -> dict[str, int]:
        """The sum of end offsets by topic: from the lags where a group consumes it, else by a request, for so
        many topics that it does not burden the cluster."""
        ends = {(lag.topic, lag.broker_name, lag.queue_id): lag.broker_offset for lag in lags}
        found: dict[str, int] = {}
        for (topic, _, _), end in ends.items():
            if is_user_topic(topic):
                found[topic] = found.get(topic, 0) + end
        others = [topic for topic in topics if topic not in found]
        if len(others) <= _MAX_STATUS_REQUESTS:
            asked = await asyncio.gather(*map(self._end, others))
            found |= {topic: end for topic, end in asked if end is not None}
        return found

    async def _end(self, topic: str) -> tuple[str, int | None]:
        try:
            return topic, sum(queue.max_offset for queue in (await topic_status(self._admin, topic)).queues)
        except KourouError:
            return topic, None

    async def _of_brokers(self, read: Callable[[Admin, str, str], Awaitable[T]]) -> Reading[list[T]]:
        """What is read of each master, by its name and address."""
        names = {master.address: master.broker_name for master in await self._admin.masters()}
        found, as_of, problems = await self._of_masters(
            lambda address: read(self._admin, names.get(address, address), address)
        )
        return Reading([data for _, data in found], as_of, problems)

    async def _of_masters(
        self, ask: Callable[[str], Awaitable[T]]
    ) -> tuple[list[tuple[BrokerAddress, T]], int, list[str]]:
        """What each master answers; a broker that fails is a problem, not an error."""
        as_of = wall_ms()
        masters = await self._admin.masters()
        answers = await asyncio.gather(*(ask(master.address) for master in masters), return_exceptions=True)
        found: list[tuple[BrokerAddress, T]] = []
        problems = []
        for master, answer in zip(masters, answers, strict=True):
            if isinstance(answer, KourouError):
                problems.append(f"broker {master.broker_name} ({master.address}): {readable(str(answer))}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((master, answer))
        return found, as_of, problems


def _rates(activity: TopView) -> Rates:
    if activity.seconds < _MIN_RATE_S:
        return Rates({}, {})
    return Rates(
        {row.topic: round(row.in_tps, 2) for row in activity.topics},
        {row.group: round(row.consume_tps, 2) for row in activity.groups},
    )
