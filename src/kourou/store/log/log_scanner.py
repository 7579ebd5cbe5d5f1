"""LogScanner: walks the CommitLog record by record and says what it finds.

Reads in large pieces, so that a scan costs one system call per megabyte. Not here: what is
done about a bad record (recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from kourou.errors import ProtocolError
from kourou.protocol.layout import BLANK, MESSAGE_MAGIC_CODES, RECORD
from kourou.protocol.record_fields import RAW_MAGIC_CODES, record_mark, record_phy_offset
from kourou.store.log.dispatch_request import Blank, DispatchRequest, read_dispatch_request

PIECE_BYTES: Final = 4 * 1024 * 1024
"""How much of the log is read at once from end to end."""

_HEAD_BYTES: Final = RECORD.end("phy_offset")
_MAGIC_POS: Final = RECORD.at("magic")


class BadRecord(NamedTuple):
    """No valid record at `phy_offset`."""

    phy_offset: int
    reason: str


class ScannedFile(Protocol):
    """The part of a log that one of its files holds."""

    @property
    def start_phy_offset(self) -> int: ...

    @property
    def end_phy_offset(self) -> int: ...


class ScannedLog(Protocol):
    """The log that a scanner reads."""

    @property
    def file_bytes(self) -> int: ...

    def file_at(self, phy_offset: int, /) -> ScannedFile | None: ...

    def read(self, phy_offset: int, size_bytes: int, /) -> bytes | None: ...


class LogScanner:
    """Reads records from a log, in order."""

    def __init__(
        self,
        log: ScannedLog,
        delay_levels: tuple[int, ...],
        *,
        max_record_bytes: int,
        check_crc: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._log = log
        self._piece_bytes = piece_bytes
        self._delay_levels = delay_levels
        self._max_record_bytes = max_record_bytes
        self._check_crc = check_crc
        self._piece = b""
        self._piece_at = 0

    def records(self, phy_offset: int, end_phy_offset: int) -> Iterator[DispatchRequest | BadRecord]:
        """The records from `phy_offset` on, up to `end_phy_offset`; a bad one is the last."""
        while phy_offset < end_phy_offset:
            found = self.record_at(phy_offset)
            if isinstance(found, Blank):
                phy_offset += found.size
                continue
            yield found
            if isinstance(found, BadRecord):
                return
            phy_offset += found.size

    def record_at(self, phy_offset: int) -> DispatchRequest | Blank | BadRecord:
        """The record, blank or damage at `phy_offset`."""
        try:
            position = self._fill(phy_offset, BLANK.size)
            size, magic = record_mark(self._piece, position)
            # Only then: a size in bytes that are no record may ask for a gigabyte.
            if magic in MESSAGE_MAGIC_CODES and BLANK.size < size <= self._max_record_bytes:
                position = self._fill(phy_offset, size)
            found = read_dispatch_request(
                self._piece, position, phy_offset, self._delay_levels, check_crc=self._check_crc
            )
        except ProtocolError as error:
            return BadRecord(phy_offset, str(error))
        if isinstance(found, Blank) and found.size != -phy_offset % self._log.file_bytes:
            return BadRecord(phy_offset, f"a blank of {found.size} bytes does not reach the file's end")
        return found

    def is_record(self, phy_offset: int, size: int) -> bool:
        """Whether a record of this size begins at `phy_offset`, as its first fields say."""
        head = self._log.read(phy_offset, _HEAD_BYTES) if phy_offset >= 0 else None
        if head is None:
            return False
        found_size, magic = record_mark(head)
        return magic in MESSAGE_MAGIC_CODES and found_size == size and record_phy_offset(head) == phy_offset

    def next_record(self, phy_offset: int, end_phy_offset: int) -> int | None:
        """Where the next valid record starts, at `phy_offset` or behind it, found by its magic."""
        lowest = phy_offset
        while phy_offset < end_phy_offset:
            log_file = self._log.file_at(phy_offset)
            if log_file is None:
                return None
            end = min(log_file.end_phy_offset, end_phy_offset)
            raw = self._log.read(phy_offset, min(self._piece_bytes, end - phy_offset)) or b""
            for position in _magic_positions(raw):
                at = phy_offset + position - _MAGIC_POS
                if at >= max(lowest, log_file.start_phy_offset) and self._is_valid(at):
                    return at
            if phy_offset + len(raw) >= end or len(raw) < BLANK.size:
                phy_offset = log_file.end_phy_offset
            else:
                phy_offset += len(raw) - BLANK.size + 1  # size and magic may lie across two pieces
        return None

    def _is_valid(self, phy_offset: int) -> bool:
        return isinstance(self.record_at(phy_offset), DispatchRequest)

    def _fill(self, phy_offset: int, size_bytes: int) -> int:
        """Have `size_bytes` at `phy_offset` in the piece; where they start in it."""
        position = phy_offset - self._piece_at
        if 0 <= position and position + size_bytes <= len(self._piece):
            return position
        log_file = self._log.file_at(phy_offset)
        if log_file is None:
            raise ProtocolError("the log has no such file")
        left = log_file.end_phy_offset - phy_offset
        raw = self._log.read(phy_offset, min(max(self._piece_bytes, size_bytes), left))
        if raw is None or len(raw) < size_bytes:
            raise ProtocolError(f"{left} bytes are left in the file, {size_bytes} are wanted")
        self._piece, self._piece_at = raw, phy_offset
        return 0


def _magic_positions(raw: bytes) -> list[int]:
    """Where a magic stands in `raw`, in order."""
    found = []
    for magic in RAW_MAGIC_CODES:
        at = raw.find(magic)
        while at >= 0:
            found.append(at)
            at = raw.find(magic, at + 1)
    return sorted(found)
