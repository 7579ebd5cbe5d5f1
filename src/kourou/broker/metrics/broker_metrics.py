"""BrokerMetrics: the families of one broker, from counters and tables that exist.

Nothing is kept here. Series per topic are drawn while the text is written (metrics/exposition.py), from a
copy of the keys, since topics may come and go in between.
Not here: names (rocketmq_names.py, kourou_names.py), consumer lag (stats/consumer_lag.py), the families of
rocketmq-exporter (exporter.py).
"""

from __future__ import annotations

import math
import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou import __version__
from kourou.broker.admin.runtime_info import OnDisk
from kourou.broker.metrics import kourou_names as own
from kourou.broker.metrics import rocketmq_names as names
from kourou.broker.metrics.labels import broker_scope
from kourou.metrics.families import Distribution, Family, Histogram, Labels, Metric, Sample
from kourou.metrics.process import LoopLag, process_families
from kourou.protocol.bodies import ConsumeType
from kourou.protocol.codes import LanguageCode
from kourou.protocol.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TIMER_TOPIC,
    is_retry_topic,
    is_system_group,
)
from kourou.protocol.priority import MESSAGE_TYPE
from kourou.protocol.versions import CURRENT_VERSION, version_desc
from kourou.store.producers.producer_table import REFUSALS

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.atomic.journal import Journal
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.filters.plugin_host import PluginHost
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ClientChannel, ProducerManager
    from kourou.broker.metrics.exporter import BrokerExporter
    from kourou.broker.overflow.overflow_service import OverflowService
    from kourou.broker.pop.in_flight import MessagesInFlight
    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.replication.replica_server import ReplicaServer
    from kourou.broker.settings import KernelStatus, LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.stats.consumer_lag import ConsumerLag, TopicLag
    from kourou.broker.stats.stats_item import StatsItem
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.broker.transactions.transactions import Transactions
    from kourou.store.disk.files import Files
    from kourou.store.dispatcher import Dispatcher
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.producers.producer_table import ProducerTable
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.message_lookup import MessageLookup
    from kourou.store.recovery.corrupt_ranges import KnownDamages
    from kourou.transport.request_latency import RequestLatency

