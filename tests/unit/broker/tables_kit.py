"""The tables of a broker with their processors, behind real connections on memory transports."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from kourou.broker.admission import Admission, DiskBacklog
from kourou.broker.clock_watch import ClockWatch
from kourou.broker.connection_state import ConnectionState
from kourou.broker.filters.plugin_host import PluginHost
from kourou.broker.groups.client_manage_processor import ClientManageProcessor
from kourou.broker.groups.consumer_manage_processor import ConsumerManageProcessor
from kourou.broker.groups.consumers import ConsumerIdsNotifier, ConsumerManager
from kourou.broker.groups.producers import ClientChannel, ProducerManager
from kourou.broker.groups.rebalance_lock import RebalanceLockManager
from kourou.broker.part import processors_of
from kourou.broker.settings import LiveConfig
from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.consumer_lag import ConsumerLag
from kourou.broker.stats.event_counters import EventCounters
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.record_reads import RecordReader
from kourou.broker.tables.group_processor import GroupProcessor
from kourou.broker.tables.live_groups import LiveGroups
from kourou.broker.tables.offsets import ConsumerOffsetManager
from kourou.broker.tables.overflow_floors import OverflowFloors
from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
from kourou.broker.tables.topic_processor import TopicProcessor
from kourou.broker.tables.topics import TopicConfigManager
from kourou.config.broker import BrokerConfig
from kourou.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    TopicConfig,
    encode_body,
)
from kourou.protocol.codes import LanguageCode, RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.store.config_file import JsonConfigFile
from kourou.store.disk.files import Files
from kourou.store.index.index_service import IndexService
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_appender import LogAppender
from kourou.store.log.log_watch import LogWatch
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.read.message_lookup import MessageLookup
from kourou.testing.clock import FakeClock
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.request import Processor
from kourou.transport.settings import ConnectionLimits
from kourou.transport.tasks import TaskOwner
from tests.unit.store.message_stores import NOW_MS, StoreKit

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


def broker_config(**keys: Any) -> BrokerConfig:
    """A broker on this machine, with a fixed name and address."""
    return BrokerConfig(
        **{"broker_name": "broker-a", "broker_ip1": "127.0.0.1", "bind_address": "127.0.0.1", **keys}
    )


def consumer(group: str = "CG", **topics: str) -> ConsumerData:
    """A push consumer: topic to tags, `*` of `T` by default."""
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string=tags, sub_version=1)
            for topic, tags in (topics or {"T": "*"}).items()
        ],
    )


EMPTY_BACKLOG = cast(DiskBacklog, SimpleNamespace(waiting_bytes=0, waiting_messages=0))
"""Nothing waits for a sync."""


class CountingDisk(DiskThreads):
    """Disk threads whose work is counted."""

    jobs = 0

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self.jobs += 1
        return await super().run(function, *args, **kwargs)


class Tables:
    """Managers on files below `root`, with a clock that stands still."""

    def __init__(self, root: Path, **keys: Any) -> None:
        self.clock = FakeClock(NOW_MS)
        self.live_config = LiveConfig(broker_config(**keys))
        self.registered: list[TopicConfig | None] = []
        self._root = root
        self.topics = TopicConfigManager(
            self.file("topics.json"), self.get_config, self.clock, self.registered.append
        )
        self.groups = SubscriptionGroupManager(
            self.file("subscriptionGroup.json"), self.get_config, self.clock
        )
        self.floors = OverflowFloors(self.file("overflowFloors.json"), self.clock)
        self.offsets = ConsumerOffsetManager(
            self.file("consumerOffset.json"), self.get_config, self.clock, self.floors
        )
        self.progress = (self.offsets,)

    def file(self, name: str) -> JsonConfigFile:
        """One of the files of the store."""
        return JsonConfigFile(Files(), self._root / "config" / name)

    @property
    def config(self) -> BrokerConfig:
        """The configuration now in force."""
        return self.live_config.current

    def get_config(self) -> BrokerConfig:
        """The same as a function."""
        return self.config

    def set_keys(self, **keys: Any) -> None:
        """Change the configuration."""
        self.live_config.current = dataclasses.replace(self.config, **keys)

    def load(self) -> Tables:
        """Load all three."""
        for table in (self.topics, self.groups, self.offsets):
            table.load()
        return self

    def persist(self) -> None:
        """Write all three."""
        for table in (self.topics, self.groups, self.offsets):
            table.persist()


class MemoryBroker(Tables):
    """Tables, a store and the processors under test. Create it on a running loop, `close` it after."""

    def __init__(self, root: Path, **keys: Any) -> None:
        super().__init__(root, **keys)
        self.load()
        self.store_kit = StoreKit(root, commit_log_file_bytes=64 * 1024)
        self.store = self.store_kit.open()
        self.producers = ProducerManager()
        self.notifier = ConsumerIdsNotifier(self.get_config)
        self.consumers = ConsumerManager(self.monotonic_ms, self.notifier)
        self.live_groups = LiveGroups(
            config=self.live_config,
            offsets=self.offsets,
            consumers=self.consumers,
            monotonic_ms=self.monotonic_ms,
        )
        self.locks = RebalanceLockManager(self.monotonic_ms)
        self.stats = BrokerStatsManager("C", self.clock(), self.topics.is_system, wall_ms=self.clock())
        self.clock_watch = ClockWatch(self.clock, lambda: self.store.log.max_phy_offset)
        self.tasks = self.requests = TaskOwner("broker")
        self.cycles = Cycles()
        self.address = "127.0.0.1:10911"
        self.admission = Admission(
            config=self.get_config,
            address=self.address,
            now_ms=self.clock,
            topics=self.topics,
            groups=self.groups,
            backlog=EMPTY_BACKLOG,
        )
        self.plugins = PluginHost(self.live_config, self.monotonic_ms)
        self.store_work = asyncio.Lock()
        self.disk = CountingDisk()
        self.dispatch: Processor = Dispatcher(self.processors())

    def processors(self) -> dict[int, Processor]:
        """What it answers."""
        handlers = (ClientManageProcessor, ConsumerManageProcessor, TopicProcessor, GroupProcessor)
        return processors_of((*map(self.wired, handlers), self.locks))

    def reopen(self, **settings: Any) -> None:
        """Close the store and open it again; clients that connect from now on reach it."""
        self.store = self.store_kit.reopen(self.store, **settings)
        self.dispatch = Dispatcher(self.processors())

    def wired(self, made: Callable[..., T]) -> T:
        """Make a service or processor of what its constructor names."""
        names = inspect.signature(made).parameters
        return made(**{name: self.live_config if name == "config" else getattr(self, name) for name in names})

    def more_keys(self) -> dict[str, str]:
        """What others add to its runtime information."""
        return {}

    @property
    def events(self) -> EventCounters:
        """Of its statistics."""
        return self.stats.events

    @property
    def log(self) -> CommitLog:
        """Of the store that is open now."""
        return self.store.log

    @property
    def queues(self) -> ConsumeQueues:
        """Of the store that is open now."""
        return self.store.queues

    @property
    def appender(self) -> LogAppender:
        """Of the store that is open now."""
        return self.store.appender

    @property
    def log_watch(self) -> LogWatch:
        """Of the store that is open now."""
        return self.store.watch

    @property
    def index(self) -> IndexService | None:
        """Of the store that is open now."""
        return self.store.index

    @property
    def lookup(self) -> MessageLookup:
        """Of the store that is open now."""
        return self.store.lookup

    @property
    def lag(self) -> ConsumerLag:
        """Of the store that is open now."""
        return ConsumerLag(
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            queues=self.queues,
            records=self.records,
            tasks=self.requests,
            monotonic_ms=self.monotonic_ms,
        )

    @property
    def records(self) -> RecordReader:
        """As processors get it."""
        return RecordReader(self.store.log, self.disk, self.requests)

    @property
    def disk_jobs(self) -> int:
        """How often something had to wait for the disk."""
        return self.disk.jobs

    def now_ms(self) -> int:
        """As processors get it."""
        return self.clock()

    def monotonic_ms(self) -> int:
        """As processors get it."""
        return self.clock.monotonic_ms()

    def closed(self, connection: Connection) -> None:
        """What the controller does when a connection ends."""
        self.producers.connection_closed(connection)
        self.consumers.connection_closed(connection)

    def connect(self, port: int = 40_000) -> Peer:
        """A client."""
        return Peer(self, port)

    async def close(self) -> None:
        """Let go of the store."""
        await self.tasks.stop()
        self.disk.stop()
        self.store_kit.close()


class Peer:
    """One connection to the broker under test; its client id is `c<port>` by default."""

    def __init__(self, broker: MemoryBroker, port: int) -> None:
        self.broker = broker
        self.client_id = f"c{port}"
        self.connection = Connection(
            broker.cycles,
            broker.dispatch,
            ConnectionLimits(),
            InboundBudget(2**30),
            on_close=broker.closed,
            new_state=ConnectionState,
        )
        self.transport = MemoryTransport(self.connection, port=port)

    async def send(self, command: RemotingCommand) -> list[RemotingCommand]:
        """Let a command arrive; everything that is sent back by then."""
        self.connection.data_received(command.encode())
        await self.broker.tasks.wait_idle(5)
        await asyncio.sleep(0)  # what is due at the end of the iteration
        return self.received()

    def received(self) -> list[RemotingCommand]:
        """Everything that was sent to this client since it last looked."""
        self.broker.cycles.close()
        return self.transport.commands()

    async def call(
        self, code: RequestCode, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request; its one answer."""
        command = RemotingCommand.request(code, header, body)
        (answer,) = [each for each in await self.send(command) if each.is_response]
        return answer

    async def heartbeat(self, *consumers: ConsumerData, **fields: Any) -> RemotingCommand:
        """Send a heartbeat; its answer."""
        known = {"client_id": self.client_id, "consumer_data_set": list(consumers)}
        return await self.call(RequestCode.HEART_BEAT, body=encode_body(HeartbeatData(**{**known, **fields})))


def make_channel(client_id: str, port: int, now_ms: int = 0) -> ClientChannel:
    """A client on a connection of its own, for managers without a broker. On a running loop."""
    connection = Connection(Cycles(), lambda request: None, ConnectionLimits(), InboundBudget(2**30))
    MemoryTransport(connection, port=port)
    return ClientChannel(connection, client_id, LanguageCode.JAVA, 0, now_ms)
