"""RetentionService: deletes a broker's old files, and knows which groups have not read them yet.

Under disk pressure only what every live group (tables/live_groups.py) has read may go before its age.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.settings import retention_config
from kourou.errors import StorageError
from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.store.log.commit_log import CommitLog
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.retention import Retention, RetentionRound
from kourou.store.steps import Steps

if TYPE_CHECKING:
    from kourou.broker.clock_watch import ClockWatch
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.delay.timer_messages import TimerMessages
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.live_groups import LiveGroups
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.store.disk.files import Files
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)
_LOOK_AT_OFFSETS_S: Final = 60.0


def waiting_phy_offset(
    queues: ConsumeQueues, delay_offsets: DelayOffsetManager, timers: TimerMessages | None
) -> int | None:
    """Where the oldest record begins that waits for its time, of delay levels and timers; or None."""
    found = []
    for queue_id in queues.queue_ids(RMQ_SYS_SCHEDULE_TOPIC):
        queue = queues.get(RMQ_SYS_SCHEDULE_TOPIC, queue_id)
        next_offset = delay_offsets.table.get(queue_id + 1, 0)
        unit = queue.unit(max(next_offset, queue.min_queue_offset))
        if unit is not None and unit.is_message:
            found.append(unit.phy_offset)
    if timers is not None:
        found += _waiting_timers(queues, timers)
    return min(found, default=None)


def _waiting_timers(queues: ConsumeQueues, timers: TimerMessages) -> Iterator[int]:
    """The oldest one on the wheel, and the next one to be entered: all of them, while it is rebuilt."""
    on_wheel = timers.oldest_phy_offset()
    if on_wheel is not None:
        yield on_wheel
    queue = queues.find(TIMER_TOPIC, 0)
    unit = None if queue is None else queue.unit(max(timers.queue_offset, queue.min_queue_offset))
    if unit is not None and unit.is_message:
        yield unit.phy_offset


class UnreadSearch:
    """Where the messages at these queue_offsets, by topic and queue_id, lie; the lowest is `phy_offset`.
    That is the end of the log where all are read."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, next_offsets: Mapping[tuple[str, int], int]
    ) -> None:
        self.phy_offset = log.max_phy_offset
        self._in_files: list[tuple[ConsumeQueue, int]] = []
        for (topic, queue_id), queue_offset in next_offsets.items():
            queue = queues.find(topic, queue_id)
            if queue is not None:
                self._look_now_or_later(queue, max(queue_offset, queue.min_queue_offset))

    def _look_now_or_later(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if queue_offset < queue.flushed_queue_offset:
            self._in_files.append((queue, queue_offset))
        else:
            self._look(queue, queue_offset)

    def run(self) -> None:
        """Look at what is in the files; no queue may be deleted meanwhile."""
        for queue, queue_offset in self._in_files:
            self._look(queue, queue_offset)

    def _look(self, queue: ConsumeQueue, queue_offset: int) -> None:
        unit = queue.unit(queue_offset)
        if unit is not None and unit.is_message:
            self.phy_offset = min(self.phy_offset, unit.phy_offset)


class RetentionService:
    """Runs retention every `cleanResourceInterval`."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        store: MessageStore,
        log: CommitLog,
        queues: ConsumeQueues,
        files: Files,
        offsets: ConsumerOffsetManager,
        live_groups: LiveGroups,
        delay_offsets: DelayOffsetManager,
        timers: TimerMessages | None,
        journal_phy_offset: Callable[[], int | None],
        clock_watch: ClockWatch,
        disk: DiskThreads,
        store_work: asyncio.Lock,
        now_ms: Callable[[], int],
    ) -> None:
        self._live_config = config
        self._store = store
        self._log = log
        self._queues = queues
        self._files = files
        self._offsets = offsets
        self._live_groups = live_groups
        self._delay_offsets = delay_offsets
        self._timers = timers
        self._journal_phy_offset = journal_phy_offset
        self._clock_watch = clock_watch
        self._disk = disk
        self._store_work = store_work
        self._now_ms = now_ms
        self._config = config.current
        self._retention = self._make()

    def _make(self) -> Retention:
        config, file_age_ms = retention_config(self._config), self._clock_watch.file_age_ms
        return Retention(self._store, self._files, config, self.unread_steps, file_age_ms)

    def start(self, tasks: TaskOwner) -> None:
        tasks.start(self._clean(), "clean-files")
        tasks.start(self._watch_groups(), "watch-groups")

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(self._live_config.current.clean_resource_interval / 1000)
            await self.run()

    async def run(self, *, manual: bool = False) -> RetentionRound | None:
        """One round; None when the disk does not let files go, which the next round tries again."""
        if self._config is not self._live_config.current:
            self._config = self._live_config.current
            self._retention = self._make()
        async with self._store_work:
            try:
                steps = self._retention.steps(self._now_ms(), manual=manual)
                return await self._disk.run_steps(steps)
            except (OSError, StorageError) as error:
                _log.error("old files cannot be deleted: %s", error)
                return None

    async def _watch_groups(self) -> None:
        while True:
            self._live_groups.look()
            await asyncio.sleep(_LOOK_AT_OFFSETS_S)

    def unread_steps(self) -> Steps[int | None]:
        """From which byte of the log on some live group has not read, or a message waits for its time, or for
        the decision of its atomic publish; None when there is no group."""
        next_offsets = self._next_offsets()
        if not next_offsets:
            return None
        search = UnreadSearch(self._log, self._queues, next_offsets)
        yield search.run
        waiting = waiting_phy_offset(self._queues, self._delay_offsets, self._timers)
        journal = self._journal_phy_offset()
        return min(one for one in (search.phy_offset, waiting, journal) if one is not None)

    def _next_offsets(self) -> dict[tuple[str, int], int]:
        """What the slowest live group reads next of each queue that has one."""
        slowest: dict[tuple[str, int], int] = {}
        for key, offsets in self._offsets.offset_table.items():
            topic, _, group = key.partition("@")
            if self._live_groups.is_live(topic, group):
                floors = self._offsets.floors.floors_of(key)
                for queue_id, committed in offsets.items():
                    place, queue_offset = (topic, queue_id), max(committed, floors.get(queue_id, 0))
                    slowest[place] = min(queue_offset, slowest.get(place, queue_offset))
        return slowest
