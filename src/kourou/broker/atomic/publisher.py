"""AtomicPublisher: puts the messages of committed parts into their queues, numbered, each once.

    record C, the messages, record F

in one commit cycle if they are few, else in several, one after the other. After a crash in between, the
messages that are in the log are counted (journal.py), and the publish goes on behind them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.atomic.atomic_table import Participation
from kourou.broker.atomic.journal import DURABLE, Journal
from kourou.broker.atomic.journal_records import Committed, Finished, JournalRecord, Staged
from kourou.errors import StorageError
from kourou.protocol.atomic import ATOMIC_PROPERTY, StagedGroup
from kourou.protocol.batch import BatchEntry, split_batch
from kourou.protocol.codes import PermName
from kourou.protocol.layout import PROPERTY_SEPARATOR
from kourou.protocol.properties import property_start
from kourou.store.log.put_status import PutStatus
from kourou.wording import counted

if TYPE_CHECKING:
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
# Put in one commit cycle, at least; messages of one queue are put in chunks.
_CYCLE_BYTES: Final = 512 * 1024
_CHUNK_BYTES: Final = 128 * 1024
# What a record has besides topic, body and properties, at most.
_RECORD_BYTES: Final = 160
_MARK: Final = property_start(ATOMIC_PROPERTY)
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()


class _Chunk(NamedTuple):
    """Messages that are put together, to one queue."""

    group: StagedGroup
    entries: list[BatchEntry]
    born_host: bytes
    size_bytes: int


class AtomicPublisher:
    """Publishes for one broker."""

    def __init__(
        self,
        *,
        journal: Journal,
        appender: LogAppender,
        queues: ConsumeQueues,
        cycles: Cycles,
        topics: TopicConfigManager,
        step: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._appender = appender
        self._queues = queues
        self._cycles = cycles
        self._topics = topics
        self._step = step

    def adopt_topics(self, topics: Mapping[str, int]) -> None:
        """Make topics that are not there, each with its highest queue_id. At the start: a slave that has
        become master may not have the last topics of its old master."""
        for topic, queue_id in topics.items():
            if self._topics.get(topic) is None:
                _log.warning("topic %s has staged messages and no configuration: it is created", topic)
                self._topics.create_in_send_back(topic, queue_id + 1, _READ_WRITE)

    async def finish(self, finished: Finished, status: PutStatus | None = None) -> None:
        """Wait until the record is durable: it is when one behind it is. `status`: it is stored already.
        StorageError: it is not."""
        if status is None:
            status = await self._journal.write(finished)
        while status not in DURABLE:
            if not status.is_stored:
                raise StorageError(status.remark or status.name)
            await asyncio.sleep(RETRY_S)
            status = await self._journal.write(finished)

    async def publish(
        self,
        joined: Participation,
        parts: Sequence[int],
        finished: Finished,
        incomplete: Callable[[str], None],
    ) -> None:
        """Publish `parts`, on return durably; `incomplete` is called with what is missing. StorageError: not
        all is published; call it again."""
        atomic_id = finished.atomic_id
        commit = joined.commit
        first = Committed(atomic_id, list(parts)) if commit is None else None
        numbers = parts if commit is None else commit.parts
        skipped = 0 if commit is None else commit.published
        missing = [number for number in numbers if number not in joined.parts]
        if missing:
            incomplete(f"{counted(len(missing), 'part')} not at this broker")
        position, gathered, gathered_bytes = 0, list[_Chunk](), 0
        for number in numbers:
            part = joined.parts.get(number)
            if part is None:
                continue
            if position + part.messages > skipped:
                staged = await self._journal.read_part(atomic_id, number)
                for chunk in _chunks(staged, position, skipped, self._max_chunk_bytes()):
                    if gathered_bytes >= _CYCLE_BYTES:
                        await self._put(joined, first, gathered, None, incomplete)
                        first, gathered, gathered_bytes = None, [], 0
                    gathered.append(chunk)
                    gathered_bytes += chunk.size_bytes
            position += part.messages
        status = await self._put(joined, first, gathered, finished, incomplete)
        await self.finish(finished, status)

    def _max_chunk_bytes(self) -> int:
        return min(_CHUNK_BYTES, self._appender.max_message_bytes)

    async def _put(
        self,
        joined: Participation,
        first: JournalRecord | None,
        chunks: Sequence[_Chunk],
        last: JournalRecord | None,
        incomplete: Callable[[str], None],
    ) -> PutStatus:
        """Put all of it in one commit cycle, and wait until it is stored; the status of the last put.

        StorageError: the cycle failed, and nothing of it is stored; or a put was refused, and those before it
        are stored.
        """
        waits: list[asyncio.Future[PutStatus]] = []
        published, refused = 0, None
        try:
            if first is not None:
                self._journal.put(first, _expect(waits))
            for chunk in chunks:
                if self._topics.get(chunk.group.topic) is None:
                    incomplete(f"topic {chunk.group.topic} was deleted")
                else:
                    self._put_chunk(chunk, _expect(waits))
                published += len(chunk.entries)
            if last is not None:
                self._journal.put(last, _expect(waits))
        except StorageError as error:
            waits.pop()
            refused = error
        status = PutStatus.PUT_OK
        for wait in waits:
            status = await wait
            if not status.is_stored:
                raise StorageError(status.remark or status.name)
        if joined.commit is not None:
            joined.commit.published += published
        if refused is not None:
            raise refused
        self._step("publishing" if last is None else "finished")
        return status

    def _put_chunk(self, chunk: _Chunk, done: Callable[..., None]) -> None:
        group = chunk.group
        self._cycles.open()
        self._appender.put_many(
            self._queues.get(group.topic, group.queue_id),
            chunk.entries,
            born_timestamp=group.born_timestamp,
            born_host=chunk.born_host,
            sys_flag=group.sys_flag,
            done=done,
            wait=True,
        )


def _expect(waits: list[asyncio.Future[PutStatus]]) -> Callable[..., None]:
    """A `done` for a put that is waited for."""
    future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    waits.append(future)

    def done(status: PutStatus, *_: object) -> None:
        if not future.done():
            future.set_result(status)

    return done


def _chunks(staged: Staged, position: int, skipped: int, max_bytes: int) -> Iterator[_Chunk]:
    """The messages of a part from number `skipped` on, each with its number; the first one is `position`."""
    for group in staged.groups:
        entries: list[BatchEntry] = []
        size_bytes = 0
        for flag, body, properties in split_batch(group.entries):
            number, position = position, position + 1
            if number < skipped:
                continue
            mark = f"{_MARK}{staged.atomic_id}:{number}{PROPERTY_SEPARATOR}".encode()
            is_closed = not properties or properties.endswith(_SEPARATOR)
            entry = BatchEntry(flag, body, properties + (mark if is_closed else _SEPARATOR + mark))
            entry_bytes = len(body) + len(entry.raw_properties) + _RECORD_BYTES + len(group.topic)
            if entries and size_bytes + entry_bytes > max_bytes:
                yield _Chunk(group, entries, staged.born_host, size_bytes)
                entries, size_bytes = [], 0
            entries.append(entry)
            size_bytes += entry_bytes
        if entries:
            yield _Chunk(group, entries, staged.born_host, size_bytes)