_LAG_TIMEOUT_S: Final = 5.0
# Each is one of PutLatency's, so that its ranges add up to these.
_SEND_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_REMOTING: Final = "remoting"
# Apache's names of its thread pools, for which boards ask.
_PROCESSORS: Final = (
    *("send", "async_put", "pull", "lite_pull", "ack", "query_message", "client_manager"),
    *("heartbeat", "consumer_manager", "transaction", "reply", "admin"),
)
_TYPE_OF_SYSTEM_TOPIC: Final = {
    RMQ_SYS_SCHEDULE_TOPIC: "delay",
    TIMER_TOPIC: "delay",
    RMQ_SYS_TRANS_HALF_TOPIC: "transaction",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """What one broker is asked for its metrics. `timers`: None where there are none."""

    config: LiveConfig
    admission: Admission
    files: Files
    log: CommitLog
    queues: ConsumeQueues
    lookup: MessageLookup
    dispatcher: Dispatcher
    appender: LogAppender
    damages: KnownDamages
    sequences: ProducerTable
    atomics: Journal
    overflow: OverflowService
    in_flight: MessagesInFlight
    queue_folder: Path
    stats: BrokerStatsManager
    commit_cycle: CommitCycle
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    producers: ProducerManager
    consumers: ConsumerManager
    plugins: PluginHost
    holds: PullRequestHoldService
    transactions: Transactions
    timers: TimerMessages | None
    replicas: ReplicaServer
    clock_watch: ClockWatch
    kernel: KernelStatus
    records: RecordReader
    disk: DiskThreads
    requests: RequestLatency
    deliveries: Histogram
    loop_lag: LoopLag
    lag: ConsumerLag
    exporter: BrokerExporter
    connection_count: Callable[[], int]
    now_ms: Callable[[], int]
    loop_time_s: Callable[[], float]

    # -- labels ----------------------------------------------------------------------------------

    @property
    def scope(self) -> Labels:
        """The labels of all series."""
        return broker_scope(self.config.current)

    @property
    def _rocketmq_scope(self) -> Labels:
        return (*self.scope, ("otel_scope_name", names.SCOPE_NAME))

    @property
    def meter(self) -> RequestLatency | None:
        """What measures requests; None if `enableRemotingMetrics` is off at the start."""
        return self.requests if self.config.current.enable_remoting_metrics else None

    # -- all -------------------------------------------------------------------------------------

    async def families(self) -> list[Family]:
        """All families of this moment; those with most series last."""
        config = self.config.current
        if config.enable_lag_and_dlq_metrics:
            await self.lag.refresh(_LAG_TIMEOUT_S)
        log = self.log
        on_disk = await self.disk.run(OnDisk.look, self.files, log.folders, self.queue_folder)
        oldest_ms = await self.records.read(lambda reads: reads.store_time(log.min_phy_offset))
        return list(self._all(on_disk, oldest_ms))

    def _all(self, on_disk: OnDisk, oldest_ms: int) -> Iterator[Family]:
        config = self.config.current
        yield from process_families(self.scope)
        yield self.loop_lag.family(self.scope)
        yield from self._own(on_disk)
        if config.enable_stats_metrics:
            yield from self._broker()
        if config.enable_message_store_metrics:
            yield from self._storage(on_disk, oldest_ms)
            yield from self._timers()
        if config.enable_connection_metrics:
            yield from self._connections()
        if config.enable_transaction_metrics:
            yield from self._transactions()
        if config.enable_remoting_metrics:
            yield names.RPC_LATENCY.family(self.requests.samples(), self._rocketmq_scope)
        if config.enable_request_metrics:
            yield from self._messages()
        yield own.POP_IN_FLIGHT.family(self._in_flight(), self.scope)
        if config.enable_lag_and_dlq_metrics:
            yield names.SEND_TO_DLQ.family(self._dead_letters(), self._rocketmq_scope)
            yield from self._lag()

    # -- Kourou's own ----------------------------------------------------------------------------

    def _own(self, on_disk: OnDisk) -> Iterator[Family]:
        scope, stats, cycle, log = self.scope, self.stats, self.commit_cycle, self.log
        build = (__version__, platform.python_version(), version_desc(CURRENT_VERSION))
        yield own.BUILD_INFO.family([(build, 1)], scope)
        values: list[tuple[Metric, int | float | Distribution]] = [
            (own.KERNEL, int(self.kernel.current.kernel is not None)),
            (own.FENCED, int(self.appender.is_fenced)),
            (own.SEND_LATENCY, _put_latency(stats)),
            (own.DELIVERY_LATENCY, self.deliveries.read()),
            (own.PUT_FAILED, stats.put_failed_times),
            (own.COMMIT_CYCLES, sum(stats.cycle_messages.counts)),
            (own.COMMIT_CYCLE_MESSAGES, stats.cycle_messages.read()),
            (own.WAITING_MESSAGES, cycle.waiting_messages),
            (own.WAITING_BYTES, cycle.waiting_bytes),
            (own.HELD_PULLS, len(self.holds)),
            (own.CONNECTIONS, self.connection_count()),
            (own.QUEUES, len(self.queues)),
            (own.LOG_START, log.min_phy_offset),
            (own.LOG_END, log.max_phy_offset),
            (own.DAMAGED_BYTES, self.damages.damaged_bytes),
            (own.LOST_MESSAGES, self.damages.lost_messages),
            (own.CLOCK_STEPS, self.clock_watch.step_count),
            (own.IDEMPOTENT_PRODUCERS, len(self.sequences)),
            (own.PRODUCERS_EXPIRED, self.sequences.expired),
            (own.PRODUCERS_EVICTED, self.sequences.evicted),
            (own.REPEATED_MESSAGES, self.sequences.repeats),
        ]
        for metric, value in values:
            yield metric.value(value, scope)
        counts = self.plugins.counts()
        judged = [
            ((name, verdict), count)
            for name, counted in counts.items()
            for verdict, count in counted.by_verdict().items()
        ]
        yield own.FILTER_MESSAGES.family(judged, scope)
        fenced = self.plugins.fenced()
        yield own.FILTER_FENCED.family([((name,), int(name in fenced)) for name in counts], scope)
        refused = [((ruling.name.lower(),), self.sequences.refused[ruling]) for ruling in REFUSALS]
        yield own.REFUSED_SEQUENCES.family(refused, scope)
        if (access := self.admission.record_access) is not None:
            yield own.REFUSED_REQUESTS.family(
                [((kind,), count) for kind, count in access.refusal_counts()], scope
            )
        yield from self._atomics()
        yield from self._overflow()
        yield from self._pops()
        usages = [(str(folder), usage) for folder, usage in on_disk.log_folders.items()]
        yield own.DISK_TOTAL.family([((name,), usage.total_bytes) for name, usage in usages], scope)
        yield own.DISK_FREE.family([((name,), usage.usable_bytes) for name, usage in usages], scope)
        yield own.DISK_USED_RATIO.family([((name,), usage.used_ratio) for name, usage in usages], scope)
        yield from self._slaves()

    def _atomics(self) -> Iterator[Family]:
        table, counts, scope = self.atomics.table, self.atomics.counts, self.scope
        now_ms = self.now_ms()
        ages_ms = (now_ms - joined.staged_ms for joined in table.participations.values() if joined.parts)
        yield own.ATOMIC_BEGUN.value(counts.begun, scope)
        decided = [
            (("committed",), counts.committed),
            (("rolled_back",), counts.rolled_back),
            (("abandoned",), counts.abandoned),
        ]
        yield own.ATOMIC_DECIDED.family(decided, scope)
        yield own.ATOMIC_OPEN.value(len(table.participations), scope)
        yield own.ATOMIC_OLDEST.value(max(0, *ages_ms, 0) / 1000, scope)
        yield own.ATOMIC_STAGED.value(table.staged_bytes, scope)
        yield own.ATOMIC_UNCONFIRMED.value(len(table.decisions), scope)

    def _overflow(self) -> Iterator[Family]:
        watches, scope = self.overflow.watches.values(), self.scope
        states = [((watch.topic, watch.rule.policy.value), watch) for watch in watches]
        yield own.OVERFLOW_SHARE.family([(labels, watch.share) for labels, watch in states], scope)
        yield own.OVERFLOW_ACTIVE.family(
            [(labels, int(watch.over_since_ms is not None)) for labels, watch in states], scope
        )
        yield own.OVERFLOW_REJECTED.family([((watch.topic,), watch.rejected) for watch in watches], scope)
        counts = list(self.overflow.dropped_by_topic())
        yield own.OVERFLOW_DROPPED.family(
            [((topic, group), dropped) for topic, group, dropped, _ in counts], scope
        )
        yield own.OVERFLOW_DEAD_LETTERED.family(
            [((topic, group), dead_lettered) for topic, group, _, dead_lettered in counts], scope
        )

    def _pops(self) -> Iterator[Family]:
        counts, scope = self.in_flight.counts, self.scope
        yield own.POP_CHECK_POINTS.value(self.in_flight.check_points, scope)
        yield own.POP_ACKED.value(counts.acked, scope)
        yield own.POP_LATE_ACKS.value(counts.late_acks, scope)
        overdue = [
            (("revived",), counts.revived),
            (("dead_letter",), counts.dead_letters),
            (("dropped",), counts.dropped),
        ]
        yield own.POP_OVERDUE.family(overdue, scope)

    def _in_flight(self) -> Iterator[Sample]:
        for topic, group, count in self.in_flight.by_group():
            yield (topic, group), count

    def _slaves(self) -> Iterator[Family]:
        if self.config.current.is_slave:
            return
        end, now_s = self.log.max_phy_offset, self.loop_time_s()
        links = {
            (link.address if link.slave is None else str(link.slave.broker_id),): link
            for link in self.replicas.links
            if link.is_reporting
        }
        yield own.SLAVES.value(len(links), self.scope)
        yield own.SLAVE_LAG_BYTES.family(
            [(labels, max(0, end - link.ack_phy_offset)) for labels, link in links.items()], self.scope
        )
        yield own.SLAVE_LAG_SECONDS.family(
            [(labels, link.lag.seconds(now_s)) for labels, link in links.items()], self.scope
        )

    # -- the broker and its storage --------------------------------------------------------------

    def _broker(self) -> Iterator[Family]:
        scope = self._rocketmq_scope
        yield names.BROKER_PERMISSION.value(self.config.current.broker_permission, scope)
        yield names.TOPIC_NUMBER.value(len(self.topics.table), scope)
        yield names.CONSUMER_GROUP_NUMBER.value(len(self.groups.table), scope)
        waiting = {"send": self.commit_cycle.waiting_messages}
        yield names.PROCESSOR_WATERMARK.family(
            [((processor,), waiting.get(processor, 0)) for processor in _PROCESSORS], scope
        )

    def _storage(self, on_disk: OnDisk, oldest_ms: int) -> Iterator[Family]:
        log, scope = self.log, self._rocketmq_scope
        used_bytes = max(usage.total_bytes - usage.usable_bytes for usage in on_disk.log_folders.values())
        values = (
            (names.STORAGE_SIZE, used_bytes),
            (names.FLUSH_BEHIND, log.max_phy_offset - log.flushed_phy_offset),
            (names.DISPATCH_BEHIND, log.max_phy_offset - self.dispatcher.dispatched_phy_offset),
            (names.RESERVE_TIME, max(0, self.now_ms() - oldest_ms) if oldest_ms >= 0 else 0),
        )
        for metric, value in values:
            yield metric.family([(names.LOCAL_DISK, value)], scope)

    def _timers(self) -> Iterator[Family]:
        timers, scope = self.timers, self._rocketmq_scope
        if timers is None:
            return
        wheel_ms = self.clock_watch.steady_ms() + timers.ahead_ms
        behind = self.lookup.max_offset_in_queue(TIMER_TOPIC, 0) - timers.queue_offset
        late_ms = max(0, wheel_ms - timers.read_ms - timers.precision_ms)
        *counts, overdue = timers.due_counts(wheel_ms, names.TIMER_BOUNDS_S)
        values = (
            (names.TIMER_ENQUEUE_LAG, behind),
            (names.TIMER_ENQUEUE_LATENCY, late_ms if behind else 0),
            (names.TIMER_DEQUEUE_LAG, overdue),
            (names.TIMER_DEQUEUE_LATENCY, late_ms),
        )
        for metric, value in values:
            yield metric.family([(names.LOCAL_DISK, value)], scope)
        yield names.TIMER_SNAPSHOT.family(
            [
                ((str(bound_s), *names.LOCAL_DISK), count)
                for bound_s, count in zip(names.TIMER_BOUNDS_S, counts, strict=True)
            ],
            scope,
        )
        totals = timers.metrics.totals(self.topics.table)
        yield names.TIMER_ENQUEUE.family(
            (((topic, *names.LOCAL_DISK), entered) for topic, (entered, _) in totals.items()), scope
        )
        yield names.TIMER_DEQUEUE.family(
            (((topic, *names.LOCAL_DISK), left) for topic, (_, left) in totals.items()), scope
        )
        waiting = timers.metrics.snapshot(self.topics.table).timing_count
        yield names.TIMING_MESSAGES.family(
            (((topic, *names.LOCAL_DISK), metric.count) for topic, metric in waiting.items()), scope
        )
        delays = list(self.stats.events.delay_s.items())
        yield names.DELAY_LATENCY.family(
            (((topic, *names.LOCAL_DISK), delay.read()) for topic, delay in delays), scope
        )

    # -- clients ---------------------------------------------------------------------------------

    def _connections(self) -> Iterator[Family]:
        scope = self._rocketmq_scope
        producers = Counter(
            _client(channel) for channels in self.producers.groups.values() for channel in channels.values()
        )
        yield names.PRODUCER_CONNECTIONS.family(list(producers.items()), scope)
        consumers = Counter(
            (
                group,
                *_client(channel),
                "pull" if info.consume_type is ConsumeType.CONSUME_ACTIVELY else "push",
                _bool(is_system_group(group)),
            )
            for group, info in self.consumers.groups.items()
            for channel in info.channels.values()
        )
        yield names.CONSUMER_CONNECTIONS.family(list(consumers.items()), scope)

    def _transactions(self) -> Iterator[Family]:
        events, scope = self.stats.events, self._rocketmq_scope
        open_count = self.transactions.table.open_count(self.transactions.half_queue.max_queue_offset)
        halves = {topic: count for topic, count in events.halves.items() if count}
        before = open_count - sum(halves.values())
        if before > 0:
            halves[RMQ_SYS_TRANS_HALF_TOPIC] = before
        yield names.COMMIT_MESSAGES.family(_by_topic(events.commits), scope)
        yield names.ROLLBACK_MESSAGES.family(_by_topic(events.rollbacks), scope)
        yield names.HALF_MESSAGES.family(_by_topic(halves), scope)
        finished = list(events.finish_s.items())
        yield names.FINISH_LATENCY.family((((topic,), latency.read()) for topic, latency in finished), scope)

    # -- messages --------------------------------------------------------------------------------

    def _messages(self) -> Iterator[Family]:
        scope = self._rocketmq_scope
        puts, gets = self.stats.topic_puts, self.stats.group_gets
        yield names.MESSAGES_IN.family(self._in(lambda item: item.nums), scope)
        yield names.THROUGHPUT_IN.family(self._in(lambda item: item.size_bytes), scope)
        yield names.MESSAGES_OUT.family(
            ((self._out_labels(*key), item.nums) for key, item in list(gets.items())), scope
        )
        yield names.THROUGHPUT_OUT.family(
            ((self._out_labels(*key), item.size_bytes) for key, item in list(gets.items())), scope
        )
        yield names.MESSAGE_SIZE.family(
            (
                (self._in_labels(topic), Distribution(names.SIZE_BOUNDS, item.size_counts, item.size_bytes))
                for topic, item in list(puts.items())
                if item.size_counts is not None
            ),
            scope,
        )

    def _in(self, value: Callable[[StatsItem], int]) -> Iterator[Sample]:
        for topic, item in list(self.stats.topic_puts.items()):
            yield self._in_labels(topic), value(item)

    def _in_labels(self, topic: str) -> tuple[str, str, str]:
        return topic, self._message_type(topic), _bool(self.topics.is_system(topic))

    def _message_type(self, topic: str) -> str:
        """What a topic's messages are. Single ones are not looked at."""
        found = _TYPE_OF_SYSTEM_TOPIC.get(topic)
        if found is not None:
            return found
        if is_retry_topic(topic):
            return "delay"  # they come by way of a delay level
        config = self.topics.table.get(topic)
        declared = "" if config is None else (config.attributes or {}).get(MESSAGE_TYPE, "")
        return declared.lower() or "normal"

    def _out_labels(self, topic: str, group: str) -> tuple[str, str, str]:
        return topic, group, _bool(self.topics.is_system(topic) or is_system_group(group))

    def _dead_letters(self) -> Iterator[Sample]:
        for key, count in list(self.stats.events.dead_letters.items()):
            yield self._out_labels(*key), count

    # -- lag -------------------------------------------------------------------------------------

    def _lag(self) -> Iterator[Family]:
        scope, now_ms, table = self._rocketmq_scope, self.now_ms(), self.lag.table
        yield own.LAG_AGE.value(self.lag.age_s, self.scope)
        values: list[tuple[Metric, Callable[[TopicLag], int]]] = [
            (names.LAG_MESSAGES, lambda lag: lag.lag),
            (names.LAG_LATENCY, lambda lag: _age_ms(now_ms, lag.lag_since_ms)),
            (names.INFLIGHT_MESSAGES, lambda lag: lag.inflight),
            (names.QUEUEING_LATENCY, lambda lag: _age_ms(now_ms, lag.ready_since_ms)),
            (names.READY_MESSAGES, lambda lag: lag.ready),
        ]
        for metric, value in values:
            yield metric.family(self._lag_samples(table, value), scope)
        if self.config.current.metrics_lag_per_queue:
            yield own.QUEUE_LAG.family(
                (
                    ((lag.topic, str(queue.queue_id), lag.group), queue.lag)
                    for lag in table
                    for queue in lag.queues
                ),
                self.scope,
            )

    def _lag_samples(self, table: Sequence[TopicLag], value: Callable[[TopicLag], int]) -> Iterator[Sample]:
        for lag in table:
            yield self._lag_labels(lag), value(lag)

    def _lag_labels(self, lag: TopicLag) -> tuple[str, str, str, str]:
        is_system = self.topics.is_system(lag.topic) or is_system_group(lag.group)
        return lag.topic, lag.group, _bool(is_system), _bool(is_retry_topic(lag.topic))


def _put_latency(stats: BrokerStatsManager) -> Distribution:
    latencies = stats.put_latencies
    merged = [0] * (len(_SEND_BOUNDS_S) + 1)
    for bound_ms, count in zip((*latencies.BOUNDS_MS, math.inf), latencies.since_start(), strict=True):
        merged[bisect_left(_SEND_BOUNDS_S, bound_ms / 1000)] += count
    return Distribution(_SEND_BOUNDS_S, merged, latencies.total_ms / 1000)


def _client(channel: ClientChannel) -> tuple[str, str, str]:
    """Language, version and protocol."""
    try:
        language = LanguageCode(channel.language)
    except ValueError:
        language = LanguageCode.OTHER
    return language.name.lower(), version_desc(channel.version).lower(), _REMOTING


def _by_topic(counts: dict[str, int]) -> Iterator[Sample]:
    return (((topic,), count) for topic, count in list(counts.items()))


def _age_ms(now_ms: int, since_ms: int) -> int:
    return max(0, now_ms - since_ms) if since_ms else 0


def _bool(value: bool) -> str:
    return "true" if value else "false"
