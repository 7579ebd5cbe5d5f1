"""Topics, subscription groups and consumer offsets as a part of a broker: loaded, written, administered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kourou.broker.part import BrokerPart, Handler, processors_of
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.tables.config_writer import ConfigWriter
from kourou.broker.tables.orphan_queues import adopt_orphans
from kourou.broker.tables.topics import TopicConfigManager
from kourou.store.message_store import MessageStore
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner


class Loadable(Protocol):
    """A table with a file."""

    def load(self) -> None:
        """Take over the file."""
        ...


class TablesPart(BrokerPart):
    """The tables of one broker. `tables` are loaded at the start, those of `writer` written."""

    def __init__(
        self,
        *,
        store: MessageStore,
        disk: DiskThreads,
        topics: TopicConfigManager,
        tables: Sequence[Loadable],
        writer: ConfigWriter,
        handlers: Sequence[Handler],
    ) -> None:
        self._store = store
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
        adopt_orphans(self._store.queues, self._topics)

    async def start(self, tasks: TaskOwner) -> None:
        self._writer.start(tasks)

    async def stop(self, timeout_ms: int) -> None:
        await self._disk.run(self._writer.write_all)
