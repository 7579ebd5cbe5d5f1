"""HalfMessageCache: halves that were stored a moment ago, kept in memory until they end.

Nearly every half ends within milliseconds. Its end then need not read the record and take it apart again:
what the commit puts is at hand. It is never more than a shortcut. A half that is not here (put by a broker
before this one, or by an Apache one; put again; with a time of its own for checks; pushed out by others) is
read from the log.
Not here: which halves are open (half_message_states.py), what is stored (half_messages.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

# A producer that never ends its halves must not cost more than this, and one half.
MAX_HALVES: Final = 4096
MAX_BYTES: Final = 16 * 1024 * 1024
# A text of Python's, before its first character.
_KEY_BYTES: Final = 64


class CachedHalfMessage(msgspec.Struct, gc=False):
    """A half as it was put. `topic` and `queue_id` are where it goes; `phy_offset` and `queue_offset`, where
    it is, are known when it is stored."""

    producer_group: str
    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    tags_code: int
    keys: tuple[str, ...]
    born_timestamp: int
    born_host: bytes
    sys_flag: int
    flag: int
    reconsume_times: int
    phy_offset: int = -1
    queue_offset: int = -1

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.body) + 2 * len(self.properties) + _KEY_BYTES * len(self.keys)


class HalfMessageCache:
    """The halves of one broker, by queue_offset. Owned by the loop's thread."""

    def __init__(self) -> None:
        self._halves: dict[int, CachedHalfMessage] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._halves)

    def add(self, half: CachedHalfMessage, phy_offset: int, queue_offset: int) -> None:
        """Keep a half that is stored there."""
        if len(self._halves) >= MAX_HALVES or self._bytes > MAX_BYTES:
            # The few among them that will still end are found in the log.
            self._halves.clear()
            self._bytes = 0
        half.phy_offset, half.queue_offset = phy_offset, queue_offset
        self._halves[queue_offset] = half
        self._bytes += half.size_bytes

    def take(self, queue_offset: int) -> CachedHalfMessage | None:
        """The half, for whoever ends it now: it is not kept any longer."""
        half = self._halves.pop(queue_offset, None)
        if half is not None:
            self._bytes -= half.size_bytes
        return half
