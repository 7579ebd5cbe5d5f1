"""AtomicPublisher: puts the messages of committed parts into their queues, numbered, each once.

    record C, the messages, record F

in one commit cycle if they are few, else in several, one after the other. After a crash in between, the
messages that are in the log are counted (journal.py), and the publish goes on behind them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kourou.broker.atomic.atomic_table import Participation
from kourou.broker.atomic.journal import Journal
from kourou.broker.atomic.journal_records import Committed, Finished, JournalRecord
from kourou.broker.atomic.staged_entries import EntryPuts, StagedRest, rests_of
from kourou.errors import ProtocolError, StorageError
from kourou.protocol.codes import PermName
from kourou.store.log.put_status import PutStatus
from kourou.wording import counted

if TYPE_CHECKING:
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S: Final = 1.0
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
# Put in one commit cycle, at least, as bytes that were staged.
_CYCLE_BYTES: Final = 512 * 1024


class AtomicPublisher:
    """Publishes for one broker."""

    def __init__(
        self,
        *,
        journal: Journal,
        entries: EntryPuts,
        cycles: Cycles,
        topics: TopicConfigManager,
        step: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._entries = entries
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
        while not status.is_durable:
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
        messages = _Messages(skipped)
        position = 0
        for number in numbers:
            part = joined.parts.get(number)
            if part is None:
                continue
            if position + part.messages > skipped:
                rests = rests_of(await self._journal.read_part(atomic_id, number))
                messages.add(rests, skip=max(0, skipped - position))
                while messages.size_bytes >= _CYCLE_BYTES:
                    await self._put(joined, first, messages, None, incomplete)
                    first = None
            position += part.messages
        status = await self._put(joined, first, messages, finished, incomplete)
        await self.finish(finished, status)

    async def _put(
        self,
        joined: Participation,
        first: JournalRecord | None,
        messages: _Messages,
        last: JournalRecord | None,
        incomplete: Callable[[str], None],
    ) -> PutStatus:
        """Put messages of one commit cycle, and wait until they are stored; the status of the last put. With
        `last` all messages that are left.

        StorageError: the cycle failed, and nothing of it is stored; or a put was refused, and those before it
        are stored.
        """
        waits, refused = _Waits(), None
        begin, end_bytes = messages.number, max(0, messages.size_bytes - _CYCLE_BYTES)
        try:
            if first is not None:
                waits.add(partial(self._journal.put, first))
            while messages.rests and (last is not None or messages.size_bytes > end_bytes):
                self._put_chunk(messages, waits, incomplete)
            if last is not None:
                waits.add(partial(self._journal.put, last))
        except (StorageError, ProtocolError) as error:
            refused = error
        status = await waits.wait()
        if joined.commit is not None:
            joined.commit.published += messages.number - begin
        if refused is not None:
            raise refused
        self._step("publishing" if last is None else "finished")
        return status

    def _put_chunk(self, messages: _Messages, waits: _Waits, incomplete: Callable[[str], None]) -> None:
        rest = messages.rests[0]
        topic, before_bytes = rest.group.topic, rest.size_bytes
        if self._topics.get(topic) is None:
            incomplete(f"topic {topic} was deleted")
            messages.number += rest.skip(len(rest.split()))
        else:
            self._cycles.open()
            messages.number += waits.add(partial(self._entries.put, rest, messages.number))
        messages.size_bytes -= before_bytes - rest.size_bytes
        if not rest.size_bytes:
            messages.rests.popleft()


class _Messages:
    """What is read and not put yet; `number` is that of the next message."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rests: deque[StagedRest] = deque()
        self.size_bytes = 0

    def add(self, rests: Sequence[StagedRest], *, skip: int) -> None:
        """Groups of the next part, without the first `skip` messages."""
        for rest in rests:
            if skip:
                skip -= rest.skip(skip)
            if rest.size_bytes:
                self.rests.append(rest)
                self.size_bytes += rest.size_bytes


class _Waits:
    """The puts of one commit cycle that are waited for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._puts: list[asyncio.Future[PutStatus]] = []

    def add(self, put: Callable[[Callable[[PutStatus], None]], T]) -> T:
        """Put something, with the `done` that it is called with. What `put` raises, and then there is nothing
        to wait for."""
        stored: asyncio.Future[PutStatus] = self._loop.create_future()
        result = put(partial(_resolve, stored))
        self._puts.append(stored)
        return result

    async def wait(self) -> PutStatus:
        """Wait for all: the status of the last put. StorageError: they are not stored."""
        status = PutStatus.PUT_OK
        for stored in self._puts:
            status = await stored
            if not status.is_stored:
                raise StorageError(status.remark or status.name)
        return status


def _resolve(stored: asyncio.Future[PutStatus], status: PutStatus) -> None:
    if not stored.done():
        stored.set_result(status)
