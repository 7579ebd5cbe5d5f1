"""A broker's admin processors on a real store, behind real connections on memory transports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kourou.broker.admin.config_processor import ConfigProcessor
from kourou.broker.admin.runtime_info import RuntimeInfo
from kourou.broker.delay.delay_offsets import DelayOffsetManager
from kourou.broker.delay.delayed_messages import DelayedMessages
from kourou.broker.delay.timer_messages import TimerMessages
from kourou.broker.groups.consumer_call_processor import ConsumerCallProcessor
from kourou.broker.part import processors_of
from kourou.broker.pull.long_polling import Pull, PullRequestHoldService
from kourou.broker.pull.query_message_processor import QueryMessageProcessor
from kourou.broker.settings import KernelStatus
from kourou.broker.stats.stats_processor import StatsProcessor
from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.broker.storage.retention_service import RetentionService
from kourou.broker.tables.offset_processor import OffsetProcessor
from kourou.broker.tables.reset_offset import ResetOffsetProcessor
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.store.dispatcher import Dispatcher as StoreDispatcher
from kourou.store.kernel import choose_kernel
from kourou.store.recovery.corrupt_ranges import KnownDamages
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.request import Processor
from tests.unit.broker.tables_kit import MemoryBroker, Peer
from tests.unit.store.message_stores import faulty, put

T = TypeVar("T")


class AdminBroker(MemoryBroker):
    """A broker with topic `T` of two queues and group `CG`. Nothing is answered from a map of the log,
    so that `go_cold` can make every read wait for the disk."""

    def __init__(self, root: Path, **keys: Any) -> None:
        self._is_ready = False  # for what tools ask
        super().__init__(root, **keys)
        self.store = self.store_kit.reopen(self.store, read_window_bytes=0)
        self.files = self.store_kit.files
        self.store_work = asyncio.Lock()
        self.woken: list[Pull] = []
        self.holds = PullRequestHoldService(self.store.queues.find, self.cycles.open, self.woken.append)
        self.start_ms = self.clock()
        self.delay_offsets = DelayOffsetManager(self.files, root, self.get_config, self.clock, lambda: 0)
        self.delay_offsets.load()
        self.timers: TimerMessages | None = TimerMessages(
            self.files, root, self.config, self.store.log, self.clock()
        )
        self.kernel = KernelStatus(choose_kernel(is_enabled=False))
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.groups.update(SubscriptionGroupConfig(group_name="CG"))
        self._is_ready = True
        self.dispatch = Dispatcher(self.processors())

    def processors(self) -> dict[int, Processor]:
        """What it answers, tools too."""
        if not self._is_ready:
            return super().processors()
        handlers = (
            QueryMessageProcessor,
            OffsetProcessor,
            ResetOffsetProcessor,
            ConsumerCallProcessor,
            StatsProcessor,
            ConfigProcessor,
        )
        return super().processors() | processors_of(map(self.wired, handlers))

    @property
    def delay_levels(self) -> tuple[int, ...]:
        return self.store.config.delay_levels

    @property
    def delayed(self) -> DelayedMessages:
        """What redirects messages with a delay."""
        return self.wired(DelayedMessages)

    @property
    def delay(self) -> Callable[[InnerMessage], None]:
        return self.delayed.redirect

    @property
    def writer(self) -> MessageWriter:
        return self.wired(MessageWriter)

    def journal_phy_offset(self) -> int | None:
        return None

    @property
    def retention(self) -> RetentionService:
        return self.wired(RetentionService)

    @property
    def runtime(self) -> RuntimeInfo:
        return self.wired(RuntimeInfo)

    @property
    def dispatcher(self) -> StoreDispatcher:
        return self.store.dispatcher

    @property
    def damages(self) -> KnownDamages:
        return self.store.damages

    def update_config(self, changes: Mapping[str, str]) -> None:
        """As the controller does it, but for the file."""
        self.live_config.current = self.config.updated(changes)

    def put(self, *bodies: bytes, topic: str = "T", queue_id: int = 0, properties: str = "") -> list[int]:
        """Store messages, a second apart; their places in the log."""
        places = []
        for body in bodies:
            places.append(put(self.store, body, topic, queue_id, properties=properties).phy_offset)
            self.clock.advance(1000)
            self.store_kit.clock.advance(1000)
        return places

    def go_cold(self) -> None:
        """From now on nothing of the log and the queues is found in memory."""
        self.store.flush_derived(thorough=True)
        faulty(self.store_kit).chill()

    def tool(self) -> AdminPeer:
        """An admin tool."""
        return AdminPeer(self, 50_000)

    async def close(self) -> None:
        await super().close()
        if self.timers is not None:
            self.timers.close()
        self.disk.stop()


class AdminPeer(Peer):
    """One connection of a tool."""

    async def ask(self, code: RequestCode, body_type: type[T], header: msgspec.Struct | None = None) -> T:
        """Send a request that goes well; its body."""
        answer = await self.call(code, header)
        assert answer.code == 0, answer.remark
        return decode_body(answer.body, body_type)

    async def refused(
        self, code: RequestCode, header: msgspec.Struct | None = None, body: bytes = b""
    ) -> tuple[int, str | None]:
        """Send a request that is refused; code and words."""
        answer = await self.call(code, header, body)
        assert answer.code != 0
        return answer.code, answer.remark

    def start(self, code: RequestCode, header: msgspec.Struct | None = None) -> None:
        """Send a request without waiting for what comes back."""
        self.connection.data_received(RemotingCommand.request(code, header).encode())


@asynccontextmanager
async def admin_broker(root: Path, **keys: Any) -> AsyncIterator[AdminBroker]:
    """A broker for the length of a test."""
    broker = AdminBroker(root, **keys)
    try:
        yield broker
    finally:
        await broker.close()
