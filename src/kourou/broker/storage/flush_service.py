"""FlushService: when a broker's store is made durable.

The log: on request of the commit cycle (SYNC_FLUSH), else every `flushIntervalCommitLog`. Queues and
index, which can be rebuilt, follow in rounds. All waiting for the disk is done in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.errors import StorageError
from kourou.store.flusher import Flusher

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_watch import LogWatch
    from kourou.store.message_store import MessageStore
    from kourou.transport.cycles import Cycles
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_LOOK_FOR_LATE_S: Final = 0.1
LOOK_AT_LOG_S: Final = 1.0
"""How often the names of log files are compared with the open files. What is acknowledged in between may be
lost if the files were moved away; one that was removed or cut short is noticed by each sync, too."""


class FlushService:
    """Flushes one store until stopped."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        store: MessageStore,
        log: CommitLog,
        log_watch: LogWatch,
        cycles: Cycles,
        commit_cycle: CommitCycle,
        disk: DiskThreads,
        tasks: TaskOwner,
        store_work: asyncio.Lock,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._log = log
        self._log_watch = log_watch
        self._cycles = cycles
        self._commit_cycle = commit_cycle
        self._disk = disk
        self._tasks = tasks
        self._store_work = store_work
        self._monotonic_ms = monotonic_ms
        self._loop = asyncio.get_running_loop()
        self._flusher = Flusher(store, self._post, self._flushed)
        commit_cycle.attach(self._flusher)

    def start(self) -> None:
        self._tasks.start(self._flush_log(), "flush-log")
        self._tasks.start(self._flush_derived(), "flush-queues")
        self._tasks.start(self._tell_the_late(), "flush-timeouts")
        self._tasks.start(self._watch_log(), "watch-log")

    def stop(self) -> None:
        """End the flusher's thread; what is not durable yet is the store's to flush when it closes."""
        self._flusher.stop()

    def _post(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._run, work)

    def _run(self, work: Callable[[], None]) -> None:
        # What fails here has left senders without an answer: the broker must not go on as if nothing were.
        try:
            work()
        except Exception as error:
            self._tasks.fail(error)

    def _flushed(self, phy_offset: int) -> None:
        self._cycles.open()
        self._commit_cycle.flushed(phy_offset)

    async def _flush_log(self) -> None:
        while True:
            await asyncio.sleep(self._config.current.flush_interval_commit_log / 1000)
            if self._log.max_phy_offset > self._log.flushed_phy_offset:
                self._flusher.request_nowait()

    async def _tell_the_late(self) -> None:
        commit_cycle = self._commit_cycle
        while True:
            await asyncio.sleep(_LOOK_FOR_LATE_S)
            if commit_cycle.is_waiting:
                self._cycles.open()
                commit_cycle.expire(self._monotonic_ms())

    async def _watch_log(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_LOG_S)
            await self.look_at_log()

    async def look_at_log(self) -> None:
        """Compare names and open files once. If something is lost, senders that wait for a sync are answered:
        none will come."""
        await self._disk.run_steps(self._log_watch.look_steps())
        if self._store.is_fenced:
            self._flushed(self._log.flushed_phy_offset)

    async def _flush_derived(self) -> None:
        loop = asyncio.get_running_loop()
        last_thorough = loop.time()
        while True:
            config = self._config.current
            await asyncio.sleep(config.flush_interval_consume_queue / 1000)
            is_due = loop.time() - last_thorough >= config.flush_consume_queue_thorough_interval / 1000
            if is_due:
                last_thorough = loop.time()
            await self.flush_derived(thorough=is_due)

    async def flush_derived(self, *, thorough: bool) -> None:
        """One round over queues and index. A failure of the disk is reported; the next round tries again."""
        async with self._store_work:
            try:
                steps = self._store.derived_steps(thorough=thorough)
                await self._disk.run_steps(steps)
            except (OSError, StorageError) as error:
                _log.error("queues and index cannot be written, they stay in memory: %s", error)


async def flush_all(store: MessageStore, disk: DiskThreads) -> None:
    """Make log, queues and index durable, the waiting in threads: whatever takes queues away makes sure
    of that on the loop, and has little left to do then. To be called with `store_work` held."""
    await disk.run_steps(store.flush_steps())
    await disk.run_steps(store.derived_steps(thorough=True))
