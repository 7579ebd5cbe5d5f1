"""Topics, subscription groups and consumer offsets as a part of a broker: loaded, written, administered.

Queues with messages but without an entry in `topics.json` get one again: the table is written right after it
changes, not before the first message is acknowledged, and a file can be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from kourou.broker.part import BrokerPart, Handler, processors_of
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.tables.config_writer import ConfigWriter
from kourou.broker.tables.name_checks import MAX_QUEUE_NUMS
from kourou.broker.tables.topics import TopicConfigManager
from kourou.protocol.codes import PermName
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_READ_WRITE = int(PermName.READ | PermName.WRITE)


def adopt_orphans(queues: ConsumeQueues, topics: TopicConfigManager) -> list[str]:
    """Make the topics of queues that have none; returns their names."""
    orphans = [topic for topic in queues.topics() if topic not in topics.table]
    for topic in orphans:
        # Not more than any topic may have, whatever number a folder in the store has for a name.
        queue_nums = min(max(queues.queue_ids(topic), default=0) + 1, MAX_QUEUE_NUMS)
        topics.create_in_send_back(topic, queue_nums, _READ_WRITE)
        _log.warning("topic %s has messages and no configuration; it gets %d queues", topic, queue_nums)
    return orphans


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
