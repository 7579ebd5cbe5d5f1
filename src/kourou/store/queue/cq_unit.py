"""CqUnit: one entry of a ConsumeQueue.

20 bytes, described in protocol/layout.py. Zeros mean "not written".
A blank unit (0, 0x7FFFFFFF, 0) holds a place whose message this queue never had.
Not here: the files (queue_files.py), how a tags code comes about (protocol/tags.py).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import BLANK_UNIT_SIZE, CQ_UNIT

UNIT: Final = CQ_UNIT.struct()
UNIT_BYTES: Final = UNIT.size
BLANK_SIZE: Final = BLANK_UNIT_SIZE
MANY: Final = 256
"""More units than these are looked at as arrays."""
UNIT_TYPE: Final = np.dtype(CQ_UNIT.dtype())
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


def unit_columns(units: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the records of some units lie, and their sizes; for `MANY` at most."""
    fields = _units_struct(len(units) // UNIT_BYTES).unpack(units)
    return fields[0::3], fields[1::3]


def unit_arrays(units: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same as arrays, for any number."""
    columns = np.frombuffer(units, UNIT_TYPE)
    return columns["phy_offset"].astype(np.int64), columns["size"].astype(np.int64)


@lru_cache(maxsize=MANY)
def _units_struct(count: int) -> struct.Struct:
    """Units in one go: half the time of one by one."""
    return struct.Struct(">" + CQ_UNIT.format[1:] * count)
