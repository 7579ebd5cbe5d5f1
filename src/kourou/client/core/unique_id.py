"""UniqueIds: the ids that this process gives its messages, as Apache's Java client makes them.

The layout is in protocol/message_id.py. Where Java has the hash of its class loader there is a number
drawn at random here: containers share addresses and process ids, and two ids must differ all the same.
After a fork, parent and child go on with different ids.
Not here: taking ids apart (protocol/message_id.py: parse_unique_id).
"""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Final

from kourou.config.host import local_address
from kourou.protocol.message_id import UniqueIdGenerator

_BYTES_IN_HEX: Final = [f"{byte:02X}" for byte in range(256)]
_COUNTER_CHARS: Final = 4
_known: Final[weakref.WeakSet[UniqueIds]] = weakref.WeakSet()


class UniqueIds:
    """Makes unique ids; any thread may ask for one.

    >>> ids = UniqueIds(ip="127.0.0.1")
    >>> first, second = ids.next_id(), ids.next_id()
    >>> first != second, first[:8], len(first)
    (True, '7F000001', 32)
    """

    __slots__ = ("__weakref__", "_counter", "_generate", "_head", "_head_ms", "_ip", "_now_ms")

    def __init__(self, ip: str | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._ip = ip or local_address()
        self._now_ms = now_ms or _wall_clock_ms
        self._head_ms: int
        self._begin()
        _known.add(self)

    def next_id(self) -> str:
        """An id that no other message has: 32 characters, 56 with an IPv6 address."""
        now_ms = self._now_ms()
        if now_ms != self._head_ms:
            # All but the counter is the same for a millisecond, and costs more than the rest of an id.
            self._head = self._generate()[:-_COUNTER_CHARS]
            self._head_ms = now_ms
        number = next(self._counter)
        return self._head + _BYTES_IN_HEX[number >> 8 & 0xFF] + _BYTES_IN_HEX[number & 0xFF]

    def _begin(self) -> None:
        """Start over as the process that this is now."""
        self._generate = UniqueIdGenerator(
            ip=self._ip, pid=os.getpid(), class_loader_hash=secrets.randbits(32), now_ms=self._now_ms
        )
        self._counter = count()
        self._head = ""
        self._head_ms = -1


@cache
def shared_unique_ids() -> UniqueIds:
    """The one that all clients of this process share."""
    return UniqueIds()


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


def _begin_all() -> None:
    for ids in _known:
        ids._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)
