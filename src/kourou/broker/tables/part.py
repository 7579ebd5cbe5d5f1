"""Topics, subscription groups and consumer offsets as a part of a broker: loaded, written, administered.

ConfigWriter carries the tables to their files, without the loop waiting: topics and groups as soon as they
change, consumer offsets and what depends on them every `flushConsumerOffsetInterval`, all of them when the
broker stops.
Queues with messages but without an entry in `topics.json` get one again: the table is written right after it
changes, not before the first message is acknowledged, and a file can be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from kourou.broker.part import BrokerPart, Handler, processors_of
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.tables.name_checks import MAX_QUEUE_NUMS
from kourou.broker.tables.topics import TopicConfigManager
from kourou.protocol.codes import PermName
from kourou.protocol.names import JOURNAL_TOPICS
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.config_table import ConfigTable
    from kourou.store.log.log_watch import LogWatch

_LOOK_S: Final = 0.05
# A disk that just failed is left alone for a moment.
_AFTER_FAILURE_S: Final = 2.0
_log = logging.getLogger(__name__)
_READ_WRITE = int(PermName.READ | PermName.WRITE)


class ConfigWriter:
    """Writes the tables of one broker: `metadata` soon after a change, `progress` at intervals."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log_watch: LogWatch,
        metadata: Sequence[ConfigTable],
        progress: Sequence[ConfigTable],
        disk: DiskThreads,
        store_work: asyncio.Lock,
    ) -> None:
        self._config = config
        self._log_watch = log_watch
        self._metadata = metadata
        self._progress = progress
        self._disk = disk
        self._store_work = store_work

    def start(self, tasks: TaskOwner) -> None:
        """Begin to write what changes."""
        tasks.start(self._write(self._metadata, lambda: _LOOK_S, nullcontext()), "write-config")
        # Not concurrently with queue deletion, which rewrites the offsets.
        progress = self._write(self._progress, self._offset_interval_s, self._store_work)
        tasks.start(progress, "write-offsets")

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
        for table in (*self._metadata, *self._progress):
            try:
                if table.is_dirty:
                    table.persist()
            except OSError as error:
                _log.error("%s cannot be written: %s", table.path, error.strerror or error)


def adopt_orphans(queues: ConsumeQueues, topics: TopicConfigManager) -> list[str]:
    """Make the topics of queues that have none; returns their names."""
    orphans = [
        topic for topic in queues.topics() if topic not in topics.table and topic not in JOURNAL_TOPICS
    ]
    for topic in orphans:
        # Not more than any topic may have, whatever number a folder in the store has for a name.
        queue_nums = min(max(queues.queue_ids(topic), default=0) + 1, MAX_QUEUE_NUMS)
        topics.create_in_send_back(topic, queue_nums, _READ_WRITE)
        _log.warning("topic %s has messages and no configuration; it gets %d queues", topic, queue_nums)
    return orphans


class Loadable(Protocol):
    """A table with a file."""

    def load(self) -> None:
        """Load the table from its file."""
        ...


class TablesPart(BrokerPart):
    """The tables of one broker. `tables` are loaded at the start, those of `writer` written."""

    def __init__(
        self,
        *,
        queues: ConsumeQueues,
        disk: DiskThreads,
        topics: TopicConfigManager,
        tables: Sequence[Loadable],
        writer: ConfigWriter,
        handlers: Sequence[Handler],
    ) -> None:
        self._queues = queues
        self._disk = disk
        self._topics = topics
        self._tables = tables
        self._writer = writer
        self._handlers = handlers

    def processors(self) -> Mapping[int, Processor]:
        return processors_of(self._handlers)

    def recover(self) -> None:
        for table in self._tables:
            table.load()
        adopt_orphans(self._queues, self._topics)

    async def start(self, tasks: TaskOwner) -> None:
        self._writer.start(tasks)

    async def stop(self, timeout_ms: int) -> None:
        await self._disk.run(self._writer.write_all)
