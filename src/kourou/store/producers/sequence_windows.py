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
Single messages in order, which nearly all are, change a span instead, over many commit cycles: a Python
object costs a fraction of what reading, copying and changing the words does.
Not here: whose window it is, and what is answered (producer_table.py).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
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
_UNDO_BYTES: Final = 8 + SLOT_BYTES
# At so many spans all are completed, which takes about 2 ms: those of producers that stopped would stay.
_MAX_SPANS: Final = 1_024


class Standing(enum.Enum):
    """What a window knows of a sequence."""

    NEW = "new"
    """Not stored: it may be."""
    STORED = "stored"
    """A repeat."""
    TOO_OLD = "too old"
    """Below the window: whether it is stored is not known any more."""


@dataclass(slots=True)
class _Span:
    """Consecutive sequences from `first` up to `next`, and at most `limit`, in one range of marks. The record
    of the highest is at `last` or behind it, and was noted at `used_ms`. `written`, `written_last` and
    `written_ms` are these three as of the last commit cycle that was written; nothing of the span is while
    `written` is `first`."""

    first: int
    limit: int
    first_phy_offset: int
    next: int
    last: int
    used_ms: int
    written: int
    written_last: int
    written_ms: int

    def take_back(self) -> None:
        """Only what is written counts."""
        self.next, self.last, self.used_ms = self.written, self.written_last, self.written_ms


