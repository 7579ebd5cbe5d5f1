"""BrokerServices: the objects that the parts of one broker share, and how they are made.

Only the composition root (assembly.py, *wiring.py, controller.py) uses it, and programs that look inside a
broker they embed. Parts and processors do not receive it: each takes the objects that it uses (wiring.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from kourou.broker.admission import Admission, AdmissionCheck
from kourou.broker.clock_watch import ClockWatch
from kourou.broker.delay.delay_offsets import DelayOffsetManager
from kourou.broker.delay.delayed_messages import DelayedMessages
from kourou.broker.delay.timer_messages import TimerMessages
from kourou.broker.filters.plugin_host import PluginHost
from kourou.broker.groups.consumers import ConsumerIdsNotifier, ConsumerManager
from kourou.broker.groups.producers import ProducerManager
from kourou.broker.groups.rebalance_lock import RebalanceLockManager
from kourou.broker.hooks import BrokerHooks
from kourou.broker.part import Handler
from kourou.broker.pop.order_table import OrderTable
from kourou.broker.pop.pop_polling import PopPolling, polling_limits
from kourou.broker.pop.request_modes import RequestModes
from kourou.broker.pull.cold_pulls import ColdPullQueues, ColdReadThrottle
from kourou.broker.pull.cold_read_share import make_cold_reads
from kourou.broker.pull.filtered_read import Matchers
from kourou.broker.pull.long_polling import PullRequestHoldService
from kourou.broker.pull.pull_message_processor import PullMessageProcessor
from kourou.broker.pull.pull_targets import PullTargets
from kourou.broker.registration.registration import ChangeSignal
from kourou.broker.replication.membership import Membership
from kourou.broker.replication.replica_status import ReplicaStatus
from kourou.broker.settings import KernelStatus, LiveConfig, free_port, store_root
from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.consumer_lag import ConsumerLag
from kourou.broker.stats.store_stats import StoreStats
from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.inner_message import MessageWriter
from kourou.broker.storage.record_reads import RecordReader
from kourou.broker.tables.live_groups import LiveGroups
from kourou.broker.tables.offsets import ConsumerOffsetManager
from kourou.broker.tables.overflow_floors import OverflowFloors
from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
from kourou.broker.tables.topics import TopicConfigManager
from kourou.clock import Clock
from kourou.config.broker import BrokerConfig
from kourou.config.metrics_settings import OTLP_GRPC, OTLP_HTTP
from kourou.protocol.message_id import UniqueIdGenerator, host_text
from kourou.store.config_file import JsonConfigFile
from kourou.store.disk.files import Files
from kourou.store.kernel import KernelChoice
from kourou.store.message_store import MessageStore
from kourou.store.settings import FlushDiskType
from kourou.transport.addresses import join_address, parse_address
from kourou.transport.cycles import Cycles
from kourou.transport.tasks import TaskOwner


def with_ports(config: BrokerConfig) -> BrokerConfig:
    """The same with ports, if none are configured. ConfigError: none is free."""
    if config.listen_port and config.ha_listen_port:
        return config
    port = config.listen_port or free_port(config.bind_address)
    ha_port = config.ha_listen_port or free_port(config.bind_address)
    # Two below a free port is not for us to take.
    fast_port = config.fast_listen_port or 0
    return replace(config, listen_port=port, ha_listen_port=ha_port, fast_listen_port=fast_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSetup:
    """What a broker is made of beside its store."""

    config: BrokerConfig
    files: Files
    clock: Clock
    hooks: BrokerHooks
    checks: Iterable[AdmissionCheck]
    kernel: KernelChoice
    membership: Membership | None = None
    """The broker's part in a fail-over set; None: it is in none."""
    has_metrics: bool = False
    """Whether metrics are measured even if no port of the broker's own serves them."""
    handlers: Sequence[Handler] = ()
    """What serves further requests."""
    runtime_keys: Callable[[], Mapping[str, str]] = dict
    """More keys for the runtime information."""

    @property
    def measures(self) -> bool:
        """Whether metrics are measured."""
        config = self.config
        return (
            self.has_metrics
            or config.http_port is not None
            or config.served_metrics_port is not None
            or config.metrics_exporter_type in (OTLP_GRPC, OTLP_HTTP)
        )

    def checked(self) -> Self:
        """The same with ports, if none are configured. ConfigError: none is free."""
        return replace(self, config=with_ports(self.config))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """What the parts of one broker share."""

    live_config: LiveConfig
    clock: Clock
    files: Files
    store: MessageStore
    cycles: Cycles
    commit_cycle: CommitCycle
    admission: Admission
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    order_table: OrderTable
    """What orderly POP has handed out."""
    request_modes: RequestModes
    """How groups read topics whose queues the broker assigns."""
    live_groups: LiveGroups
    producers: ProducerManager
    consumers: ConsumerManager
    notifier: ConsumerIdsNotifier
    plugins: PluginHost
    """Filters that the operator has installed."""
    locks: RebalanceLockManager
    stats: BrokerStatsManager
    lag: ConsumerLag
    holds: PullRequestHoldService
    pulls: PullMessageProcessor
    pop_polling: PopPolling
    notice_polling: PopPolling
    """Of consumers that only want to know when there is something to pop."""
    matchers: Matchers
    cold_pulls: ColdPullQueues
    cold_reads: ColdReadThrottle
    """Of pulls and pops together."""
    replica_status: ReplicaStatus
    """Of a slave: whether it follows its master."""
    delay_offsets: DelayOffsetManager
    delayed: DelayedMessages
    timers: TimerMessages | None
    """Messages that wait for any time; None: there are none (`timerWheelEnable`)."""
    disk: DiskThreads
    records: RecordReader
    writer: MessageWriter
    tasks: TaskOwner
    requests: TaskOwner
    """Requests that became tasks: a stop lets them be answered."""
    store_work: asyncio.Lock
    """Held while queues or files are deleted, or the store is worked on across waits."""
    clock_watch: ClockWatch
    address: str
    changed: ChangeSignal
    """Set when the name servers are to be updated at once."""
    update_config: Callable[[Mapping[str, str]], None]
    """Change keys while running and write them to the configuration file; ConfigError or RequestError."""
    kernel: KernelStatus
    runtime_keys: Callable[[], Mapping[str, str]]
    """More keys for the runtime information."""
    hooks: BrokerHooks
    new_uniq_key: Callable[[], str]
    """For messages that have no id of their sender."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force."""
        return self.live_config.current

    @property
    def store_host(self) -> bytes:
        """The advertised address as records keep it."""
        return self.store.config.store_host

    @property
    def now_ms(self) -> Callable[[], int]:
        """Wall time, for timestamps: it may be stepped either way."""
        return self.clock.wall_ms

    @property
    def monotonic_ms(self) -> Callable[[], int]:
        """For deadlines and other durations."""
        return self.clock.monotonic_ms

    @classmethod
    def make(
        cls,
        setup: BrokerSetup,
        store: MessageStore,
        disk: DiskThreads,
        *,
        after_cycle: Callable[[], None],
        update_config: Callable[[Mapping[str, str]], None],
    ) -> Self:
        """The services of a broker around its open store. On the running loop."""
        clock, config, now_ms = setup.clock, setup.config, setup.clock.wall_ms
        log = store.log
        live_config, changed = LiveConfig(config), ChangeSignal()
        tasks = TaskOwner("broker")
        requests = TaskOwner("broker-requests", parent=tasks)
        topics = TopicConfigManager(_table(setup, "topics.json"), live_config.get, now_ms, changed.soon)
        groups = SubscriptionGroupManager(_table(setup, "subscriptionGroup.json"), live_config.get, now_ms)
        floors = OverflowFloors(_table(setup, "overflowFloors.json"), now_ms)
        offsets = ConsumerOffsetManager(_table(setup, "consumerOffset.json"), live_config.get, now_ms, floors)
        notifier = ConsumerIdsNotifier(live_config.get)
        consumers = ConsumerManager(clock.monotonic_ms, notifier)
        plugins = PluginHost(live_config, clock.monotonic_ms)
        stats = BrokerStatsManager(
            config.broker_cluster_name, clock.monotonic_ms(), topics.is_system, wall_ms=now_ms()
        )
        commit_cycle = CommitCycle(
            store,
            sync_flush_timeout_ms=config.sync_flush_timeout,
            waits_for_flush=store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            count_failed=stats.put_failed,
            monotonic_ms=clock.monotonic_ms,
        )
        cycles = Cycles(begin=commit_cycle.begin, end=commit_cycle.end, after=after_cycle, failed=tasks.fail)
        address = join_address(config.broker_ip1, config.listen_port)
        admission = Admission(
            config=live_config.get,
            address=address,
            now_ms=now_ms,
            topics=topics,
            groups=groups,
            backlog=commit_cycle,
            before_send=setup.hooks.before_send,
            checks=setup.checks,
        )
        holds = PullRequestHoldService(store.queues.find, cycles.open, lambda pull: pulls.resume(pull))

        def polling(*, wakes_last: bool) -> PopPolling:
            return PopPolling(
                limits=lambda: polling_limits(live_config.current), now_ms=now_ms, wakes_last=wakes_last
            )

        pop_polling, notice_polling = polling(wakes_last=False), polling(wakes_last=True)
        replica_status = ReplicaStatus()
        records = RecordReader(log, disk, requests)
        matchers = Matchers(log, records, plugins)
        cold_pulls = ColdPullQueues(requests)
        cold_reads = make_cold_reads(lambda: commit_cycle.written_messages)
        pulls = PullMessageProcessor(
            config=live_config,
            log=store.log,
            queues=store.queues,
            reader=store.reader,
            max_transfer_bytes=store.config.max_transfer_bytes,
            offsets=offsets,
            stats=stats,
            holds=holds,
            disk=disk,
            address=address,
            hooks=setup.hooks,
            targets=PullTargets(
                config=live_config,
                admission=admission,
                topics=topics,
                groups=groups,
                consumers=consumers,
                plugins=plugins,
            ),
            matchers=matchers,
            is_cut_off=lambda: replica_status.why_not_following is not None,
            cold_pulls=cold_pulls,
            cold_reads=cold_reads,
        )
        store.dispatcher.on_publish.append(StoreStats(stats, now_ms).published)
        store.dispatcher.polls = (holds, pop_polling, notice_polling)
        root = store.config.root
        clock_watch = ClockWatch(clock, lambda: log.max_phy_offset, store.checkpoint.physic_msg_timestamp)
        timers = (
            TimerMessages(setup.files, root, config, log, now_ms()) if config.timer_wheel_enable else None
        )
        delay_levels = store.config.delay_levels
        delayed = DelayedMessages(
            config=live_config,
            delay_levels=delay_levels,
            timers=timers,
            clock_watch=clock_watch,
            now_ms=now_ms,
            events=stats.events,
        )
        start_ms = now_ms()
        new_uniq_key = UniqueIdGenerator(
            ip=parse_address(host_text(store.config.store_host))[0],
            pid=start_ms & 0xFFFF,
            class_loader_hash=start_ms,
            now_ms=now_ms,
        )
        lag = ConsumerLag(
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            queues=store.queues,
            records=records,
            tasks=requests,
            monotonic_ms=clock.monotonic_ms,
        )
        return cls(
            live_config=live_config,
            clock=clock,
            files=setup.files,
            store=store,
            cycles=cycles,
            commit_cycle=commit_cycle,
            admission=admission,
            topics=topics,
            groups=groups,
            offsets=offsets,
            order_table=OrderTable(_table(setup, "consumerOrderInfo.json"), now_ms, offsets),
            request_modes=RequestModes(_table(setup, "messageRequestMode.json"), live_config.get, now_ms),
            live_groups=LiveGroups(
                config=live_config, offsets=offsets, consumers=consumers, monotonic_ms=clock.monotonic_ms
            ),
            producers=ProducerManager(),
            consumers=consumers,
            notifier=notifier,
            plugins=plugins,
            locks=RebalanceLockManager(clock.monotonic_ms),
            stats=stats,
            lag=lag,
            holds=holds,
            pulls=pulls,
            pop_polling=pop_polling,
            notice_polling=notice_polling,
            matchers=matchers,
            cold_pulls=cold_pulls,
            cold_reads=cold_reads,
            replica_status=replica_status,
            delay_offsets=DelayOffsetManager(
                setup.files, root, live_config.get, now_ms, lambda: log.max_phy_offset
            ),
            delayed=delayed,
            timers=timers,
            disk=disk,
            records=records,
            writer=MessageWriter(
                cycles=cycles,
                appender=store.appender,
                queues=store.queues,
                delay_levels=delay_levels,
                delay=delayed.redirect,
            ),
            tasks=tasks,
            requests=requests,
            store_work=asyncio.Lock(),
            clock_watch=clock_watch,
            address=address,
            changed=changed,
            update_config=update_config,
            kernel=KernelStatus(setup.kernel),
            runtime_keys=setup.runtime_keys,
            hooks=setup.hooks,
            new_uniq_key=new_uniq_key,
        )


def _table(setup: BrokerSetup, name: str) -> JsonConfigFile:
    return JsonConfigFile(setup.files, store_root(setup.config) / "config" / name)
