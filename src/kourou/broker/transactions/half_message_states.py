"""HalfMessageStates: which half messages have ended; HalfMessageCache: those stored a moment ago. A decision
about a half is made here, once.

Of every half from `half_queue_offset` on one byte is kept, and of every op record from `op_queue_offset` on
the last half that it ends: these two offsets are what Apache keeps as the progress of CID_RMQ_SYS_TRANS. What
lies below is settled: it has ended, or goes on as a copy. A copy takes the place of its half. An end with
the half's old offset applies to the copy.

Nearly every half ends within milliseconds. Its end then need not read the record and decode it again: what
the commit puts is in the cache until then. A half that is not there (put by an earlier process or an Apache
broker; put again; with a time of its own for checks; evicted) is read from the log.
Not here: records (transactions.py), decisions (end_transaction_processor.py, transaction_check.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

OPEN: Final = 0
ENDING: Final = 1
"""Its op record is in a commit cycle that is not stored yet."""
ENDED: Final = 2

_NONE: Final = -1
# A producer that never ends its halves must not cost more than this, and one half.
MAX_HALVES: Final = 4096
MAX_BYTES: Final = 16 * 1024 * 1024
# A text of Python's, before its first character.
_KEY_BYTES: Final = 64


class HalfMessageStates:
    """Plain state, owned by the loop's thread."""

    def __init__(self, half_queue_offset: int = 0, op_queue_offset: int = 0) -> None:
        self.half_queue_offset = half_queue_offset
        self.op_queue_offset = op_queue_offset
        self._states = bytearray()
        self._ops = array("q")
        self._moved: dict[int, int] = {}
        self._origins: dict[int, list[int]] = {}

    # -- looking ---------------------------------------------------------------------------------

    def current(self, queue_offset: int) -> int:
        """Where the transaction of a half is now: there, unless it was put again."""
        return self._moved.get(queue_offset, queue_offset)

    def state(self, queue_offset: int) -> int:
        """OPEN, ENDING or ENDED."""
        position = queue_offset - self.half_queue_offset
        if position < 0:
            return ENDED
        return self._states[position] if position < len(self._states) else OPEN

    def next_open(self, queue_offset: int) -> int:
        """The first open half from `queue_offset` on; possibly one that does not exist yet."""
        start = max(0, queue_offset - self.half_queue_offset)
        position = self._states.find(OPEN, start)
        return self.half_queue_offset + (max(start, len(self._states)) if position < 0 else position)

    def open_count(self, end_queue_offset: int) -> int:
        """How many halves are open, in a queue that ends at `end_queue_offset`."""
        unknown = end_queue_offset - self.half_queue_offset - len(self._states)
        return self._states.count(OPEN) + max(0, unknown)

    def __len__(self) -> int:
        return len(self._states)

    # -- ending ----------------------------------------------------------------------------------

    def begin(self, queue_offset: int, *, copy_queue_offset: int | None = None) -> None:
        """The op record of an open half is in the commit cycle; with a copy, which replaces the half."""
        # This and `stored` are for each transaction: `state`, `_set` and `_record_op` without the calls.
        position, states = queue_offset - self.half_queue_offset, self._states
        if position >= len(states):
            states.extend(bytes(position + 1 - len(states)))
        assert position >= 0 and states[position] == OPEN, f"half {queue_offset} ends twice"
        states[position] = ENDING
        if copy_queue_offset is not None:
            self._move(queue_offset, copy_queue_offset)

    def stored(self, queue_offset: int, op_queue_offset: int) -> None:
        """The op record of a half is stored."""
        position = queue_offset - self.half_queue_offset
        if position >= 0:  # else the log has let go of it meanwhile
            self._states[position] = ENDED
        if op_queue_offset - self.op_queue_offset == len(self._ops):
            self._ops.append(queue_offset)
        else:
            self._record_op(op_queue_offset, queue_offset)
        if self._origins:
            self._forget_origins(queue_offset)

    def failed(self, queue_offset: int) -> None:
        """The op record of a half could not be stored: nothing has happened."""
        self._set(queue_offset, OPEN)
        copy = self._moved.pop(queue_offset, None)
        if copy is None:
            return
        origins = self._origins.pop(copy)
        origins.remove(queue_offset)
        for origin in origins:
            self._moved[origin] = queue_offset
        if origins:
            self._origins[queue_offset] = origins

    def load(self, op_queue_offset: int, queue_offsets: Iterable[int], copy: int | None = None) -> None:
        """Take an op record that was found: the halves that it ends, or the one that went on as `copy`."""
        last = _NONE
        for queue_offset in queue_offsets:
            last = max(last, queue_offset)
            if self.state(queue_offset) != ENDED:
                self._set(queue_offset, ENDED)
            if copy is not None:
                self._move(queue_offset, copy)
            self._forget_origins(queue_offset)
        self._record_op(op_queue_offset, last)

    def skip(self, queue_offset: int) -> None:
        """There is no such half any more."""
        if self.state(queue_offset) == OPEN:
            self._set(queue_offset, ENDED)

    def _set(self, queue_offset: int, state: int) -> None:
        position = queue_offset - self.half_queue_offset
        if position < 0:
            return
        if position >= len(self._states):
            self._states.extend(bytes(position + 1 - len(self._states)))
        self._states[position] = state

    def _record_op(self, op_queue_offset: int, last_queue_offset: int) -> None:
        position = op_queue_offset - self.op_queue_offset
        if position < 0:
            return
        if position >= len(self._ops):
            self._ops.extend([_NONE] * (position + 1 - len(self._ops)))
        self._ops[position] = max(self._ops[position], last_queue_offset)

    def _move(self, queue_offset: int, copy: int) -> None:
        origins = self._origins.pop(queue_offset, [])
        origins.append(queue_offset)
        for origin in origins:
            self._moved[origin] = copy
        self._origins[copy] = origins

    def _forget_origins(self, queue_offset: int) -> None:
        for origin in self._origins.pop(queue_offset, ()):
            del self._moved[origin]

    # -- going on --------------------------------------------------------------------------------

    def advance(self, end_queue_offset: int, min_queue_offset: int = 0) -> None:
        """Forget what is settled: halves below the first that is not, and op records about such only.

        Never past `end_queue_offset`, the queue's end; halves below `min_queue_offset` are gone.
        """
        if min_queue_offset > self.half_queue_offset:
            self._drop_halves(min_queue_offset - self.half_queue_offset)
        ended = len(self._states) - len(self._states.lstrip(bytes((ENDED,))))
        self._drop_halves(min(ended, max(0, end_queue_offset - self.half_queue_offset)))
        self._drop_ops()

    def _drop_halves(self, count: int) -> None:
        del self._states[:count]
        self.half_queue_offset += count

    def _drop_ops(self) -> None:
        if not self._ops:
            return
        needed = np.frombuffer(self._ops, dtype=np.int64) >= self.half_queue_offset
        count = int(needed.argmax()) if needed.any() else len(self._ops)
        del self._ops[:count]
        self.op_queue_offset += count


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
        """Remove and return the half, which is being ended."""
        half = self._halves.pop(queue_offset, None)
        if half is not None:
            self._bytes -= half.size_bytes
        return half
