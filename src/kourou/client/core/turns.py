"""Turns: which of the messages in hand comes next. High priorities first, and a share for the others.

A consumer learns priorities from the messages themselves, so retries have theirs, and so have messages of
brokers that do not announce the type of a topic. Messages without a priority count as those of priority 0.
Not here: the queue of a broker that stands for a priority (protocol/priority.py).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

from kourou.protocol.message import MessageExt
from kourou.protocol.priority import PRIORITY_START

T = TypeVar("T")

LOW_SHARE: Final = 8
"""One of so many turns is for a priority that is not the highest."""
_RAW_START: Final = PRIORITY_START.encode()
_LOWEST: Final = 0


def level_of(message: MessageExt) -> int:
    """The priority of a message that was received; 0 if it has none."""
    # Most have none, and to decode properties costs more than to search their bytes.
    return (message.priority or _LOWEST) if _RAW_START in message.raw_properties else _LOWEST


class Turns:
    """Decides between priorities, for one consumer."""

    def __init__(self) -> None:
        self._high_turns = 0
        self._low_turns = 0

    def next_level(self, levels: Collection[int]) -> int:
        """Which of the priorities that have messages comes next; `levels` has at least one.

        As long as there are several, each eighth turn is for one of those below the highest, by rotation.
        """
        highest = max(levels)
        if len(levels) == 1:
            self._high_turns = 0
            return highest
        if self._high_turns < LOW_SHARE - 1:
            self._high_turns += 1
            return highest
        self._high_turns = 0
        self._low_turns += 1
        lower = sorted(levels)[:-1]
        return lower[self._low_turns % len(lower)]


class WaitingItems(Generic[T]):
    """Work in the order in which it came, that of high priorities first. One thread adds, several take."""

    def __init__(self) -> None:
        # Those of priority 0. Consumers of ordinary topics have nothing else, and pay for nothing else.
        self._plain: deque[T] = deque()
        self._high: dict[int, deque[T]] = {}
        self._turns = Turns()
        self._is_contended = False
        """Whether the next turn has to be decided: high ones wait, or were taken since the last plain one."""
        self._deciding = threading.Lock()

    def extend(self, items: Iterable[T], level: int = _LOWEST) -> None:
        """Add items of one priority."""
        if level == _LOWEST:
            self._plain.extend(items)
            return
        with self._deciding:
            self._high.setdefault(level, deque()).extend(items)
            self._is_contended = True

    def popleft(self) -> T:
        """The next item. IndexError: there is none."""
        return self._next_item() if self._is_contended else self._plain.popleft()

    def _next_item(self) -> T:
        with self._deciding:
            levels = [*self._high, _LOWEST] if self._plain else list(self._high)
            level = self._turns.next_level(levels) if levels else _LOWEST
            if level == _LOWEST:
                self._is_contended = bool(self._high)
                return self._plain.popleft()
            items = self._high[level]
            item = items.popleft()
            if not items:
                del self._high[level]
            return item

    def clear(self) -> None:
        """Forget all items."""
        with self._deciding:
            self._plain.clear()
            self._high.clear()

    def __len__(self) -> int:
        return len(self._plain) + sum(map(len, list(self._high.values())))

    def __bool__(self) -> bool:
        return bool(self._plain or self._high)
