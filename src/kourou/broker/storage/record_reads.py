"""RecordReads: single records and units of queues for one admin request, without the loop waiting.

What is in memory is answered at once. What is not is noted, and `when_read` has a disk thread
fetch all of it before the work is done again from the start: the work must not change anything.
A bisection over units (first_where) still reads those on the loop: a store's queues belong to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kourou.errors import ProtocolError
from kourou.protocol.layout import MESSAGE_MAGIC_CODES, RECORD, Buffer
from kourou.protocol.record_fields import record_mark, record_phy_offset, record_store_timestamp
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_file import LogFile
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT, CqUnit
from kourou.store.read.message_lookup import decode_sound_record
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.tasks import TaskOwner

T = TypeVar("T")

_HEAD_BYTES: Final = RECORD.size
_TOGETHER_RECORDS: Final = 8
_TOGETHER_TIMES: Final = 4
"""Records are read together if the bytes from the first to the last are at most so many times theirs."""


class NotInMemoryError(Exception):
    """What the work needs next has to come from disk first."""


class RecordReads:
    """Reads of one request. Owned by the loop's thread, but for `load`."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._heads: dict[int, bytes] = {}
        self._records: dict[int, bytes] = {}
        self._units: dict[tuple[ConsumeQueue, int], bytes] = {}
        self._wanted_heads: dict[int, LogFile] = {}
        self._wanted_records: dict[int, LogFile] = {}
        self._wanted_units: list[tuple[ConsumeQueue, int]] = []

    @property
    def is_complete(self) -> bool:
        """True when nothing was asked for that is still on disk."""
        return not (self._wanted_heads or self._wanted_records or self._wanted_units)

    # -- asking ----------------------------------------------------------------------------------

    def record(self, phy_offset: int) -> bytes | None:
        """The stored bytes of the whole record at `phy_offset`; None when there is none, or it is
        damaged, or (then this is not complete) it has to come from disk."""
        raw = self._records.get(phy_offset)
        if raw is None:
            raw = self._record_nowait(phy_offset)
        return raw if raw and _is_sound(raw, phy_offset) else None

    def block(self, phy_offset: int, size_bytes: int) -> bytes | None:
        """For a search: up to so many bytes of the log, of one file; empty at the end of the log, None if
        they are not in memory."""
        log_file = self._log.file_at(phy_offset)
        end = self._log.max_phy_offset
        if log_file is None or phy_offset >= end:
            return b"" if phy_offset >= end else None
        end = min(end, log_file.end_phy_offset, phy_offset + size_bytes)
        raw = self._log.read_nowait(phy_offset, end - phy_offset)
        return None if raw is None else bytes(raw)

    def store_time(self, phy_offset: int) -> int:
        """When the record at `phy_offset` was stored; -1 when it is gone or has to come from disk."""
        head = self._heads.get(phy_offset)
        if head is None:
            head = self._head_nowait(phy_offset, self._wanted_heads)
        return -1 if not head else record_store_timestamp(head)

    def store_time_or_stop(self, phy_offset: int) -> int:
        """The same for a search, which cannot go on without the answer: NotInMemoryError."""
        store_time = self.store_time(phy_offset)
        if phy_offset in self._wanted_heads:
            raise NotInMemoryError
        return store_time

    def message_time(self, queue: ConsumeQueue | None, queue_offset: int) -> int:
        """When a message was stored; -1 when there is none at this queue_offset."""
        unit = None if queue is None else self.unit(queue, queue_offset)
        return self.store_time(unit.phy_offset) if unit is not None and unit.is_message else -1

    def unit(self, queue: ConsumeQueue, queue_offset: int) -> CqUnit | None:
        """One unit of a queue; None when there is none, or it has to come from disk."""
        raw = self._units.get((queue, queue_offset))
        if raw is None:
            raw = queue.read_units_nowait(queue_offset, 1)
        if raw is None:
            self._wanted_units.append((queue, queue_offset))
        return CqUnit(*UNIT.unpack(raw)) if raw else None

    # -- from memory -----------------------------------------------------------------------------

    def _record_nowait(self, phy_offset: int) -> bytes | None:
        head = self._head_nowait(phy_offset, self._wanted_records)
        if not head:
            return None
        raw = self._log.read_nowait(phy_offset, record_mark(head)[0])
        if raw is None:
            self._note(phy_offset, self._wanted_records)
        return None if raw is None else bytes(raw)

    def _head_nowait(self, phy_offset: int, wanted: dict[int, LogFile]) -> bytes | None:
        """The first bytes of a record; empty where there is none, None when they are on disk."""
        if not _has_room(self._log, phy_offset):
            return b""
        head = self._log.read_nowait(phy_offset, _HEAD_BYTES)
        if head is None:
            self._note(phy_offset, wanted)
            return None
        return _checked_head(head, phy_offset)

    def _note(self, phy_offset: int, wanted: dict[int, LogFile]) -> None:
        log_file = self._log.file_at(phy_offset)
        if log_file is not None and phy_offset not in wanted:
            log_file.pin()
            wanted[phy_offset] = log_file

    # -- from disk -------------------------------------------------------------------------------

    def load(self) -> None:
        """Fetch what is wanted. In a disk thread; the loop leaves this object alone meanwhile."""
        for phy_offset, log_file in self._wanted_heads.items():
            self._heads[phy_offset] = _read_head(log_file, phy_offset)
        for phy_offset, log_file in self._wanted_records.items():
            self._records[phy_offset] = _read_record(log_file, phy_offset)
        for queue, queue_offset in self._wanted_units:
            self._units[queue, queue_offset] = queue.read_units(queue_offset, 1)

    def release(self) -> None:
        """Let go of the files that `load` read; in the loop's thread, when no thread uses them."""
        for log_file in (*self._wanted_heads.values(), *self._wanted_records.values()):
            log_file.unpin()
        self._wanted_heads.clear()
        self._wanted_records.clear()
        self._wanted_units.clear()


