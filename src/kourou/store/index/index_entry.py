"""The bytes of an IndexFile: header, entries, and where they lie. All numbers are big-endian.

Header, 40 bytes: begin_timestamp i64, end_timestamp i64, begin_phy_offset i64, end_phy_offset i64,
hash_slot_count i32 (slots in use), index_count i32 (entries plus one: the first entry has index 1).
Then the slots (index_slots.py), then entries of 20 bytes: key_hash i32, phy_offset i64,
time_diff i32 (seconds since begin_timestamp), prev_index i32 (next older entry of the slot, 0 for none).
Entry 0 exists and is never used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import INDEX_KEY
from kourou.store.index.index_slots import SLOT_BYTES, SLOTS_POSITION

HEADER_BYTES: Final = SLOTS_POSITION
ENTRY_BYTES: Final = 20
ENTRY: Final = struct.Struct(">iqii")
ENTRIES: Final = np.dtype(
    [("key_hash", ">i4"), ("phy_offset", ">i8"), ("time_diff", ">i4"), ("prev_index", ">i4")]
)
HASHED_KEYS: Final = np.dtype(INDEX_KEY.dtype())
"""A key that is hashed already (index_hash.py), of a record on its way into the index."""
MAX_TIME_DIFF: Final = 0x7FFF_FFFF
_HEADER: Final = struct.Struct(">qqqqii")

Entries = NDArray[np.void]
Longs = NDArray[np.int64]


@dataclass(slots=True)
class IndexHeader:
    """What an IndexFile says of itself. A new file begins where the one before it ended."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Read a header; a file nothing was written to has one too, and no entries."""
        header = cls(*_HEADER.unpack(raw))
        header.index_count = max(header.index_count, 1)
        return header

    def encode(self) -> bytes:
        """The 40 bytes of the header."""
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count,
        )

    def following(self) -> IndexHeader:
        """The header of the next file while it has no entry."""
        return IndexHeader(self.end_timestamp, self.end_timestamp, self.end_phy_offset, self.end_phy_offset)


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How many slots and entries a file has room for (`maxHashSlotNum`, `maxIndexNum`)."""

    slot_count: int
    entry_count: int

    @property
    def file_bytes(self) -> int:
        """The length of every file of this layout."""
        return self.entry_position(self.entry_count)

    def slot_position(self, slot: int) -> int:
        """Where a slot lies in the file."""
        return SLOTS_POSITION + slot * SLOT_BYTES

    def entry_position(self, index: int) -> int:
        """Where an entry lies in the file."""
        return SLOTS_POSITION + self.slot_count * SLOT_BYTES + index * ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class IndexBatch:
    """Keys on their way into the index, in the order of the log; one row for each key."""

    key_hashes: NDArray[np.int32]
    phy_offsets: Longs
    store_timestamps: Longs

    @classmethod
    def of_hashed(cls, rows: Sequence[bytes]) -> IndexBatch:
        """From bytes that are rows of HASHED_KEYS."""
        keys = np.frombuffer(b"".join(rows), HASHED_KEYS)
        return cls(
            keys["key_hash"].astype(np.int32),
            keys["phy_offset"].astype(np.int64),
            keys["store_timestamp"].astype(np.int64),
        )

    def __len__(self) -> int:
        return self.key_hashes.size

    def merged(self, other: IndexBatch) -> IndexBatch:
        """Both, in the order of the log; the keys of one record stay as they are."""
        phy_offsets = np.concatenate((self.phy_offsets, other.phy_offsets))
        order = np.argsort(phy_offsets, kind="stable")
        return IndexBatch(
            np.concatenate((self.key_hashes, other.key_hashes))[order],
            phy_offsets[order],
            np.concatenate((self.store_timestamps, other.store_timestamps))[order],
        )

    def part(self, first: int, last: int | None = None) -> IndexBatch:
        """The rows from `first` on, up to `last`."""
        rows = slice(first, last)
        return IndexBatch(self.key_hashes[rows], self.phy_offsets[rows], self.store_timestamps[rows])
