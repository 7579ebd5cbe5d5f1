"""SequenceWindows: for each producer and queue, which of the last 1,024 sequences are stored.

A window is a slot of 26 words of 64 bits in a block, so that 160,000 of them fit in 33 MB and the compiled
kernel can use them in place:

    next        1 + the highest sequence; 0: none yet
    used_ms     when a message was last stored
    run         the last run that changed the window; 0: none since the start
    last        a phy_offset at or before the record of the highest sequence
    seen[16]    a bit for each of the last 1,024 sequences, at sequence % 1,024
    marks[3]    for sequences in ranges of 512: 1 + the range, and a phy_offset at or before the first record
                of that range; two words each

Words are those of the machine: on disk they are little-endian (producer_snapshot.py).
The marks bound the search for the original of a repeated message: it lies at or behind its range's mark.

Sequences are noted when their records are put into a commit cycle. Until that is written, `undo` has the
contents from before each run, so that a failed write takes all of them back.
Not here: whose window it is, and what is answered (producer_table.py).
"""

from __future__ import annotations

import enum
from typing import Final

from kourou.protocol import layout
from kourou.protocol.layout import WINDOW_FIRST_MARK as _MARKS
from kourou.protocol.layout import WINDOW_LAST as _LAST
from kourou.protocol.layout import WINDOW_NEXT as _NEXT
from kourou.protocol.layout import WINDOW_RUN as _RUN
from kourou.protocol.layout import WINDOW_SEEN as _SEEN
from kourou.protocol.layout import WINDOW_USED_MS as _USED_MS
from kourou.protocol.producer_sequence import MAX_SEQUENCE

WINDOW: Final = layout.WINDOW_SEQUENCES
"""Sequences that are remembered."""
MARK_RANGE: Final = layout.WINDOW_MARK_RANGE
MARKS: Final = layout.WINDOW_MARKS
_WORD_BITS: Final = 64
_SEEN_WORDS: Final = WINDOW // _WORD_BITS
SLOT_WORDS: Final = layout.WINDOW_WORDS
SLOT_BYTES: Final = SLOT_WORDS * 8
BLOCK_SLOTS: Final = layout.WINDOW_BLOCK_SLOTS
BLOCK_BYTES: Final = BLOCK_SLOTS * SLOT_BYTES
_EMPTY_SLOT: Final = bytes(SLOT_BYTES)


class Standing(enum.Enum):
    """What a window knows of a sequence."""

    NEW = "new"
    """Not stored: it may be."""
    STORED = "stored"
    """A repeat."""
    TOO_OLD = "too old"
    """Below the window: whether it is stored is not known any more."""


