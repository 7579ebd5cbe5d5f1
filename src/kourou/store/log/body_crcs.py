"""Whether the bodies of many records match the CRCs that were stored with them.

With a kernel that is one call, without the interpreter lock; otherwise zlib is called for each body.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import CRC_MASK, Buffer
from kourou.protocol.record_spans import Bools, Int64s, RecordSpans
from kourou.store.kernel import Kernel

_EVERY_ROW = slice(None)


def crcs_match(
    records: RecordSpans, rows: slice | NDArray[np.intp] = _EVERY_ROW, kernel: Kernel | None = None
) -> Bools:
    """Which of these records, whose lengths fit, have the body that their CRC was made of."""
    begins, ends = records.body_begins[rows], records.body_ends[rows]
    crcs = _crcs(records.raw, begins, ends, kernel)
    # A record without a body may say any CRC.
    is_right: Bools = (crcs == records.field("body_crc")[rows]) | (begins == ends)
    return is_right


def _crcs(raw: Buffer, begins: Int64s, ends: Int64s, kernel: Kernel | None) -> NDArray[np.uint32] | Int64s:
    if kernel is not None:
        found = kernel.checksums(raw, np.ascontiguousarray(begins).data, np.ascontiguousarray(ends).data)
        if found is not None:
            return np.frombuffer(found, np.uint32)
    view, crc32 = memoryview(raw), zlib.crc32
    bodies = zip(begins.tolist(), ends.tolist(), strict=True)
    # A list, not a generator: this is where a reader of many small messages spends its time.
    return np.array([crc32(view[begin:end]) for begin, end in bodies], np.int64) & CRC_MASK
