"""SequenceWindows: for each producer and queue, which of the last 1,024 sequences are stored.

A window is a slot of 28 words of 64 bits in a block, so that 160,000 of them fit in 36 MB and the compiled
kernel can use them in place:

    next        1 + the highest sequence; 0: none yet
    used_ms     when a message was last stored
    seen[16]    a bit for each of the last 1,024 sequences, at sequence % 1,024
    marks[5]    for sequences in ranges of 256: the range, and the queue_offset of the first message of that
                range that was stored; two words each

Words are those of the machine: windows are saved in another form (producer_snapshot.py).
The marks bound the search for the original of a repeated message: it lies at or behind its range's mark.
Not here: whose window it is, and what is answered (producer_table.py).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

WINDOW: Final = 1_024
"""Sequences that are remembered: as many as a producer may have in flight."""
MARK_RANGE: Final = 256
MARKS: Final = WINDOW // MARK_RANGE + 1
_WORD_BITS: Final = 64
_SEEN_WORDS: Final = WINDOW // _WORD_BITS
_NEXT, _USED_MS, _SEEN = 0, 1, 2
_MARKS: Final = _SEEN + _SEEN_WORDS
SLOT_WORDS: Final = _MARKS + 2 * MARKS
BLOCK_SLOTS: Final = 256
_BLOCK_BYTES: Final = BLOCK_SLOTS * SLOT_WORDS * 8
_EMPTY_SLOT: Final = bytes(SLOT_WORDS * 8)
MAX_SEQUENCE: Final = 2**62


class Standing(enum.Enum):
    """What a window knows of a sequence."""

    NEW = "new"
    """Not stored: it may be."""
    STORED = "stored"
    """A repeat."""
    TOO_OLD = "too old"
    """Below the window: whether it is stored is not known any more."""


class WindowState(NamedTuple):
    """A window as it is saved."""

    high: int
    """The highest sequence; -1: none."""
    used_ms: int
    missing: tuple[int, ...]
    """Sequences of the window that are not stored."""
    marks: tuple[tuple[int, int], ...]
    """Range number and queue_offset of its first message."""


class SequenceWindows:
    """All windows of a broker, by slot."""

    def __init__(self) -> None:
        self.blocks: list[bytearray] = []
        self._words: list[memoryview] = []
        self._free: list[int] = []

    def add(self) -> int:
        """The slot of a new, empty window."""
        if not self._free:
            first = len(self.blocks) * BLOCK_SLOTS
            block = bytearray(_BLOCK_BYTES)
            self.blocks.append(block)
            self._words.append(memoryview(block).cast("Q"))
            self._free.extend(range(first + BLOCK_SLOTS - 1, first - 1, -1))
        return self._free.pop()

    def remove(self, slot: int) -> None:
        """Forget a window; its slot is used again."""
        at = slot % BLOCK_SLOTS * len(_EMPTY_SLOT)
        self.blocks[slot // BLOCK_SLOTS][at : at + len(_EMPTY_SLOT)] = _EMPTY_SLOT
        self._free.append(slot)

    @property
    def size_bytes(self) -> int:
        """Memory that the slots take."""
        return len(self.blocks) * _BLOCK_BYTES

    # -- one window ------------------------------------------------------------------------------

    def standing(self, slot: int, sequence: int) -> Standing:
        """What is known of a sequence."""
        words, at = self._at(slot)
        after = words[at + _NEXT]
        if sequence >= after:
            return Standing.NEW
        if sequence < after - WINDOW:
            return Standing.TOO_OLD
        bit = sequence % WINDOW
        is_seen = words[at + _SEEN + bit // _WORD_BITS] >> bit % _WORD_BITS & 1
        return Standing.STORED if is_seen else Standing.NEW

    def note(self, slot: int, sequence: int, queue_offset: int, now_ms: int) -> None:
        """A message with this sequence is at `queue_offset`. One below the window is not remembered."""
        words, at = self._at(slot)
        after = words[at + _NEXT]
        if sequence >= after:
            self._clear(words, at, after, sequence)
            words[at + _NEXT] = sequence + 1
        elif sequence < after - WINDOW:
            return
        bit = sequence % WINDOW
        words[at + _SEEN + bit // _WORD_BITS] |= 1 << bit % _WORD_BITS
        words[at + _USED_MS] = now_ms
        number = sequence // MARK_RANGE
        mark = at + _MARKS + number % MARKS * 2
        # Stored as 1 + the number: 0 is an empty mark.
        if words[mark] < number + 1:
            words[mark], words[mark + 1] = number + 1, queue_offset

    def forget(self, slot: int, sequence: int) -> None:
        """A message that was noted has not been stored after all: it may be sent again."""
        words, at = self._at(slot)
        if words[at + _NEXT] - WINDOW <= sequence < words[at + _NEXT]:
            bit = sequence % WINDOW
            words[at + _SEEN + bit // _WORD_BITS] &= ~(1 << bit % _WORD_BITS)

    def high(self, slot: int) -> int:
        """The highest sequence; -1: none."""
        words, at = self._at(slot)
        return words[at + _NEXT] - 1

    def used_ms(self, slot: int) -> int:
        """When a message was last stored."""
        words, at = self._at(slot)
        return words[at + _USED_MS]

    def search_from(self, slot: int, sequence: int) -> int | None:
        """The queue_offset at or behind which the message with this sequence lies; None if not known."""
        words, at = self._at(slot)
        number = sequence // MARK_RANGE
        mark = at + _MARKS + number % MARKS * 2
        return words[mark + 1] if words[mark] == number + 1 else None

    def state(self, slot: int) -> WindowState:
        """The window, to be saved."""
        words, at = self._at(slot)
        after = words[at + _NEXT]
        missing = tuple(
            sequence
            for sequence in range(max(0, after - WINDOW), after)
            if self.standing(slot, sequence) is Standing.NEW
        )
        pairs = ((words[at + _MARKS + 2 * i], words[at + _MARKS + 2 * i + 1]) for i in range(MARKS))
        marks = tuple(sorted((number - 1, queue_offset) for number, queue_offset in pairs if number))
        return WindowState(after - 1, words[at + _USED_MS], missing, marks)

    def restore(self, slot: int, state: WindowState) -> None:
        """Set an empty window to a saved state."""
        words, at = self._at(slot)
        words[at + _NEXT], words[at + _USED_MS] = state.high + 1, state.used_ms
        if state.high >= 0:
            for i in range(_SEEN_WORDS):
                words[at + _SEEN + i] = 2**_WORD_BITS - 1
        for sequence in state.missing:
            self.forget(slot, sequence)
        for number, queue_offset in state.marks:
            mark = at + _MARKS + number % MARKS * 2
            words[mark], words[mark + 1] = number + 1, queue_offset

    def _at(self, slot: int) -> tuple[memoryview, int]:
        return self._words[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS * SLOT_WORDS

    @staticmethod
    def _clear(words: memoryview, at: int, begin: int, end: int) -> None:
        """Sequences from `begin` to before `end` have not been stored: their bits are those of older ones."""
        if end - begin >= WINDOW:
            for i in range(_SEEN_WORDS):
                words[at + _SEEN + i] = 0
            return
        for sequence in range(begin, end + 1):
            bit = sequence % WINDOW
            words[at + _SEEN + bit // _WORD_BITS] &= ~(1 << bit % _WORD_BITS)
