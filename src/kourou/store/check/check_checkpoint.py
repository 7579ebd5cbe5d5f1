"""CheckpointCheck: whether the checkpoint is whole, and not ahead of the log.

Kourou seals its part with a CRC. If that does not match, a single damaged byte can be found by trying.
Apache's part has no CRC but a copy in ours; where that differs in more than a byte, another broker has
run on the store since. What the part says is compared with the store times of the records.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np

from kourou.protocol.record_spans import Int64s
from kourou.store.check.check_context import CheckContext
from kourou.store.check.invariants import Invariant
from kourou.store.recovery.checkpoint import (
    APACHE_BYTES,
    CRC_POSITION,
    PAGE_BYTES,
    SEALED_BYTES,
    changed_bytes,
)

_TIMES: Final = {"physic_msg_timestamp": 0, "logics_msg_timestamp": 8, "index_msg_timestamp": 16}
_FLUSH_TIME: Final = "physic_msg_timestamp"
_OFFSETS: Final = {
    "master_flushed_offset": 24,
    "confirm_phy_offset": 32,
    "logics_physical_offset": 40,
    "indexed_phy_offset": 56,
    "index_end_phy_offset": 64,
}


class CheckpointCheck:
    """Watches the store times of the records go by, then compares."""

    def __init__(self, context: CheckContext, raw: bytes | None) -> None:
        self._context = context
        self._raw = raw
        self._earliest_timestamp = 0
        self._latest_timestamp = 0
        self._seen: set[str] = set()

    def take(self, store_timestamps: Int64s) -> None:
        """Records of the log, in order."""
        if not len(store_timestamps):
            return
        # Not the first record's: the clock may have been set back since.
        earliest = int(store_timestamps.min())
        self._earliest_timestamp = min(self._earliest_timestamp or earliest, earliest)
        self._latest_timestamp = max(self._latest_timestamp, int(store_timestamps.max()))
        for name in _TIMES:
            if name not in self._seen and np.any(store_timestamps == getattr(self._context.checkpoint, name)):
                self._seen.add(name)

    def finish(self) -> None:
        """Compare the checkpoint with what has gone by."""
        if self._raw is None:
            if self._latest_timestamp:
                self._note(None, "there is none: the next start reads the whole log")
            return
        length = len(self._raw)
        if length == 0 and self._context.will_recover:
            return self._note(0, "it is empty: it had just been created")
        if length != PAGE_BYTES:
            self._violation(length, f"it has {length} bytes instead of {PAGE_BYTES}")
        if self._context.checkpoint.problem is not None:
            self._check_seal(self._raw, self._context.checkpoint.problem)
        elif self._context.checkpoint.is_taken_over:
            self._note(APACHE_BYTES, "another broker has run on this store since Kourou did")
        self._check_times()
        self._check_offsets()

    def _check_seal(self, raw: bytes, problem: str) -> None:
        if len(raw) < SEALED_BYTES:
            return
        if not any(raw[APACHE_BYTES:]):
            return self._violation(0, problem)
        position = damaged_byte(raw)
        if position is not None:
            self._violation(position, "this byte is damaged: with another value the checkpoint is right")
        else:
            first = len(raw) - len(raw[APACHE_BYTES:].lstrip(b"\0"))
            self._violation(first, f"bytes that no broker writes: {problem}")

    def _check_times(self) -> None:
        for name, position in _TIMES.items():
            value = getattr(self._context.checkpoint, name)
            if value > self._latest_timestamp:
                what = f"{name} is {value}, the newest record was stored at {self._latest_timestamp}"
                self._ahead(position, what, is_flushed=name == _FLUSH_TIME)
            elif name == _FLUSH_TIME and self._is_too_old(value):
                self._violation(position, f"{name} is {value}, before any record was stored")
            elif value >= self._earliest_timestamp and value and name not in self._seen:
                self._note(position, f"{name} is {value}, no record was stored then")

    def _is_too_old(self, flush_time: int) -> bool:
        """After a clean stop all of the log has been flushed."""
        return self._context.is_clean and 0 < flush_time < self._earliest_timestamp

    def _check_offsets(self) -> None:
        end = self._context.log_end_phy_offset
        for name, position in _OFFSETS.items():
            value = getattr(self._context.checkpoint, name)
            if value > end:
                self._ahead(position, f"{name} is {value}, the log ends at {end}", is_flushed=False)

    def _ahead(self, position: int, what: str, *, is_flushed: bool) -> None:
        """Queues and index may be on disk before the log is; what of the log is lost then, was never
        flushed."""
        if self._context.will_recover and not is_flushed:
            self._note(position, f"{what}: newer records did not reach the disk")
        else:
            self._violation(position, what)

    def _violation(self, position: int, what: str) -> None:
        if self._context.in_use:  # written while the log was read
            return self._note(position, what)
        self._context.findings.violation(
            Invariant.CHECKPOINT, self._context.layout.checkpoint, position, what
        )

    def _note(self, position: int | None, what: str) -> None:
        self._context.findings.note(self._context.layout.checkpoint, position, what)


def damaged_byte(raw: bytes) -> int | None:
    """The byte that alone explains why the seal does not match; None when there is no such byte."""
    ours = bytearray(raw[APACHE_BYTES:SEALED_BYTES])
    end = CRC_POSITION - APACHE_BYTES
    if zlib.crc32(ours[:end]) == int.from_bytes(ours[end:], "big"):
        changed = changed_bytes(raw)
        return changed[0] if len(changed) == 1 else None
    for position, kept in enumerate(bytes(ours)):
        for value in range(256):
            ours[position] = value
            if zlib.crc32(ours[:end]) == int.from_bytes(ours[end:], "big"):
                return APACHE_BYTES + position
        ours[position] = kept
    return None
