"""EntryPuts: puts the entries of a staged part into their queues, each marked with its number.

An entry is put as it was staged, with one more property, `__KOUROU_ATOMIC` = `<id>:<number>`, at the end.
With the compiled kernel a chunk of entries is one call. Without it, and for the rest of a group from a chunk
on that the kernel leaves to Python, Python does the same, with the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kourou.broker.atomic.journal_records import Staged
from kourou.protocol.atomic import ATOMIC_PROPERTY, StagedGroup
from kourou.protocol.batch import BatchEntry, split_batch
from kourou.protocol.layout import MIN_BATCH_ENTRY_BYTES, PROPERTY_SEPARATOR
from kourou.protocol.properties import property_start
from kourou.store.log.put_status import PutStatus

if TYPE_CHECKING:
    from kourou.broker.settings import KernelStatus
    from kourou.store.kernel import EncodedStaged
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues

_log = logging.getLogger(__name__)

# The records of a chunk lie in one file. About what a record has besides its entry: head, topic and mark.
_CHUNK_BYTES: Final = 128 * 1024
_MORE_BYTES: Final = 384
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()


class StagedRest:
    """The entries of a group that are not put yet: from byte `position` of the group on, or `entries`, once
    they are split."""

    __slots__ = ("born_host", "entries", "group", "mark", "position")

    def __init__(self, group: StagedGroup, mark: bytes, born_host: bytes) -> None:
        """`mark` is the property that each message gets, up to its number."""
        self.group = group
        self.mark = mark
        self.born_host = born_host
        self.position = 0
        self.entries: Sequence[BatchEntry] | None = None

    @property
    def size_bytes(self) -> int:
        """Of the entries, as they were staged."""
        return len(self.group.entries) - self.position

    def split(self) -> Sequence[BatchEntry]:
        """The entries."""
        if self.entries is None:
            self.entries = split_batch(self.group.entries[self.position :])
        return self.entries

    def skip(self, count: int) -> int:
        """Leave out up to `count` entries: how many."""
        entries = self.split()
        self.position += sum(map(_entry_bytes, entries[:count]))
        self.entries = entries[count:]
        return len(entries) - len(self.entries)


def rests_of(staged: Staged) -> list[StagedRest]:
    """The groups of a part."""
    mark = f"{property_start(ATOMIC_PROPERTY)}{staged.atomic_id}:".encode()
    return [StagedRest(group, mark, staged.born_host) for group in staged.groups]


class EntryPuts:
    """Puts for one broker."""

    def __init__(
        self, *, appender: LogAppender, queues: ConsumeQueues, kernel: KernelStatus, store_host: bytes
    ) -> None:
        self._appender = appender
        self._queues = queues
        self._kernel = kernel
        self._store_host = store_host

    def put(self, rest: StagedRest, number: int, done: Callable[[PutStatus], None]) -> int:
        """Leave a chunk of entries pending, the first with `number`: how many. PutRefusedError: none.
        `done` is called when they are stored, or are not."""
        group = rest.group
        queue = self._queues.get(group.topic, group.queue_id)
        encoded = self._encoded(rest, queue, number) if rest.entries is None else None
        if encoded is None:
            return self._put_in_python(rest, queue, number, done)
        rest.position, messages, records, hashed_keys, grown = encoded
        self._appender.put_run(messages, (records,), hashed_keys, grown, _status_only(done))
        return messages

    def _max_bytes(self) -> int:
        return min(_CHUNK_BYTES, self._appender.max_message_bytes)

    def _encoded(self, rest: StagedRest, queue: ConsumeQueue, number: int) -> EncodedStaged | None:
        """The records of a chunk; None: Python has to encode them."""
        kernel, appender, group = self._kernel.current.kernel, self._appender, rest.group
        if kernel is None:
            return None
        if queue.encoder is None:
            appender.prepare(queue)
        room = appender.run_room()
        if room is None:
            return None
        try:
            return kernel.encode_staged(
                group.entries,
                rest.position,
                (self._max_bytes(), _MORE_BYTES),
                rest.mark,
                number,
                queue,
                (group.born_timestamp, rest.born_host, group.sys_flag),
                self._store_host,
                *room,
            )
        except Exception:
            _log.exception("the compiled kernel failed; Python code replaces it until the next start")
            self._kernel.fail("an atomic publish")
            return None

    def _put_in_python(
        self, rest: StagedRest, queue: ConsumeQueue, number: int, done: Callable[[PutStatus], None]
    ) -> int:
        entries, max_bytes = rest.split(), self._max_bytes()
        count = size_bytes = 0
        for entry in entries:
            size_bytes += _entry_bytes(entry) + _MORE_BYTES
            if count and size_bytes > max_bytes:
                break
            count += 1
        self._appender.put_many(
            queue,
            _marked(entries[:count], rest.mark, number),
            born_timestamp=rest.group.born_timestamp,
            born_host=rest.born_host,
            sys_flag=rest.group.sys_flag,
            done=_status_only(done),
            wait=True,
        )
        return rest.skip(count)


def _entry_bytes(entry: BatchEntry) -> int:
    return MIN_BATCH_ENTRY_BYTES + len(entry.body) + len(entry.raw_properties)


def _marked(entries: Sequence[BatchEntry], mark: bytes, number: int) -> list[BatchEntry]:
    """The entries as they are published."""
    marked = []
    for at, (flag, body, properties) in enumerate(entries, number):
        if properties and not properties.endswith(_SEPARATOR):
            properties += _SEPARATOR
        marked.append(BatchEntry(flag, body, b"%b%b%d%b" % (properties, mark, at, _SEPARATOR)))
    return marked


def _status_only(done: Callable[[PutStatus], None]) -> Callable[..., None]:
    return lambda status, *_: done(status)
