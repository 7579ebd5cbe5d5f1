"""LogAppender: gives records their offsets, gathers them into batches, writes a batch at once.

What holds: on return of `put` the record is pending and nothing is stored; on return of
`write_cycle` the batch is in the page cache, or nothing of it is in the log.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias

from kourou.errors import ProtocolError, StorageError, StoreFencedError
from kourou.protocol.batch import BatchEntry, has_half
from kourou.protocol.layout import (
    BLANK,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Buffer,
)
from kourou.protocol.properties import (
    MessageConst,
    PropertyScanner,
    properties_from_bytes,
    property_start,
)
from kourou.protocol.record import RecordEncoder, encode_blank
from kourou.protocol.tags import tags_code as code_of_tags
from kourou.store.log.commit_log import CommitLog, CreateLogFileError
from kourou.store.log.dispatch_request import (
    close_properties,
    index_keys,
)
from kourou.store.log.put_batch import (
    GrownQueue,
    PutBatch,
    PutDone,
    PutFailedError,
    RunRoom,
)
from kourou.store.log.put_status import PutRefusedError, PutStatus, illegal_remark
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT, UNIT_BYTES
from kourou.wording import counted

_log = logging.getLogger(__name__)

PutManyDone: TypeAlias = Callable[[PutStatus, Sequence[int], int], None]
"""Called once with status, the phy_offset of each record, and the first queue_offset."""

# What a record may have beside its body: topic and properties.
_RECORD_EXTRA_BYTES: Final = 64 * 1024
# Names that a broker makes out of a group's may be longer than others; so long is a folder's name at most.
_MAX_GROUP_TOPIC_BYTES: Final = 255
_GROUP_TOPICS: Final = ("%RETRY%", "%DLQ%")
# Prepared or rolled back: the two share a bit. No ConsumeQueue has them.
_UNLISTED: Final = TRANSACTION_PREPARED & TRANSACTION_ROLLBACK
# A clock that is this far behind the last cycle was set back; less is a correction of a running clock.
_SET_BACK_MS: Final = 1_000
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

# How the properties begin that most messages of batches have: an id, and nothing else.
_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_ID_ONLY: Final = property_start(_UNIQ_KEY).encode()
_ID_ONLY_BYTES: Final = len(_ID_ONLY)

_pack_unit = UNIT.pack
_scan = PropertyScanner(MessageConst.PROPERTY_TAGS, MessageConst.PROPERTY_KEYS, _UNIQ_KEY).values


class LogAppender:
    """Owned by the thread that owns the CommitLog.

    `refusal` is why puts are refused, for the moment or (`is_fenced`) for good.
    """

    def __init__(
        self, log: CommitLog, *, max_message_bytes: int, store_host: bytes, now_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._file_bytes = log.file_bytes
        self._store_host = store_host
        self._batch: PutBatch | None = None
        self._half_written_end = 0
        self.cycle_ms = 0
        """The store time of what is put."""
        self._refusals: dict[str, StorageError] = {}
        self.max_message_bytes = max_message_bytes
        self.refusal: StorageError | None = None
        self.is_fenced = False
        # Asked before each write; a master of a fail-over set may write only while it reigns.
        self.may_write: Callable[[], bool] | None = None

    @property
    def max_message_bytes(self) -> int:
        """The largest body that is taken; may be changed at any time."""
        return self._max_message_bytes

    @max_message_bytes.setter
    def max_message_bytes(self, size_bytes: int) -> None:
        self._max_message_bytes = size_bytes
        self._largest = min(size_bytes + _RECORD_EXTRA_BYTES, self._file_bytes - BLANK.size)

    @property
    def pending_bytes(self) -> int:
        """What is gathered and not written: the bound of a commit cycle."""
        return self._batch.size_bytes if self._batch is not None else 0

    @property
    def end_phy_offset(self) -> int:
        """The end of what is written or pending: the next record goes there, or into the next file."""
        return self._batch.end_phy_offset if self._batch is not None else self._log.max_phy_offset

    # -- refusing --------------------------------------------------------------------------------

    def fence(self, reason: str, cure: str | None = None) -> None:
        """Take no more puts, ever: the disk cannot be trusted with them. The first reason counts.
        `cure`: what to do, if it is not to check the disk."""
        if not self.is_fenced:
            self.is_fenced = True
            self.refusal = StoreFencedError(reason) if cure is None else StoreFencedError(reason, cure)
            _log.critical("%s", self.refusal)

    def refuse(self, source: str, cause: StorageError | None) -> None:
        """Refuse puts until `source` says None; other sources' refusals, and a fence, stay."""
        if cause is None:
            self._refusals.pop(source, None)
        else:
            self._refusals[source] = cause
        if not self.is_fenced:
            self.refusal = next(iter(self._refusals.values()), None)

    # -- gathering -------------------------------------------------------------------------------

    def begin_cycle(self) -> int:
        """Fix the store timestamp of the commit cycle; return it. It follows small corrections of the clock
        only forward, and a clock that was set back at once. What is pending already belongs to the cycle
        before, which goes on: one batch, one timestamp."""
        if self._batch is None:
            now_ms, cycle_ms = self._now_ms(), self.cycle_ms
            if now_ms > cycle_ms or cycle_ms - now_ms >= _SET_BACK_MS:
                self.cycle_ms = now_ms
        return self.cycle_ms

    def put(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        tags_code: int,
        keys: Sequence[str],
        born_timestamp: int,
        born_host: bytes,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        prepared_phy_offset: int = 0,
        done: PutDone | None = None,
        wait: bool = True,
    ) -> int:
        """Leave a message pending: encoded, its offsets taken, nothing stored. How many bytes are
        pending then.

        `done` is called once, at the stage that flush mode and `wait` ask for. PutRefusedError:
        nothing was taken, `done` is not called. A hot path gives every argument by position.
        """
        if self.refusal is not None:
            raise _not_available(self.refusal)
        encoder: RecordEncoder = queue.encoder or self.prepare(queue)
        if properties[-1:] == b"\0":
            properties = close_properties(properties)
        size = encoder.fixed_bytes + len(body) + len(properties) + len(born_host)
        if size > self._largest or len(body) > self._max_message_bytes:
            raise self._too_large(body, properties, size)
        batch = self._batch or self._new_batch()
        phy_offset = batch.end_phy_offset
        if phy_offset + size > batch.last_phy_offset:
            phy_offset = self._next_file(batch, phy_offset)
        is_listed = not sys_flag & _UNLISTED
        queue_offset = queue.next_queue_offset if is_listed else 0
        try:
            batch.parts += encoder.parts(
                body,
                properties,
                queue_offset,
                phy_offset,
                self.cycle_ms,
                born_timestamp,
                born_host,
                sys_flag,
                flag,
                reconsume_times,
                prepared_phy_offset,
            )
        except ProtocolError as error:
            raise self._unfit(body, properties, size, error) from error
        batch.end_phy_offset = end_phy_offset = phy_offset + size
        batch.puts.append((done, phy_offset, queue_offset, wait))
        batch.message_count += 1
        if is_listed:
            units = batch.units.get(queue) or batch.grow(queue, queue_offset)
            units.append(_pack_unit(phy_offset, size, tags_code))
            queue.next_queue_offset = queue_offset + 1
        elif sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            keys = ()
        if keys:
            batch.indexed.append((queue.topic, keys, phy_offset, self.cycle_ms))
        return end_phy_offset - batch.start_phy_offset

    def put_many(
        self,
        queue: ConsumeQueue,
        entries: Sequence[BatchEntry],
        *,
        born_timestamp: int,
        born_host: bytes,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        done: PutManyDone | None = None,
        wait: bool = True,
    ) -> None:
        """Leave a client's batch pending: consecutive records, never split over two files.

        `done` is called once, as with `put`. PutRefusedError: nothing of it was taken.
        """
        if self.refusal is not None:
            raise _not_available(self.refusal)
        self._check_batch(entries, sys_flag)
        if any(entry.raw_properties[-1:] == b"\0" for entry in entries):
            entries = [
                entry._replace(raw_properties=close_properties(entry.raw_properties)) for entry in entries
            ]
        batch = self._batch or self._new_batch()
        mark, queue_offset = batch.mark(queue), queue.next_queue_offset
        try:
            encoder = self._reserve(batch, queue, entries, born_host)
        except PutRefusedError:
            batch.rewind(mark)
            raise
        try:
            parts, sizes = encoder.batch_parts(
                entries,
                queue_offset,
                batch.end_phy_offset,
                self.cycle_ms,
                born_timestamp,
                born_host,
                sys_flag,
                reconsume_times,
            )
        except ProtocolError as error:
            batch.rewind(mark)
            raise self._unfit_batch(encoder, entries, born_host, error) from error
        *phy_offsets, end_phy_offset = accumulate(sizes, initial=batch.end_phy_offset)

        all_done = None if done is None else partial(_tell_batch, done, phy_offsets, queue_offset)
        batch.parts += parts
        batch.end_phy_offset = end_phy_offset
        self._list_batch(batch, queue, entries, phy_offsets, sizes)
        count = len(entries)
        batch.puts.append((all_done, phy_offsets[-1], queue_offset + count - 1, wait))
        batch.message_count += count
        queue.next_queue_offset = queue_offset + count

    def prepare(self, queue: ConsumeQueue) -> RecordEncoder:
        """Give a queue what encodes its records. PutRefusedError: it can have none."""
        limit = _MAX_GROUP_TOPIC_BYTES if queue.topic.startswith(_GROUP_TOPICS) else MAX_TOPIC_BYTES_V1
        size = len(queue.topic.encode("utf-8", "replace"))
        if size > limit:
            raise PutRefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"the message is illegal: topic {queue.topic} has {size} bytes, {limit} are allowed",
            )
        queue.encoder = RecordEncoder(queue.topic, queue.queue_id, self._store_host)
        return queue.encoder

    def run_room(self) -> RunRoom | None:
        """Where a run may go that is put next; None while puts are refused."""
        if self.refusal is not None:
            return None
        batch = self._batch or self._new_batch()
        return (
            batch.end_phy_offset,
            batch.last_phy_offset,
            self.cycle_ms,
            self._max_message_bytes,
            self._largest,
        )

    def lone_run_room(self) -> RunRoom | None:
        """Where a run may go that `write_run` writes by itself; None while puts are refused or pending, or a
        write needs more than the write."""
        if (
            self._batch is not None
            or self.refusal is not None
            or self.may_write is not None
            or self._half_written_end
        ):
            return None
        start = self._log.max_phy_offset
        return start, self._last_phy_offset(start), self.cycle_ms, self._max_message_bytes, self._largest

    def put_run(
        self,
        messages: int,
        records: Sequence[Buffer],
        hashed_keys: bytes,
        grown: Sequence[GrownQueue],
        done: PutDone | None,
    ) -> None:
        """Leave pending so many messages that were encoded together for the room that there is, their records
        in parts. `hashed_keys` are what to index, rows of `HASHED_KEYS`; `done` is for all."""
        batch = self._batch or self._new_batch()
        batch.puts.append((done, batch.end_phy_offset, 0, True))
        batch.message_count += messages
        batch.parts += records
        batch.end_phy_offset += sum(map(len, records))
        batch.hashed_keys.append(hashed_keys)
        for queue, queue_offset, units in grown:
            if queue in batch.units:
                batch.units[queue].append(units)
            else:
                batch.first_offsets[queue] = queue_offset
                batch.units[queue] = [units]
            queue.next_queue_offset = queue_offset + len(units) // UNIT_BYTES

    def _list_batch(
        self,
        batch: PutBatch,
        queue: ConsumeQueue,
        entries: Sequence[BatchEntry],
        phy_offsets: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        """Units and index keys of records that are in the batch already."""
        units = batch.units.get(queue) or batch.grow(queue, queue.next_queue_offset)
        indexed, topic, now_ms = batch.indexed, queue.topic, self.cycle_ms
        for (_, _, properties), phy_offset, size in zip(entries, phy_offsets, sizes, strict=True):
            tags, keys = _tags_and_keys(properties)
            units.append(_pack_unit(phy_offset, size, code_of_tags(tags) if tags else 0))
            if keys:
                indexed.append((topic, keys, phy_offset, now_ms))

    def _check_batch(self, entries: Sequence[BatchEntry], sys_flag: int) -> None:
        body_bytes = sum([len(body) for _, body, _ in entries])
        if not entries:
            reason = "the message is illegal: the batch is empty"
        elif sys_flag & TRANSACTION_MASK or has_half(entries):
            reason = "the message is illegal: a batch takes no transactional messages, send them singly"
        elif body_bytes > self._max_message_bytes:
            reason = illegal_remark(self._max_message_bytes, f"a batch with bodies of {body_bytes} bytes")
        else:
            return
        raise PutRefusedError(PutStatus.MESSAGE_ILLEGAL, reason)

    def _reserve(
        self, batch: PutBatch, queue: ConsumeQueue, entries: Sequence[BatchEntry], born_host: bytes
    ) -> RecordEncoder:
        """Make room for a client's batch, so that its records lie in one file; PutRefusedError when
        it is too large for any. What encodes them."""
        encoder: RecordEncoder = queue.encoder or self.prepare(queue)
        size = len(entries) * (encoder.fixed_bytes + len(born_host))
        size += sum([len(body) + len(properties) for _, body, properties in entries])
        if size > self._largest:
            details = f"a batch with records of {size} bytes, CommitLog file {self._file_bytes} bytes"
            raise PutRefusedError(PutStatus.MESSAGE_ILLEGAL, illegal_remark(self._max_message_bytes, details))
        if batch.end_phy_offset + size > batch.last_phy_offset:
            self._next_file(batch, batch.end_phy_offset)
        return encoder

    def _new_batch(self) -> PutBatch:
        start = self._log.max_phy_offset
        self._batch = PutBatch(start, self._last_phy_offset(start), self.cycle_ms)
        return self._batch

    def _last_phy_offset(self, start: int) -> int:
        """Behind this no record may end that begins in the file of `start`."""
        # At the very end of a file, and in an empty log, there is no room: the next file takes it.
        return start + -start % self._file_bytes - BLANK.size

    def _next_file(self, batch: PutBatch, phy_offset: int) -> int:
        """Close the file with a blank record; the batch goes on in the next one, at the result."""
        left = -phy_offset % self._file_bytes
        if left:  # a file that ends just here, or none at all, needs no blank
            batch.parts.append(encode_blank(left))
        next_phy_offset = phy_offset + left
        batch.begin_file(next_phy_offset, next_phy_offset + self._file_bytes - BLANK.size)
        return next_phy_offset

    # -- writing ---------------------------------------------------------------------------------

    def write_cycle(self) -> PutBatch | None:
        """Write what is pending; None when nothing is.

        PutFailedError: offsets and the log's end are put back, what may have been written is
        zero again. If that fails too, the log is fenced: recovery could revive refused records. Unless
        there is no space: then it is tried again, before anything else is written.
        """
        batch, self._batch = self._batch, None
        if batch is None or not batch.puts:
            return None
        if self.is_fenced:
            batch.give_back()
            raise PutFailedError(batch, PutStatus.SERVICE_NOT_AVAILABLE, str(self.refusal))
        if self.may_write is not None and not self.may_write():
            batch.give_back()
            raise PutFailedError(batch, PutStatus.SERVICE_NOT_AVAILABLE, "this broker is not master any more")
        try:
            if self._half_written_end:
                self._undo()
            for start_phy_offset, parts in batch.writes:
                if parts:
                    self._log.write_parts(start_phy_offset, parts)
        except OSError as error:
            raise self._failed(batch, error) from error
        self._log.max_phy_offset = batch.end_phy_offset
        # They are written: a batch that waits for its sync need not keep them in memory.
        batch.writes, batch.parts = [], []
        return batch

    def write_run(
        self, messages: int, records: Sequence[Buffer], hashed_keys: bytes, grown: Sequence[GrownQueue]
    ) -> int:
        """Write a run that was encoded for `lone_run_room`; returns its end. It is never pending: on return
        it is in the page cache. PutFailedError as `write_cycle`; the batch has no senders."""
        log = self._log
        start = log.max_phy_offset
        try:
            log.write_parts(start, records)
        except OSError as error:
            self.put_run(messages, records, hashed_keys, grown, None)
            batch, self._batch = self._batch, None
            assert batch is not None
            raise self._failed(batch, error) from error
        for queue, queue_offset, units in grown:
            queue.next_queue_offset = queue_offset + len(units) // UNIT_BYTES
        log.max_phy_offset = end = start + sum(map(len, records))
        return end

    @property
    def is_undone(self) -> bool:
        """Whether nothing of a failed write is left behind the log's end."""
        return not self._half_written_end

    def _undo(self) -> None:
        """Zero what failed writes may have left behind the log's end, or raise OSError."""
        self._log.undo(self._log.max_phy_offset, self._half_written_end)
        self._half_written_end = 0

    def drop_pending(self) -> None:
        """Drop what is pending, like a process that dies: without a response."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.give_back()

    def _failed(self, batch: PutBatch, error: OSError) -> PutFailedError:
        batch.give_back()
        status = PutStatus.SERVICE_NOT_AVAILABLE
        reason = f"the CommitLog cannot be written: {error.strerror or error}"
        if error.errno not in _NO_SPACE:
            if isinstance(error, CreateLogFileError) and error.errno != errno.EIO:
                status = PutStatus.CREATE_MAPPED_FILE_FAILED
                reason = f"{status.remark} ({error.filename}: {error.strerror or error})"
            else:
                self.fence(reason)
        self._half_written_end = max(self._half_written_end, batch.end_phy_offset)
        try:
            self._undo()
        except OSError as undo_error:
            if undo_error.errno not in _NO_SPACE:
                self.fence(f"{reason}; and what is half written cannot be undone: {undo_error.strerror}")
        _log.error("%s failed: %s", counted(batch.message_count, "put"), reason)
        return PutFailedError(batch, status, reason)

    # -- reasons ---------------------------------------------------------------------------------

    def _too_large(self, body: bytes, properties: bytes, size: int) -> PutRefusedError:
        status = PutStatus.MESSAGE_ILLEGAL
        if len(properties) > MAX_PROPERTIES_BYTES:
            status = PutStatus.PROPERTIES_SIZE_EXCEEDED
        details = (
            f"body {len(body)} bytes, properties {len(properties)} bytes, record {size} bytes, "
            f"CommitLog file {self._file_bytes} bytes"
        )
        return PutRefusedError(status, illegal_remark(self._max_message_bytes, details))

    def _unfit(self, body: bytes, properties: bytes, size: int, error: ProtocolError) -> PutRefusedError:
        if len(properties) > MAX_PROPERTIES_BYTES:
            return self._too_large(body, properties, size)
        return PutRefusedError(PutStatus.MESSAGE_ILLEGAL, f"the message is illegal: {error}")

    def _unfit_batch(
        self, encoder: RecordEncoder, entries: Sequence[BatchEntry], born_host: bytes, error: ProtocolError
    ) -> PutRefusedError:
        for _, body, properties in entries:
            if len(properties) > MAX_PROPERTIES_BYTES:
                return self._too_large(body, properties, encoder.size(body, properties, born_host))
        return PutRefusedError(PutStatus.MESSAGE_ILLEGAL, f"the message is illegal: {error}")


def _tell_batch(
    done: PutManyDone, phy_offsets: Sequence[int], queue_offset: int, status: PutStatus, _: int, __: int
) -> None:
    done(status, phy_offsets, queue_offset)


def _tags_and_keys(properties: bytes) -> tuple[str | None, tuple[str, ...]]:
    """The tags of a message, and the words that it is indexed under."""
    if properties.startswith(_ID_ONLY) and _ID_ONLY_BYTES < properties.find(2) == len(properties) - 1:
        return None, (properties_from_bytes(properties[_ID_ONLY_BYTES:-1]),)
    tags, keys, uniq_key = _scan(properties_from_bytes(properties))
    return tags, index_keys(uniq_key, keys)


def _not_available(cause: StorageError) -> PutRefusedError:
    status = PutStatus.SERVICE_NOT_AVAILABLE
    refused = PutRefusedError(status, f"{status.remark} ({cause})")
    refused.__cause__ = cause
    return refused
