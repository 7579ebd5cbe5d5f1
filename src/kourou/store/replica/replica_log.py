"""ReplicaLog: the log of a slave, whose bytes come from its master.

Bytes are appended at their own offset, whatever records they are; records that are complete are dispatched to
queues and index. The last record may be incomplete at any time: it is not dispatched, does not count as
durable, and is cut off by a recovery, so that a slave goes on behind its last whole record.
"""

from __future__ import annotations

from typing import Final

from kourou.errors import DamageError, ProtocolError, StorageError
from kourou.protocol.ha import TAIL_BYTES, LogTail
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODES,
    MIN_RECORD_BYTES,
    Buffer,
)
from kourou.protocol.record_fields import record_mark
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.dispatcher import Dispatcher
from kourou.store.kernel import Kernel
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.dispatch_request import Blank, read_dispatch_request
from kourou.store.log.log_snapshot import MAX_RECORD_BYTES
from kourou.store.log.record_columns import Stop, read_piece
from kourou.store.producers.log_notes import note_records
from kourou.store.producers.producer_log import ProducerLog
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.recovery.columns_dispatcher import ColumnsDispatcher

_PIECE_BYTES: Final = 4 * 1024 * 1024
# As many take as long one by one as in arrays.
_FEW_RECORDS: Final = 24
# The tags code of its units is a time, which depends on the delay levels.
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()


class ReplicaError(StorageError):
    """What a master sends cannot be appended: it does not continue this log, or is not a log."""


