"""BrokerServices: what the parts of a running broker share.

Made by the controller, given to every processor. Not here: who makes the parts and in which
order they start and stop (controller.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kourou.broker.hooks import BrokerHooks
from kourou.transport.dispatcher import run_request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.groups.rebalance_lock import RebalanceLockManager
    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.config.broker import BrokerConfig
    from kourou.protocol.bodies.topics import TopicConfig
    from kourou.store.disk.files import Files
    from kourou.store.kernel import KernelChoice
    from kourou.store.message_store import MessageStore
    from kourou.transport.cycles import Cycles
    from kourou.transport.request import Request
    from kourou.transport.tasks import TaskOwner

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class BrokerServices:
    """What the parts of one broker share."""

    live_config: LiveConfig
    files: Files
    store: MessageStore
    cycles: Cycles
    commit_cycle: CommitCycle
    admission: Admission
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    producers: ProducerManager
    consumers: ConsumerManager
    locks: RebalanceLockManager
    stats: BrokerStatsManager
    holds: PullRequestHoldService
    delay_offsets: DelayOffsetManager
    timers: TimerMessages | None
    """Messages that wait for any time; None: there are none (`timerWheelEnable`)."""
    disk: DiskThreads
    records: RecordReader
    tasks: TaskOwner
    requests: TaskOwner
    """Requests that became tasks: a stop lets them be answered."""
    store_work: asyncio.Lock
    """Held by whoever works on the store across waits, or takes queues or files away."""
    now_ms: Callable[[], int]
    """Wall time, for timestamps: it may be stepped either way."""
    monotonic_ms: Callable[[], int]
    """For deadlines and other durations."""
    clock_watch: ClockWatch
    start_ms: int
    address: str
    store_host: bytes
    register_soon: Callable[[TopicConfig | None], None]
    """Tell the name servers of a change at once; None: everything."""
    update_config: Callable[[Mapping[str, str]], None]
    """Change keys while running and write them to the configuration file; ConfigError or RequestError."""
    kernel: KernelChoice
    """Whether the compiled kernel is in use, for runtime info."""
    hooks: BrokerHooks = field(default_factory=BrokerHooks)

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force."""
        return self.live_config.current

    def run(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Go on with a request that has to wait; what `work` raises becomes its answer."""
        run_request(self.requests, request, work)

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` for as long as the broker runs; its death stops the broker."""
        self.tasks.start(work, name)

    def in_disk_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a function that may wait for the disk. Mind that the store belongs to the loop's thread."""
        return self.disk.run(function, *args, **kwargs)
