"""ConfigWriter: carries the broker's tables to their files, without the loop waiting.

Topics and groups are written as soon as they change, consumer offsets every
`flushConsumerOffsetInterval`, all of them when the broker stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.config_table import ConfigTable
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.log.log_watch import LogWatch
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.05
# A disk that just failed is left alone for a moment.
_AFTER_FAILURE_S: Final = 2.0


class ConfigWriter:
    """Writes the tables of one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log_watch: LogWatch,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        disk: DiskThreads,
        store_work: asyncio.Lock,
    ) -> None:
        self._config = config
        self._log_watch = log_watch
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._disk = disk
        self._store_work = store_work

    def start(self, tasks: TaskOwner) -> None:
        """Begin to write what changes."""
        config = (self._topics, self._groups)
        tasks.start(self._write(config, lambda: _LOOK_S, nullcontext()), "write-config")
        # Not concurrently with queue deletion, which rewrites the offsets.
        offsets = self._write((self._offsets,), self._offset_interval_s, self._store_work)
        tasks.start(offsets, "write-offsets")

    def _offset_interval_s(self) -> float:
        return self._config.current.flush_consumer_offset_interval / 1000

    async def _write(
        self,
        tables: Sequence[ConfigTable],
        interval_s: Callable[[], float],
        lock: AbstractAsyncContextManager[None],
    ) -> None:
        while True:
            await asyncio.sleep(interval_s())
            for table in tables:
                # Of a displaced store the names may mean another one's files.
                if self._log_watch.is_displaced:
                    break
                if table.is_dirty and not await self._persist(table, lock):
                    await asyncio.sleep(_AFTER_FAILURE_S)

    async def _persist(self, table: ConfigTable, lock: AbstractAsyncContextManager[None]) -> bool:
        try:
            async with lock:
                await self._disk.run_steps(table.persist_steps())
        except OSError as error:
            _log.error("%s cannot be written: %s", table.path, error.strerror or error)
            return False
        return True

    def write_all(self) -> None:
        """Write what is not on disk, here and now: the broker stops."""
        if self._log_watch.is_displaced:
            return
        for table in (self._topics, self._groups, self._offsets):
            try:
                if table.is_dirty:
                    table.persist()
            except OSError as error:
                _log.error("%s cannot be written: %s", table.path, error.strerror or error)