class SequenceWindows:
    """All windows of a broker, by slot."""

    def __init__(self) -> None:
        self.blocks: list[bytearray] = []
        self._words: list[memoryview] = []
        self._free: list[int] = []
        self.taken_back = 0
        """Commit cycles that could not be written."""
        self.run = 1
        """What is noted from now on belongs to this run."""
        self.undo: list[tuple[int, bytes]] = []
        """Slots, and their contents before a run of the commit cycle that is not written yet."""
        # Of what `note_if_next` took last: words, where the window begins, one of its words and that before.
        self._taken: tuple[memoryview, int, int, int] = memoryview(b""), 0, 0, 0

    def add(self) -> int:
        """The slot of a new, empty window."""
        if not self._free:
            first = len(self.blocks) * BLOCK_SLOTS
            self._add_block(bytearray(BLOCK_BYTES))
            self._free.extend(range(first + BLOCK_SLOTS - 1, first - 1, -1))
        return self._free.pop()

    def remove(self, slot: int) -> None:
        """Forget a window; its slot is used again."""
        self.undo = [entry for entry in self.undo if entry[0] != slot]
        self._set(slot, _EMPTY_SLOT)
        self._free.append(slot)

    @property
    def size_bytes(self) -> int:
        """Memory that the slots take."""
        return len(self.blocks) * BLOCK_BYTES

    def load(self, blocks: list[bytearray], used_slots: set[int]) -> None:
        """Replace all windows by those that were saved."""
        self.blocks, self._words, self.undo = [], [], []
        for block in blocks:
            self._add_block(block)
            words = self._words[-1]
            for at in range(0, len(words), SLOT_WORDS):
                words[at + _RUN] = 0
        self._free = [slot for slot in range(len(blocks) * BLOCK_SLOTS) if slot not in used_slots]

    def written_blocks(self) -> list[bytearray]:
        """A copy of all blocks, without what is not written yet."""
        copies = [bytearray(block) for block in self.blocks]
        for slot, contents in reversed(self.undo):
            at = slot % BLOCK_SLOTS * SLOT_BYTES
            copies[slot // BLOCK_SLOTS][at : at + SLOT_BYTES] = contents
        return copies

    # -- commit cycles ---------------------------------------------------------------------------

    def begin_run(self) -> int:
        """A new run, which the kernel can take back by itself; its number."""
        self.run += 1
        return self.run

    def keep_undo(self, undo: bytes) -> None:
        """Keep what windows were before a run of the kernel: slots and contents, one after the other."""
        for at in range(0, len(undo), 8 + SLOT_BYTES):
            slot = int.from_bytes(undo[at : at + 8], "big")
            self.undo.append((slot, undo[at + 8 : at + 8 + SLOT_BYTES]))

    def rewind(self, undo_count: int) -> None:
        """Take back what was noted since `undo` had so many entries, when the last run began."""
        for slot, contents in reversed(self.undo[undo_count:]):
            self._set(slot, contents)
        del self.undo[undo_count:]

    def keep(self) -> None:
        """All that was noted is written."""
        self.undo.clear()
        self.run += 1

    def take_back(self) -> None:
        """Nothing that was noted since the last `keep` is written: every window is what it was."""
        self.rewind(0)
        self.keep()
        self.taken_back += 1

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

    def note(self, slot: int, sequence: int, phy_offset: int, now_ms: int) -> None:
        """The record of a message with this sequence is put, at `phy_offset` or behind it."""
        words, at = self._at(slot)
        if words[at + _RUN] != self.run:
            begin = slot % BLOCK_SLOTS * SLOT_BYTES
            self.undo.append((slot, bytes(self.blocks[slot // BLOCK_SLOTS][begin : begin + SLOT_BYTES])))
            words[at + _RUN] = self.run
        self.note_written(slot, sequence, phy_offset, now_ms)

    def note_written(self, slot: int, sequence: int, phy_offset: int, now_ms: int) -> None:
        """The same of a record that the log has already. One below the window is not remembered."""
        words, at = self._at(slot)
        after = words[at + _NEXT]
        if sequence >= after:
            self._clear(words, at, after, sequence)
            words[at + _NEXT], words[at + _LAST] = sequence + 1, phy_offset
        elif sequence < after - WINDOW:
            return
        bit = sequence % WINDOW
        words[at + _SEEN + bit // _WORD_BITS] |= 1 << bit % _WORD_BITS
        words[at + _USED_MS] = max(now_ms, words[at + _USED_MS])
        number = sequence // MARK_RANGE
        mark = at + _MARKS + number % MARKS * 2
        # Of records that come again, by recovery, the first counts.
        if words[mark] < number + 1 or (words[mark] == number + 1 and phy_offset < words[mark + 1]):
            words[mark], words[mark + 1] = number + 1, phy_offset

    def note_if_next(self, slot: int, text: str, phy_offset: int, now_ms: int) -> bool:
        """Note the sequence that `text` stands for, if it is 1 + the highest, as nearly all are; False:
        `note` has to."""
        words, at = self._words[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS * SLOT_WORDS
        sequence = words[at + _NEXT]
        if text != str(sequence) or sequence > MAX_SEQUENCE:
            return False
        if words[at + _RUN] != self.run:
            begin = at * 8
            self.undo.append((slot, bytes(self.blocks[slot // BLOCK_SLOTS][begin : begin + SLOT_BYTES])))
            words[at + _RUN] = self.run
        words[at + _NEXT], words[at + _LAST] = sequence + 1, phy_offset
        words[at + _USED_MS] = now_ms
        bit = sequence % WINDOW
        seen = at + _SEEN + bit // _WORD_BITS
        before = words[seen]
        words[seen] = before | 1 << bit % _WORD_BITS
        self._taken = words, at, seen, before
        number = sequence // MARK_RANGE
        mark = at + _MARKS + number % MARKS * 2
        if words[mark] <= number:
            words[mark], words[mark + 1] = number + 1, phy_offset
        return True

    def undo_note(self) -> None:
        """What `note_if_next` took last is not put."""
        words, at, seen, before = self._taken
        words[at + _NEXT] -= 1
        words[seen] = before

    def merge(self, slot: int, other: bytes) -> None:
        """Add what another copy of the window knows: its words in the order of this machine."""
        words, at = self._at(slot)
        theirs = memoryview(other).cast("Q")
        if theirs[_NEXT] > words[at + _NEXT]:
            # The one that is ahead is taken, and completed by what the other knows.
            mine = bytes(self.blocks[slot // BLOCK_SLOTS][at * 8 : (at + SLOT_WORDS) * 8])
            self._set(slot, other)
            theirs = memoryview(mine).cast("Q")
        low = max(0, words[at + _NEXT] - WINDOW)
        for sequence in range(low, theirs[_NEXT]):
            bit = sequence % WINDOW
            if theirs[_SEEN + bit // _WORD_BITS] >> bit % _WORD_BITS & 1:
                words[at + _SEEN + bit // _WORD_BITS] |= 1 << bit % _WORD_BITS
        words[at + _USED_MS] = max(words[at + _USED_MS], theirs[_USED_MS])
        words[at + _RUN] = 0
        for i in range(_MARKS, SLOT_WORDS, 2):
            ours, their = words[at + i], theirs[i]
            if their > ours or (their == ours and theirs[i + 1] < words[at + i + 1]):
                words[at + i], words[at + i + 1] = their, theirs[i + 1]

    def high(self, slot: int) -> int:
        """The highest sequence; -1: none."""
        words, at = self._at(slot)
        return words[at + _NEXT] - 1

    def used_ms(self, slot: int) -> int:
        """When a message was last stored."""
        words, at = self._at(slot)
        return words[at + _USED_MS]

    def search_from(self, slot: int, sequence: int) -> int | None:
        """The phy_offset at or behind which the message with this sequence lies; None if not known."""
        words, at = self._at(slot)
        if sequence == words[at + _NEXT] - 1:
            return words[at + _LAST]
        number = sequence // MARK_RANGE
        mark = at + _MARKS + number % MARKS * 2
        return words[mark + 1] if words[mark] == number + 1 else None

    def _at(self, slot: int) -> tuple[memoryview, int]:
        return self._words[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS * SLOT_WORDS

    def _add_block(self, block: bytearray) -> None:
        self.blocks.append(block)
        self._words.append(memoryview(block).cast("Q"))

    def _set(self, slot: int, contents: bytes) -> None:
        at = slot % BLOCK_SLOTS * SLOT_BYTES
        self.blocks[slot // BLOCK_SLOTS][at : at + SLOT_BYTES] = contents

    @staticmethod
    def _clear(words: memoryview, at: int, begin: int, end: int) -> None:
        """Sequences from `begin` to `end` have not been stored: their bits are those of older ones."""
        if end - begin >= WINDOW:
            for i in range(_SEEN_WORDS):
                words[at + _SEEN + i] = 0
            return
        for sequence in range(begin, end + 1):
            bit = sequence % WINDOW
            words[at + _SEEN + bit // _WORD_BITS] &= ~(1 << bit % _WORD_BITS)
