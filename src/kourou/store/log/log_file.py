"""LogFile: one file of the CommitLog.

Preallocated at full length, so a write cannot find the disk full half-way through a file;
written by position, read through a read-only map while it is young and by `pread` later.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from kourou.store.disk.files import FileIdentity, Files, OpenFile
from kourou.store.disk.map_guard import MapGuard
from kourou.store.disk.page_cache import MappedPages

LOSS_CURE: Final = "put the file back, or restore it, before the broker is restarted"
"""What to do about what `find_loss` and `find_misnaming` find."""

_PIECE_BYTES: Final = 1024 * 1024
_ZERO_PIECE: Final = bytes(_PIECE_BYTES)
_ZEROS: Final = memoryview(_ZERO_PIECE)


def log_file_name(start_phy_offset: int) -> str:
    """20 digits: the offset of the file's first byte in the log."""
    return f"{start_phy_offset:020d}"


def written_end(file: OpenFile, position: int, end: int) -> int:
    """Behind the last byte in [position, end) that is not zero; `position` if all are. Holes are
    not read."""
    end = min(file.data_end(position), end)
    while end > position:
        size = min(_PIECE_BYTES, end - position)
        piece = file.pread(size, end - size)
        # Compared first, which is far faster: zeros that were read count as data, a gigabyte of them.
        if piece != _ZERO_PIECE and (written := piece.rstrip(b"\0")):
            return end - size + len(written)
        end -= size
    return position


class LogFile:
    """An open file of the log that starts at `start_phy_offset`."""

    __slots__ = (
        "_counts_links",
        "_guard",
        "_map",
        "_mapped_pages",
        "_pins",
        "_removed",
        "end_phy_offset",
        "file",
        "identity",
        "is_broken",
        "is_deleted",
        "path",
        "rewrites",
        "size_bytes",
        "start_phy_offset",
    )

    def __init__(self, file: OpenFile, start_phy_offset: int, size_bytes: int) -> None:
        self.file = file
        self.path: Path = file.path
        self.start_phy_offset = start_phy_offset
        self.size_bytes = size_bytes
        self.end_phy_offset = start_phy_offset + size_bytes
        self._map: memoryview | None = None
        self._mapped_pages: MappedPages | None = None
        self._guard: MapGuard | None = None
        self.rewrites = 0  # of what was there already: they change the file's time, not its end
        self._pins = 0
        self._removed = False
        # Found cut short, or unreadable, once: nothing is read through a map any more.
        self.is_broken = False
        self.is_deleted = False  # by its owner, or about to be: it is not lost
        status = file.status()
        self.identity = status.identity
        # Some network file systems have no count of links.
        self._counts_links = status.links > 0

    @classmethod
    def create(cls, files: Files, folder: Path, start_phy_offset: int, size_bytes: int) -> LogFile:
        """A new file of full length, its blocks reserved, its name and its folder's on disk on return.

        FileExistsError when there is one of that name, FileNotFoundError when there is no such folder.
        """
        file = files.open(folder / log_file_name(start_phy_offset), exclusive=True)
        try:
            file.preallocate(size_bytes)
            file.sync()
            files.sync_folder(folder)
            # The folder may be new, by us or by one who died before this line: with its name all
            # files in it would be lost.
            files.sync_folder(folder.parent)
        except OSError:
            file.close()
            files.remove(file.path)
            raise
        return cls(file, start_phy_offset, size_bytes)

    def mapped(self) -> memoryview:
        """The whole file as memory. Views of it stay valid after `unmap`, which only lets go."""
        if self._map is None:
            mapped = self.file.map_readonly(self.size_bytes)
            mapped.madvise(mmap.MADV_RANDOM)
            self._guard = MapGuard(mapped)
            self._map = memoryview(mapped)
            self._mapped_pages = MappedPages.of(self._map)
        return self._map

    @property
    def map_in_use(self) -> memoryview | None:
        """The map if there is one that can be read; in any thread."""
        mapped = self._map
        try:
            return mapped if mapped is not None and self.can_be_mapped() else None
        except OSError:  # the owner has closed the file meanwhile
            return None

    def can_be_mapped(self) -> bool:
        """Whether the map can be read: the file has its full length, and nothing was unreadable so far. To be
        asked right before each read of the map; takes a fraction of a microsecond."""
        if self.is_broken:
            return False
        guard = self._guard
        if self.file.reaches(self.size_bytes) and (guard is None or not guard.is_broken):
            return True
        self.is_broken = True
        return False

    def find_loss(self) -> str | None:
        """Why what is written to the open file would be lost, as far as the file itself can tell: it was
        removed, or cut short. Not whether its name means another file by now (log_watch.py)."""
        status = self.file.status()
        if self._counts_links and not status.links and not self.is_deleted:
            return f"{self.path} was removed while it was in use"
        if status.length_bytes < self.size_bytes:
            self.is_broken = True
            return (
                f"{self.path} was cut short while it was in use: it has {status.length_bytes} of "
                f"{self.size_bytes} bytes"
            )
        if not self.can_be_mapped():
            return f"{self.path} was cut short while it was in use, or the disk cannot read it"
        return None

    def find_misnaming(self, named: FileIdentity | None) -> str | None:
        """The same for its name, which now means the file `named`; None: no file at all."""
        if named == self.identity:
            return None
        became = "moved or removed" if named is None else "replaced by another file"
        return f"{self.path} was {became} while it was in use"

    def unmap(self) -> None:
        """Let go of the map; it ends when the last view of it does."""
        self._map = self._mapped_pages = None

    def is_resident(self, phy_offset: int, end_phy_offset: int) -> bool:
        """Whether these bytes can be read without waiting for the disk."""
        start = self.start_phy_offset
        return self.file.is_resident(phy_offset - start, end_phy_offset - start, self._mapped_pages)

    def written_end(self, position: int) -> int:
        """Behind the last byte from `position` on that is not zero; `position` if all are."""
        return written_end(self.file, position, self.size_bytes)

    def zero(self, position: int) -> None:
        """Make every byte from `position` on zero, and durable: what was there must not come back.

        By writing. A file that is cut and grown again is too short if the machine stops in between.
        """
        end = self.written_end(position)
        for at in range(position, end, _PIECE_BYTES):
            self.file.pwrite(_ZEROS[: end - at], at)
        self.file.sync()

    def write_again(self, position: int, end: int) -> None:
        """Write what is there once more. A sync that failed leaves pages that the system takes for
        clean though the disk never got them: no later sync would write those."""
        self.rewrites += 1
        for at in range(position, end, _PIECE_BYTES):
            self.file.pwrite(self.file.pread(min(_PIECE_BYTES, end - at), at), at)

    def pin(self) -> None:
        """Keep the file open although it may be removed: another thread uses it."""
        self._pins += 1

    @property
    def is_pinned(self) -> bool:
        """Whether another thread uses the file."""
        return self._pins > 0

    def unpin(self) -> None:
        """The other thread is done."""
        self._pins -= 1
        if self._removed and not self._pins:
            self.file.close()

    def close(self) -> None:
        """Close the descriptor, or leave that to the last `unpin`."""
        self.unmap()
        self._removed = True
        if not self._pins:
            self.file.close()