class ReplicaLog:
    """Appends to one log, in the thread that owns it. Nothing else may append meanwhile."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        columns: ColumnsDispatcher,
        producers: ProducerLog,
        delay_levels: tuple[int, ...],
        kernel: Kernel | None = None,
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._columns = columns
        self._producers = producers
        self._delay_levels = delay_levels
        self._kernel = kernel
        # What the kernel leaves to Python is usually one record.
        self._piece_bytes = _PIECE_BYTES if kernel is None else BLANK.size
        self._dispatched = max(dispatcher.dispatched_phy_offset, log.min_phy_offset)

    @property
    def is_empty(self) -> bool:
        """Whether the log may begin anywhere."""
        return not self._log.log_files

    def tail(self) -> LogTail | None:
        """The last bytes of the log, to be compared with the master's; None of an empty one."""
        log = self._log
        log_file = log.file_at(log.max_phy_offset - 1)
        if log_file is None:
            return None
        start = max(log_file.start_phy_offset, log.max_phy_offset - TAIL_BYTES)
        return LogTail.of(start, log.read(start, log.max_phy_offset - start) or b"")

    def append(self, phy_offset: int, data: Buffer) -> None:
        """Append the bytes that lie at `phy_offset` of the master's log: in the page cache on return.
        ReplicaError, OSError: nothing was appended."""
        log = self._log
        if self.is_empty:
            if phy_offset % log.file_bytes:
                raise ReplicaError(f"the first bytes of a log begin a file; the master sends {phy_offset}")
            self._dispatched = phy_offset
        elif phy_offset != log.max_phy_offset:
            raise ReplicaError(f"this log ends at {log.max_phy_offset}, the master sends {phy_offset}")
        end = phy_offset + len(data)
        rest = memoryview(data)
        while rest:
            # A master sends no bytes of two files at once; that is not relied upon.
            size = min(len(rest), log.file_bytes - phy_offset % log.file_bytes)
            log.write(phy_offset, rest[:size])
            phy_offset += size
            rest = rest[size:]
        log.max_phy_offset = end
        log.incomplete_bytes = end - self._dispatched

    def dispatch(self) -> None:
        """Dispatch all complete records. ReplicaError: what follows them is not a record."""
        grown: dict[ConsumeQueue, None] = {}
        try:
            while self._dispatched < self._log.max_phy_offset and self._dispatch_some(grown):
                pass
        finally:
            self._log.incomplete_bytes = self._log.max_phy_offset - self._dispatched
            self._producers.log_grown()
            if grown:
                self._dispatcher.arrived(grown)

    def _dispatch_some(self, grown: dict[ConsumeQueue, None]) -> bool:
        """Dispatch some records, or pass over the blank end of a file; whether there may be more."""
        log, at = self._log, self._dispatched
        log_file = log.file_at(at)
        if log_file is None:
            return False
        available = min(log_file.end_phy_offset, log.max_phy_offset) - at
        if available < BLANK.size:
            return False
        end = at if self._kernel is None else self._dispatch_plain(self._kernel, at, available, grown)
        if end == at:
            end = self._dispatch_any(at, available, grown)
        if end == at:
            return False
        self._dispatched = end
        self._dispatcher.dispatched_phy_offset = end
        return True

    def _dispatch_plain(
        self, kernel: Kernel, at: int, available: int, grown: dict[ConsumeQueue, None]
    ) -> int:
        """Dispatch what the kernel can read, without a copy of it; where that ends."""
        if at < self._dispatcher.known_phy_offset:
            return at
        size = min(_PIECE_BYTES, available)
        raw = self._log.read_nowait(at, size) or self._log.read(at, size) or b""
        read = kernel.read_records(raw, at, MAX_RECORD_BYTES, _SCHEDULE_TOPIC)
        if read is None:
            return at
        try:
            grown.update(dict.fromkeys(self._dispatcher.dispatch_read(read, at)))
        except DamageError as error:
            raise ReplicaError(f"the records that the master sent from {at} to {read[0]}: {error}") from error
        if read[4]:
            note_records(self._producers.table, bytes(raw[: read[0] - at]), at)
        return read[0]

    def _dispatch_any(self, at: int, available: int, grown: dict[ConsumeQueue, None]) -> int:
        """Dispatch some records, or pass over the blank end of a file; where that ends."""
        raw = self._read(at, available)
        if not raw:
            return at
        end = self._blank_end(raw, at)
        if end is None:
            end = self._dispatch_records(raw, at, grown)
            note_records(self._producers.table, raw[: end - at], at)
            return end
        return end if end <= self._log.max_phy_offset else at

    def _read(self, at: int, available: int) -> bytes:
        """Some records, one at least if it is complete."""
        raw = self._log.read(at, min(self._piece_bytes, available)) or b""
        size = record_mark(raw)[0] if raw else 0
        if len(raw) < size <= min(available, MAX_RECORD_BYTES):
            raw = self._log.read(at, size) or b""
        return raw

    def _dispatch_records(self, raw: bytes, at: int, grown: dict[ConsumeQueue, None]) -> int:
        """Dispatch the complete records at the beginning of `raw`; where they end."""
        size, magic = record_mark(raw)
        if magic not in MESSAGE_MAGIC_CODES or not MIN_RECORD_BYTES <= size <= MAX_RECORD_BYTES:
            raise ReplicaError(f"what the master sent at {at} is not a record")
        if len(raw) < size * _FEW_RECORDS:
            return self._dispatch_each(raw, at, grown)
        piece = read_piece(raw, at)
        if not len(piece.columns) and piece.stop is Stop.BAD:
            raise ReplicaError(f"what the master sent at {at} is not a record")
        queues = self._columns.dispatch(piece.columns) if len(piece.columns) else None
        if queues is None:
            return self._dispatch_each(raw, at, grown)
        grown.update(dict.fromkeys(queues))
        return at + piece.end

    def _dispatch_each(self, raw: bytes, at: int, grown: dict[ConsumeQueue, None]) -> int:
        """The same one by one: arrays of a few records take longer, and not all fit into arrays."""
        position = 0
        while len(raw) - position >= BLANK.size and position + record_mark(raw, position)[0] <= len(raw):
            try:
                found = read_dispatch_request(raw, position, at + position, self._delay_levels)
                if isinstance(found, Blank):
                    break
                queue = self._dispatcher.dispatch(found)
            except (ProtocolError, DamageError) as error:
                raise ReplicaError(f"the record that the master sent at {at + position}: {error}") from error
            if queue is not None:
                grown[queue] = None
            position += found.size
        return at + position

    def _blank_end(self, raw: bytes, at: int) -> int | None:
        """Where the blank at the end of a file ends, if there is one here."""
        size, magic = record_mark(raw)
        if magic != BLANK_MAGIC_CODE:
            return None
        if size != -at % self._log.file_bytes:
            raise ReplicaError(f"the blank that the master sent at {at} does not reach the end of its file")
        return at + size
