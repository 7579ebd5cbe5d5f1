"""UnsyncedFile: the content of one file that is in the page cache only.

Keeps the pages as they are on disk, from before their first unsynced change, and every change since; from
these it computes the content that a power loss may leave. Model of the disk: a sector is written completely
or not at all, at any time after the change, so writes are reordered and torn at sectors; length changes
happen in order, independent of the content. A failed sync leaves pages that the system treats as clean though
they never reached the disk: no later sync writes these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from kourou.testing.survival import Survival

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that were written and not synced."""

    time: int
    position: int
    data: bytes

    @property
    def end(self) -> int:
        """The position after its last byte."""
        return self.position + len(self.data)


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page on disk, without changes from `time` on."""

    time: int
    content: bytes


@dataclass(slots=True)
class UnsyncedFile:
    """The unsynced changes of one file; `durable_length` is its length on disk."""

    durable_length: int
    is_mapped: bool = False
    lengths: list[tuple[int, int]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    pages: dict[int, Page] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)

    @property
    def is_clean(self) -> bool:
        """Whether all of the file is on disk."""
        return not self.pages and not self.lengths

    @property
    def length(self) -> int:
        """The current length of the file."""
        return self.lengths[-1][1] if self.lengths else self.durable_length

    def record_write(self, fd: int, time: int, position: int, data: bytes) -> None:
        """Called before `data` is written at `position`."""
        if not data:
            return
        write = Write(time, position, data)
        self._keep_pages(fd, time, position, write.end)
        self.writes.append(write)
        if write.end > self.length:
            self.lengths.append((time, write.end))

    def record_length(self, fd: int, time: int, length: int, data_end: int) -> None:
        """Called before the length is set; truncated data ends at `data_end`."""
        if length < self.length:
            self._keep_pages(fd, time, length, data_end)
        if length != self.length:
            self.lengths.append((time, length))

    def synced(self) -> None:
        """Called after a successful sync."""
        for page in self.dirty:
            self.pages.pop(page, None)
        self.dirty.clear()
        self.durable_length = self.length
        self.lengths.clear()
        if not self.pages:
            self.writes.clear()

    def sync_failed(self) -> None:
        """Called after a failed sync: dirty pages count as clean, but are not on disk."""
        self.dirty.clear()

    def lose_power(self, fd: int, survive: Survival, sector_bytes: int) -> None:
        """Put the file into a state that a power loss may leave; then all of it is on disk."""
        kept = survive([time for time, _ in self.lengths]) if self.lengths else 0
        length = self.lengths[kept - 1][1] if kept else self.durable_length
        touching = self._writes_by_page()
        contents = {
            number: self._content_after(number, page, touching.get(number, []), kept, survive, sector_bytes)
            for number, page in sorted(self.pages.items())
        }
        os.ftruncate(fd, length)
        for number, content in contents.items():
            start = number * PAGE_BYTES
            os.pwrite(fd, content[: max(0, length - start)], start)
        self.durable_length = length
        for changes in (self.lengths, self.writes, self.pages, self.dirty):
            changes.clear()

    def _keep_pages(self, fd: int, time: int, position: int, end: int) -> None:
        for number in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
            self.dirty.add(number)
            if number not in self.pages:
                content = os.pread(fd, PAGE_BYTES, number * PAGE_BYTES)
                self.pages[number] = Page(time, content.ljust(PAGE_BYTES, b"\0"))

    def _writes_by_page(self) -> dict[int, list[Write]]:
        touching: dict[int, list[Write]] = {}
        for write in self.writes:
            for number in range(write.position // PAGE_BYTES, -(-write.end // PAGE_BYTES)):
                touching.setdefault(number, []).append(write)
        return touching

    def _content_after(
        self, number: int, page: Page, writes: list[Write], kept: int, survive: Survival, sector_bytes: int
    ) -> bytes:
        start = number * PAGE_BYTES
        cuts = [(time, length) for time, length in self.lengths[:kept] if time >= page.time]
        newer = [write for write in writes if write.time >= page.time]
        return b"".join(
            _sector_after(page.content[at - start : at - start + sector_bytes], at, newer, cuts, survive)
            for at in range(start, start + PAGE_BYTES, sector_bytes)
        )


def _sector_after(
    old: bytes, start: int, writes: list[Write], cuts: list[tuple[int, int]], survive: Survival
) -> bytes:
    """A sector after some of the writes, and all of the given truncations."""
    end = start + len(old)
    touching = [write for write in writes if write.position < end and write.end > start]
    surviving = touching[: survive([write.time for write in touching])] if touching else []
    sector = bytearray(old)
    for position, data in _in_order(surviving, cuts, end):
        first, last = max(position, start), min(position + len(data), end)
        sector[first - start : last - start] = data[first - position : last - position]
    return bytes(sector)


def _in_order(writes: list[Write], cuts: list[tuple[int, int]], end: int) -> Iterator[tuple[int, bytes]]:
    """Writes, and truncations as writes of zeros, by time."""
    changes = [(write.time, write.position, write.data) for write in writes]
    changes += [(time, length, bytes(end - length)) for time, length in cuts if length < end]
    for _, position, data in sorted(changes, key=lambda change: change[0]):
        yield position, data