class RecordReader:
    """Reads records for requests of one broker, from memory at once, else in a disk thread."""

    def __init__(self, log: CommitLog, disk: DiskThreads, requests: TaskOwner) -> None:
        self._log = log
        self._disk = disk
        self._requests = requests

    def when_read(
        self, request: Request, work: Callable[[RecordReads], T], answer: Callable[[T], None]
    ) -> None:
        """Do `work`, at once if all it reads is in memory, else when it was read; then `answer`."""
        reads = RecordReads(self._log)
        result = _attempt(reads, work)
        if result is not None and reads.is_complete:
            answer(result[0])
        else:
            run_request(self._requests, request, self._answer_later(reads, work, answer))

    async def read(self, work: Callable[[RecordReads], T]) -> T:
        """What `work` comes to, when all it reads was read."""
        reads = RecordReads(self._log)
        result = _attempt(reads, work)
        if result is not None and reads.is_complete:
            return result[0]
        return await self._load_and_do(reads, work)

    async def _answer_later(
        self, reads: RecordReads, work: Callable[[RecordReads], T], answer: Callable[[T], None]
    ) -> None:
        answer(await self._load_and_do(reads, work))

    async def _load_and_do(self, reads: RecordReads, work: Callable[[RecordReads], T]) -> T:
        while True:
            loading = asyncio.ensure_future(self._disk.run(reads.load))
            # Also when this request is given up: the thread still reads from the files until then.
            loading.add_done_callback(lambda _: reads.release())
            await asyncio.shield(loading)
            result = _attempt(reads, work)
            if result is not None and reads.is_complete:
                return result[0]


def _attempt(reads: RecordReads, work: Callable[[RecordReads], T]) -> tuple[T] | None:
    """What `work` comes to; it counts only if `reads` are complete."""
    try:
        return (work(reads),)
    except NotInMemoryError:
        return None
    except BaseException:
        reads.release()
        raise


def _has_room(log: CommitLog, phy_offset: int) -> bool:
    """Whether a record could begin at `phy_offset`."""
    log_file = log.file_at(phy_offset) if 0 <= phy_offset < log.max_phy_offset else None
    return log_file is not None and phy_offset + _HEAD_BYTES <= log_file.end_phy_offset


def _checked_head(head: Buffer, phy_offset: int) -> bytes:
    """The head if it is that of a record which says that it lies here, else nothing."""
    is_record = record_mark(head)[1] in MESSAGE_MAGIC_CODES and record_mark(head)[0] >= _HEAD_BYTES
    return bytes(head) if is_record and record_phy_offset(head) == phy_offset else b""


def _read_head(log_file: LogFile, phy_offset: int) -> bytes:
    head = log_file.file.pread(_HEAD_BYTES, phy_offset - log_file.start_phy_offset)
    return _checked_head(head, phy_offset) if len(head) == _HEAD_BYTES else b""


def _read_record(log_file: LogFile, phy_offset: int) -> bytes:
    head = _read_head(log_file, phy_offset)
    if not head:
        return b""
    size = record_mark(head)[0]
    if phy_offset + size > log_file.end_phy_offset:
        return b""
    return log_file.file.pread(size, phy_offset - log_file.start_phy_offset)


def _is_sound(raw: bytes, phy_offset: int) -> bool:
    try:
        decode_sound_record(raw, phy_offset)
    except ProtocolError:
        return False
    return True


async def read_records_at(
    log: CommitLog, reader: RecordReader, units: Sequence[CqUnit]
) -> list[Buffer | None]:
    """The records of `units`; None where one is gone. What is not in memory a disk thread reads."""
    records = _records_together(log, units) or [
        log.read_nowait(unit.phy_offset, unit.size) if unit.is_message else None for unit in units
    ]
    if None not in records:
        return records
    return await reader.read(
        lambda reads: [reads.record(unit.phy_offset) if unit.is_message else None for unit in units],
    )


def _records_together(log: CommitLog, units: Sequence[CqUnit]) -> list[Buffer | None] | None:
    """The same in one read; None if there is too much between them, or not all is in memory."""
    if len(units) < _TOGETHER_RECORDS or not all([unit.is_message for unit in units]):
        return None
    start = min([unit.phy_offset for unit in units])
    end = max([unit.phy_offset + unit.size for unit in units])
    if end - start > _TOGETHER_TIMES * sum([unit.size for unit in units]):
        return None
    raw = log.read_nowait(start, end - start)
    if raw is None:
        return None
    view = memoryview(raw)
    return [view[unit.phy_offset - start : unit.phy_offset - start + unit.size] for unit in units]
