"""CqUnit: one entry of a ConsumeQueue.

20 bytes, big-endian: phy_offset i64, size i32, tags_code i64. Zeros mean "not written".
A blank unit (0, 0x7FFFFFFF, 0) holds a place whose message this queue never had.
Not here: the files (queue_files.py), how a tags code comes about (protocol/tags.py).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = UNIT.size
BLANK_SIZE: Final = 0x7FFFFFFF
BLANK_UNIT: Final = UNIT.pack(0, BLANK_SIZE, 0)


class CqUnit(NamedTuple):
    """Where a message lies in the CommitLog, and the hash of its tags."""

    phy_offset: int
    size: int
    tags_code: int

    @property
    def is_message(self) -> bool:
        """False for a blank unit, and for bytes that are no unit."""
        return self.phy_offset >= 0 and 0 < self.size < BLANK_SIZE

    @property
    def end_phy_offset(self) -> int:
        """The byte of the CommitLog behind the record."""
        return self.phy_offset + self.size
