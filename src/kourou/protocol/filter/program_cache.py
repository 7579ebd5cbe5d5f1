"""Compiled filters, each compiled once however many pulls and members bring its text.

Bounded by the length of all texts together, for a long expression is a large program. Texts that do
not compile are kept too: a client that asks again each second gets the same answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kourou.errors import FilterSyntaxError
from kourou.protocol.filter.parser import MAX_EXPRESSION_CHARS
from kourou.protocol.filter.program import FilterProgram

# The programs of so much text take about 30 MB at most.
MAX_CACHED_CHARS: Final = 1024 * 1024
# What an entry takes beside its text, in the same unit, so that many short ones are bounded too.
_ENTRY_CHARS: Final = 256


class ProgramCache:
    """The programs used last."""

    def __init__(self, max_chars: int = MAX_CACHED_CHARS) -> None:
        self._max_chars = max_chars
        self._chars = 0
        self._entries: OrderedDict[str, FilterProgram | FilterSyntaxError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def compile(self, text: str) -> FilterProgram:
        """The program of an expression. FilterSyntaxError says what is wrong with it, and where."""
        entry = self._entries.get(text)
        if entry is None:
            entry = self._add(text)
        else:
            self._entries.move_to_end(text)
        if isinstance(entry, FilterSyntaxError):
            # One that was raised keeps the frames it passed through, and all they hold.
            raise FilterSyntaxError(entry.problem, entry.position, entry.piece, entry.hint)
        return entry

    def _add(self, text: str) -> FilterProgram | FilterSyntaxError:
        entry: FilterProgram | FilterSyntaxError
        try:
            entry = FilterProgram(text)
        except FilterSyntaxError as error:
            entry = error.with_traceback(None)
        if len(text) <= MAX_EXPRESSION_CHARS:  # else it was refused by its length, which is quick
            self._keep(text, entry)
        return entry

    def _keep(self, text: str, entry: FilterProgram | FilterSyntaxError) -> None:
        self._entries[text] = entry
        self._chars += len(text) + _ENTRY_CHARS
        while self._chars > self._max_chars:
            oldest, _ = self._entries.popitem(last=False)
            self._chars -= len(oldest) + _ENTRY_CHARS


_programs: Final = ProgramCache()


def compile_filter(text: str) -> FilterProgram:
    """The program of an SQL92 expression. FilterSyntaxError says what is wrong with it, and where."""
    return _programs.compile(text)
