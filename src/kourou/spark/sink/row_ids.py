"""RowIds: the message ids of many rows at once.

Ids have the format of all clients (client/core/unique_id.py). All rows of a batch share one millisecond: only
the counter differs, and is formatted for all rows at once.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from kourou.config.host import local_address
from kourou.protocol.message_id import UniqueIdGenerator

_COUNTER_CHARS: Final = 4
_COUNTERS: Final = 1 << 16
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class RowIds:
    """Generates ids for one task. Its random part is unique, so it may use up every counter of a
    millisecond."""

    def __init__(self, ip: str | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._wall_clock_ms = now_ms or _wall_clock_ms
        self._last_ms = -1
        self._generate = UniqueIdGenerator(
            ip=ip or local_address(),
            pid=os.getpid(),
            class_loader_hash=secrets.randbits(32),
            now_ms=self._own_ms,
        )

    def next_ids(self, count: int) -> npt.NDArray[np.uint8]:
        """`count` unique ids, at least one: a row of characters for each."""
        chunks = [self._chunk(min(_COUNTERS, count - first)) for first in range(0, count, _COUNTERS)]
        return np.concatenate(chunks) if len(chunks) > 1 else chunks[0]

    def _chunk(self, count: int) -> npt.NDArray[np.uint8]:
        """The ids of one millisecond, one per row."""
        self._last_ms = max(self._last_ms + 1, self._wall_clock_ms())
        head = np.frombuffer(self._generate()[:-_COUNTER_CHARS].encode(), np.uint8)
        ids = np.empty((count, len(head) + _COUNTER_CHARS), np.uint8)
        ids[:, : len(head)] = head
        ids[:, len(head) :] = _counters()[:count]
        return ids

    def _own_ms(self) -> int:
        return self._last_ms if self._last_ms >= 0 else self._wall_clock_ms()


@cache
def _counters() -> npt.NDArray[np.uint8]:
    """All counters in hexadecimal, one per row."""
    shifts = np.array([12, 8, 4, 0], np.uint32)
    digits = np.arange(_COUNTERS, dtype=np.uint32)[:, None] >> shifts & 0xF
    chars: npt.NDArray[np.uint8] = _HEX[digits]
    return chars


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)
