"""IndexWalk: follows the chain of a hash through one IndexFile, from the newest entry to the oldest.

A chain has the entries of every key whose hash shares a slot: of a key that all messages have it is as
long as the file, 20 million entries. So it is walked in turns that may run in any thread (entries that
are there no longer change), and a query ends after `MAX_WALKED_ENTRIES`: what lies further back is
found by a query with an earlier end only where files between are passed over by their times.
Not here: which files are looked at (index_service.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.store.index.index_entry import ENTRY, ENTRY_BYTES

if TYPE_CHECKING:
    from kourou.store.index.index_file import IndexFile

MAX_WALKED_ENTRIES: Final = 1_000_000
"""What one query looks at, in all files: three seconds of a thread."""
# Entries of one turn: some 30 ms, after which others get the thread.
_TURN_ENTRIES: Final = 10_000
# Entries read at once while following a chain, a page of them: the next one is often among them,
# and one system call costs as much as all of these.
_WINDOW_ENTRIES: Final = 204


class KeySearch:
    """What a query looks for, what it found (phy_offsets, newest first), how far it may still go."""

    __slots__ = ("begin_ms", "end_ms", "entries_left", "found", "key_hash", "max_found")

    def __init__(
        self,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        max_found: int,
        *,
        max_entries: int = MAX_WALKED_ENTRIES,
    ) -> None:
        self.key_hash = key_hash
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.max_found = max_found
        self.entries_left = max_entries
        self.found: list[int] = []

    @property
    def is_over(self) -> bool:
        """Whether there is enough, or it went far enough."""
        return len(self.found) >= self.max_found or self.entries_left <= 0


class IndexWalk:
    """One search in one file. Made by the file's owner, `walk_on` in any thread until it `is_over`.

    Times are known by the second. Chains go to ever older entries: one that does not is damaged and
    ends there.
    """

    __slots__ = ("_above", "_file", "_index", "_search", "_window", "_window_first", "is_over")

    def __init__(self, index_file: IndexFile, search: KeySearch) -> None:
        self._file = index_file
        self._search = search
        self._index = index_file.slot_nowait(search.key_hash)
        self._above = index_file.header.index_count
        self._window = b""
        self._window_first = self._above
        self.is_over = search.is_over

    def walk_on(self) -> None:
        """Continue for one bounded step."""
        index = self._first() if self._index is None else self._index
        search = self._search
        for _ in range(min(_TURN_ENTRIES, search.entries_left)):
            if not 0 < index < self._above or len(search.found) >= search.max_found:
                self.is_over = True
                return
            search.entries_left -= 1
            self._above, index = index, self._look(index)
        self._index = index
        self.is_over = search.entries_left <= 0

    def _first(self) -> int:
        index = self._file.read_slot(self._search.key_hash)
        # The owner may have written newer entries meanwhile, and they are counted before their slots go
        # to the file.
        self._above = self._window_first = self._file.header.index_count
        return index

    def _look(self, index: int) -> int:
        """Take what fits; the next entry, 0 when older ones cannot fit."""
        if index < self._window_first:
            self._window_first = max(index - _WINDOW_ENTRIES + 1, 0)
            self._window = self._file.read_entries(self._window_first, index + 1)
        entry_hash, phy_offset, time_diff, prev_index = ENTRY.unpack_from(
            self._window, (index - self._window_first) * ENTRY_BYTES
        )
        search = self._search
        time_ms = self._file.header.begin_timestamp + time_diff * 1000
        if time_diff >= 0 and entry_hash == search.key_hash and search.begin_ms <= time_ms <= search.end_ms:
            search.found.append(phy_offset)
        return 0 if time_diff < 0 or time_ms < search.begin_ms else int(prev_index)
