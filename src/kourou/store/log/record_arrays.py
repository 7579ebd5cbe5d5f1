"""Fields of many stored records at once, as arrays: what lies at some positions, and the heads of records."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.record import (
    BODY_CRC_POS,
    BODY_LENGTH_POS,
    BODY_POS,
    BORN_HOST_POS,
    BORN_TIMESTAMP_POS,
    FLAG_POS,
    MAGIC_POS,
    PHY_OFFSET_POS,
    QUEUE_ID_POS,
    QUEUE_OFFSET_POS,
    RECONSUME_TIMES_POS,
    STORE_HOST_POS,
    STORE_TIMESTAMP_POS,
    SYS_FLAG_POS,
    Buffer,
)

_FIELDS: Final = {
    "magic": (MAGIC_POS, ">u4"),
    "body_crc": (BODY_CRC_POS, ">i4"),
    "queue_id": (QUEUE_ID_POS, ">i4"),
    "flag": (FLAG_POS, ">i4"),
    "queue_offset": (QUEUE_OFFSET_POS, ">i8"),
    "phy_offset": (PHY_OFFSET_POS, ">i8"),
    "sys_flag": (SYS_FLAG_POS, ">i4"),
    "born_timestamp": (BORN_TIMESTAMP_POS, ">i8"),
    # Those that follow are here where hosts are IPv4.
    "born_host": (BORN_HOST_POS, ">u8"),
    "store_timestamp": (STORE_TIMESTAMP_POS, ">i8"),
    "store_host": (STORE_HOST_POS, ">u8"),
    "reconsume_times": (RECONSUME_TIMES_POS, ">i4"),
    "body_length": (BODY_LENGTH_POS, ">i4"),
}
_HEAD: Final = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [kind for _, kind in _FIELDS.values()],
        "offsets": [position for position, _ in _FIELDS.values()],
        "itemsize": BODY_POS,
    }
)
# Copied as bytes, which is quicker than field by field.
_HEAD_BYTES: Final = np.dtype(f"V{BODY_POS}")


def heads_at(raw: Buffer, starts: NDArray[np.int64]) -> NDArray[Any]:
    """The heads of the records that start at these positions, by the names of their fields."""
    return values_at(raw, starts, _HEAD_BYTES).view(_HEAD)


def values_at(raw: Buffer, positions: NDArray[np.int64], kind: np.dtype[Any]) -> NDArray[Any]:
    """What lies at these positions. For positions outside it is anything: the lengths of such a record do
    not add up, whatever is read there."""
    count = len(raw) - kind.itemsize + 1
    if count < 1:
        return np.zeros(len(positions), kind)
    everywhere: NDArray[Any] = np.ndarray((count,), kind, raw, strides=(1,))
    if len(positions) and (int(positions.max()) >= count or int(positions.min()) < 0):
        positions = np.clip(positions, 0, count - 1)
    return everywhere[positions]
