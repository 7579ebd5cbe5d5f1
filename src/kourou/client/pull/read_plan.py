"""ReadPlan: which slices of a queue to ask for, so that each fills one answer; numbers only.

A slice that was answered up to its middle goes back, what is left of it, and is asked for next: so nothing is
skipped. Slices never overlap: so nothing comes twice. How many messages fill an answer is learned: twice as
many each time until an answer is cut off, then a little more after each whole one, and less after a cut.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST_SLICE: Final = 1_024
MAX_SLICE: Final = 16_384
"""More is not asked for at once: brokers give no more, whatever the messages' size."""


class Slice(NamedTuple):
    """Offsets from `begin` up to, and without, `end`."""

    begin: int
    end: int


class ReadPlan:
    """The way from `begin` to `end`. With `is_whole` all that is left is one slice: for a filter, whose
    answers end somewhere."""

    def __init__(self, begin: int, end: int, *, is_whole: bool = False) -> None:
        self.position = begin
        """Everything before was given to the reader."""
        self.end = max(begin, end)
        self._is_whole = is_whole
        self._size = FIRST_SLICE
        self._is_growing = True
        # In order, and the first of them is the next to ask for.
        self._unasked = [Slice(begin, end)] if begin < end else []

    @property
    def is_done(self) -> bool:
        """Whether the reader has all."""
        return self.position >= self.end

    @property
    def next_begin(self) -> int | None:
        """Where the next slice to ask for begins; None when all are asked for."""
        return self._unasked[0].begin if self._unasked else None

    def ask(self) -> Slice:
        """The next slice to ask for."""
        first = self._unasked.pop(0)
        if self._is_whole or first.end - first.begin <= self._size:
            return first
        asked = Slice(first.begin, first.begin + self._size)
        self._unasked.insert(0, Slice(asked.end, first.end))
        return asked

    def answered(self, asked: Slice, next_offset: int) -> None:
        """The slice at `position` was answered up to `next_offset`; the reader gets that now."""
        assert asked.begin == self.position < next_offset, "slices are answered in order, and move on"
        self.position = min(next_offset, asked.end)
        if not self._is_whole:
            self._learn(asked.end - asked.begin, self.position - asked.begin)
        if self.position < asked.end:
            self._unasked.insert(0, Slice(self.position, asked.end))

    def _learn(self, asked: int, given: int) -> None:
        if given < asked:
            self._is_growing = False
            self._size = max(1, given - given // 16)
        elif asked >= self._size:
            more = self._size if self._is_growing else max(1, self._size // 128)
            self._size = min(MAX_SLICE, self._size + more)