class SequenceWindows:
    """All windows of a broker, by slot."""

    def __init__(self) -> None:
        self.slots: dict[str, dict[int, dict[str, int]]] = {}
        """Topic, queue_id, identity, slot. The compiled kernel looks here, so that only the present epoch of
        a producer may be in it."""
        self.blocks: list[bytearray] = []
        self._words: list[memoryview] = []
        self._free: list[int] = []
        self.run = 1
        """What is noted from now on belongs to this run."""
        self.undo: list[bytes] = []
        """Windows before runs of the commit cycle that is not written yet: slot (8 bytes, big-endian) and
        contents of one or more, one after the other, as the kernel returns them."""
        # By slot: what `note_if_next` has noted, in this cycle or before, and the window does not have yet.
        # Whatever else looks at a window comes through `_at`, or completes all of them.
        self._spans: dict[int, _Span] = {}
        self.unwritten_spans: list[_Span] = []
        """Spans to which the commit cycle that is not written yet has added. Of some of them the window has
        all by now; then it is part of `undo`."""
        self._noted = _Span(0, 0, 0, 0, 0, 0, 0, 0, 0)

    def add(self) -> int:
        """The slot of a new, empty window."""
        if not self._free:
            first = len(self.blocks) * BLOCK_SLOTS
            self._add_block(bytearray(BLOCK_BYTES))
            self._free.extend(range(first + BLOCK_SLOTS - 1, first - 1, -1))
        return self._free.pop()

    def remove(self, slot: int) -> None:
        """Forget a window; its slot is used again."""
        self._spans.pop(slot, None)
        kept = [(other, contents) for other, contents in self._undo_entries() if other != slot]
        self.undo = [_undo_entry(*entry) for entry in reversed(kept)]
        self._set(slot, _EMPTY_SLOT)
        self._free.append(slot)

    @property
    def size_bytes(self) -> int:
        """Memory that the slots take."""
        return len(self.blocks) * BLOCK_BYTES

    def load(self, blocks: list[bytearray], used_slots: set[int]) -> None:
        """Replace all windows by those that were saved."""
        self._spans.clear()
        self.unwritten_spans.clear()
        self.blocks, self._words, self.undo = [], [], []
        for block in blocks:
            self._add_block(block)
            words = self._words[-1]
            for at in range(0, len(words), SLOT_WORDS):
                words[at + _RUN] = 0
        self._free = [slot for slot in range(len(blocks) * BLOCK_SLOTS) if slot not in used_slots]

    def written_blocks(self) -> list[bytearray]:
        """A copy of all blocks, without what is not written yet."""
        self._complete_all()
        copies = [bytearray(block) for block in self.blocks]
        for slot, contents in self._undo_entries():
            at = slot % BLOCK_SLOTS * SLOT_BYTES
            copies[slot // BLOCK_SLOTS][at : at + SLOT_BYTES] = contents
        return copies

    # -- commit cycles ---------------------------------------------------------------------------

    def begin_run(self) -> int:
        """A new run, which the kernel can take back by itself; its number."""
        if self._spans:
            self._complete_all()
        self.run += 1
        return self.run

    def rewind(self, undo_count: int) -> None:
        """Take back what was noted since `undo` had so many elements, when the last run began."""
        for span in self.unwritten_spans:
            span.take_back()
        self.unwritten_spans.clear()
        # Those of which nothing is left: the next record may come to lie before `first_phy_offset`.
        self._spans = {slot: span for slot, span in self._spans.items() if span.first < span.written}
        for slot, contents in self._undo_entries(undo_count):
            self._set(slot, contents)
        del self.undo[undo_count:]

    def keep(self) -> None:
        """All that was noted is written."""
        for span in self.unwritten_spans:
            span.written, span.written_last, span.written_ms = span.next, span.last, span.used_ms
        self.unwritten_spans.clear()
        self.undo.clear()
        self.run += 1

    def take_back(self) -> None:
        """Nothing that was noted since the last `keep` is written: every window is what it was."""
        self.rewind(0)
        self.keep()

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
            self._begin_notes(slot, words, at, now_ms)
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
        _mark(words, at, sequence, phy_offset)

    def note_if_next(self, value: str, topic: str, queue_id: int, phy_offset: int, now_ms: int) -> bool:
        """Note the message with this property if it is simply the next of its producer, as nearly all are;
        False: `note` has to. If it is not put after all, `undo_note`."""
        identity, _, text = value.rpartition(":")
        try:
            slot = self.slots[topic][queue_id][identity]
        except KeyError:
            return False
        span = self._spans.get(slot)
        if span is None:
            return self._note_first(slot, text, phy_offset, now_ms)
        sequence = span.next
        if text != str(sequence):
            return False
        if sequence == span.limit:
            self._complete(slot)
            return self._note_first(slot, text, phy_offset, now_ms)
        if sequence == span.written:
            self.unwritten_spans.append(span)
            span.used_ms = now_ms
        span.next = sequence + 1
        span.last = phy_offset
        self._noted = span
        return True

    def _note_first(self, slot: int, text: str, phy_offset: int, now_ms: int) -> bool:
        """The same for a window without a span: it gets one."""
        words, at = self._words[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS * SLOT_WORDS
        sequence = words[at + _NEXT]
        if text != str(sequence) or sequence > MAX_SEQUENCE:
            return False
        if len(self._spans) >= _MAX_SPANS:
            self._complete_all()
        limit = min(sequence - sequence % MARK_RANGE + MARK_RANGE, MAX_SEQUENCE + 1)
        noted, written = (sequence + 1, phy_offset, now_ms), (sequence, phy_offset, now_ms)
        span = self._spans[slot] = self._noted = _Span(sequence, limit, phy_offset, *noted, *written)
        self.unwritten_spans.append(span)
        return True

    def undo_note(self) -> None:
        """What `note_if_next` noted last is not put."""
        span = self._noted
        if span.next - 1 > span.written:
            span.next -= 1
            # That of the highest one is not known any more, but that it is not before the first of the span.
            span.last = span.first_phy_offset
        else:
            span.take_back()

    def note_next(self, slot: int, count: int, phy_offset: int, now_ms: int) -> None:
        """Note the next `count` sequences, up to as many as a window has, whose records are put at
        `phy_offset` or behind it."""
        words, at = self._at(slot)
        if words[at + _RUN] != self.run:
            self._begin_notes(slot, words, at, now_ms)
        sequence = words[at + _NEXT]
        end = sequence + count
        for first in range(sequence - sequence % MARK_RANGE, end, MARK_RANGE):
            _mark(words, at, first, phy_offset)
        _add_next(words, at, end, phy_offset)

    def _complete(self, slot: int) -> None:
        """Let a window have what its span has."""
        span = self._spans.pop(slot)
        words, at = self._words[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS * SLOT_WORDS
        if span.first < span.written:
            words[at + _USED_MS] = max(span.written_ms, words[at + _USED_MS])
            _mark(words, at, span.first, span.first_phy_offset)
            _add_next(words, at, span.written, span.written_last)
        if span.written < span.next:
            if words[at + _RUN] != self.run:
                self._begin_notes(slot, words, at, span.used_ms)
            _mark(words, at, span.first, span.first_phy_offset)
            _add_next(words, at, span.next, span.last)

    def _complete_all(self) -> None:
        for slot in list(self._spans):
            self._complete(slot)

    def _begin_notes(self, slot: int, words: memoryview, at: int, now_ms: int) -> None:
        """Before a window is changed for the first time in a run. A run has one time."""
        begin = at * 8
        contents = self.blocks[slot // BLOCK_SLOTS][begin : begin + SLOT_BYTES]
        self.undo.append(_undo_entry(slot, contents))
        words[at + _RUN] = self.run
        words[at + _USED_MS] = max(now_ms, words[at + _USED_MS])

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
        mark = _mark_at(at, sequence)
        return words[mark + 1] if words[mark] == sequence // MARK_RANGE + 1 else None

    def _at(self, slot: int) -> tuple[memoryview, int]:
        if slot in self._spans:
            self._complete(slot)
        return self._words[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS * SLOT_WORDS

    def _add_block(self, block: bytearray) -> None:
        self.blocks.append(block)
        self._words.append(memoryview(block).cast("Q"))

    def _set(self, slot: int, contents: bytes) -> None:
        at = slot % BLOCK_SLOTS * SLOT_BYTES
        self.blocks[slot // BLOCK_SLOTS][at : at + SLOT_BYTES] = contents

    def _undo_entries(self, begin: int = 0) -> Iterator[tuple[int, bytes]]:
        """Slots and contents in `undo` from `begin` on, the latest first."""
        for undo in reversed(self.undo[begin:]):
            for at in range(len(undo) - _UNDO_BYTES, -1, -_UNDO_BYTES):
                yield int.from_bytes(undo[at : at + 8], "big"), undo[at + 8 : at + _UNDO_BYTES]

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


def _undo_entry(slot: int, contents: bytes | bytearray) -> bytes:
    return slot.to_bytes(8, "big") + contents


def _add_next(words: memoryview, at: int, end: int, phy_offset: int) -> None:
    """Add the sequences from the next one up to `end` to the window that begins at `at`."""
    sequence = words[at + _NEXT]
    words[at + _NEXT], words[at + _LAST] = end, phy_offset
    while sequence < end:
        low = sequence % _WORD_BITS
        bits = min(_WORD_BITS - low, end - sequence)
        words[at + _SEEN + sequence % WINDOW // _WORD_BITS] |= (1 << bits) - 1 << low
        sequence += bits


def _mark_at(at: int, sequence: int) -> int:
    """Where the mark of the range of a sequence is, in the window that begins at `at`."""
    return at + _MARKS + sequence // MARK_RANGE % MARKS * 2


def _mark(words: memoryview, at: int, sequence: int, phy_offset: int) -> None:
    """Set the mark of the range of a sequence, unless it has one. Of records that come again, by recovery,
    the first counts."""
    mark, number = _mark_at(at, sequence), sequence // MARK_RANGE
    if words[mark] <= number or (words[mark] == number + 1 and phy_offset < words[mark + 1]):
        words[mark], words[mark + 1] = number + 1, phy_offset
