"""UniqueIds: the ids of messages sent by this process, in the format of Apache's Java client.

The layout is in protocol/message_id.py. In place of Java's class loader hash there is a random number:
containers share addresses and process ids, and their ids must still differ. After a fork, parent and child
generate different ids.
Not here: parsing ids (protocol/message_id.py: parse_unique_id).
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
    """Generates unique ids; thread-safe.

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
        """A new unique id: 32 characters, 56 with an IPv6 address."""
        now_ms = self._now_ms()
        if now_ms != self._head_ms:
            # Everything but the counter is constant for a millisecond, and expensive to compute.
            self._head = self._generate()[:-_COUNTER_CHARS]
            self._head_ms = now_ms
        number = next(self._counter)
        return self._head + _BYTES_IN_HEX[number >> 8 & 0xFF] + _BYTES_IN_HEX[number & 0xFF]

    def _begin(self) -> None:
        """Start over for the current process."""
        self._generate = UniqueIdGenerator(
            ip=self._ip, pid=os.getpid(), class_loader_hash=secrets.randbits(32), now_ms=self._now_ms
        )
        self._counter = count()
        self._head = ""
        self._head_ms = -1


@cache
def shared_unique_ids() -> UniqueIds:
    """The generator that all clients of this process share."""
    return UniqueIds()


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


def _begin_all() -> None:
    for ids in _known:
        ids._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)
