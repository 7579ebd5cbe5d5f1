"""CommitLog: the one sequence of records that is the truth; all else in the store is derived.

A row of files of one size, named by the offset of their first byte. A file's last bytes are
a blank record (8 bytes: bytes left, magic) where the next record did not fit. Bytes behind
the last record are zero.

`write` puts bytes into the page cache; a `FlushJob` makes them durable. Not here: what a record
is (protocol/record.py), which offsets it gets (log_appender.py), what is valid (recovery.py).
"""

from __future__ import annotations

import errno
import logging
import shlex
from bisect import bisect_right
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from kourou.errors import StoreFormatError
from kourou.protocol.layout import Buffer
from kourou.store.disk.files import Files
from kourou.store.log.log_file import LogFile, log_file_name, written_end
from kourou.store.log.log_regions import LogRegions, LogWindow
from kourou.store.steps import Steps, run_steps

_log = logging.getLogger(__name__)

# Below this average size, joining the parts of a write costs less than passing them to the system one by one.
_JOIN_BELOW_BYTES: Final = 2 * 1024


class CreateLogFileError(OSError):
    """The next file of the log cannot be made; nothing was written to it."""


class CommitLog:
    """The files of the log, in order, and how far they are written and durable.

    One thread owns it. `prepare_next` may run in another, and jobs of `start_flush` do: they touch
    no position. New files go to `folders` in turn, but not to `full_folders` while others are left;
    `read_only_folders` only keep what they have.
    """

    def __init__(
        self,
        files: Files,
        folders: Sequence[Path],
        file_bytes: int,
        *,
        read_window_bytes: int,
        read_only_folders: Collection[Path] = (),
    ) -> None:
        self._files = files
        # Sorted, as Apache does it: either finds out from a file's offset where it is to be.
        self._folders = tuple(sorted(set(folders) - set(read_only_folders), key=str))
        self._all_folders = (*self._folders, *sorted(set(read_only_folders), key=str))
        self._window = read_window_bytes
        self._regions = LogRegions()
        self._starts: list[int] = []
        # The file behind the last one, once it is made.
        self.prepared: LogFile | None = None
        # Held while a file is made: else the owner and `prepare_next` could both make the same one.
        self._creating = Lock()
        self._leftovers: list[Path] = []
        self._removed: list[LogFile] = []  # gone from disk, still open
        self.file_bytes = file_bytes
        self.full_folders: frozenset[Path] = frozenset()
        self.log_files: list[LogFile] = []
        # The log's end: whoever has written a batch moves it, once all writes of it have gone well.
        self.max_phy_offset = 0
        self.flushed_phy_offset = 0
        # Of a record whose rest has not arrived: on a slave only.
        self.incomplete_bytes = 0

    # -- what there is ---------------------------------------------------------------------------

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders in which new files are created."""
        return self._folders

    @property
    def min_phy_offset(self) -> int:
        """The first byte still there; where an empty log will start."""
        return self._starts[0] if self._starts else self.max_phy_offset

    def load(self) -> None:
        """Open every file; positions are those of full files until recovery has corrected them.

        StoreFormatError for a file of another length than configured, or a gap between two.
        Nothing is changed on disk.
        """
        paths = self._without_unfinished(sorted(self._find_files(), key=lambda path: path.name))
        self._check_row(paths)
        for path in paths:
            self._add(LogFile(self._files.open(path), int(path.name), self.file_bytes))
        if self.log_files:
            self.max_phy_offset = self.log_files[-1].end_phy_offset
        self.flushed_phy_offset = self.max_phy_offset

    def _find_files(self) -> list[Path]:
        found = []
        for folder in self._all_folders:
            for name in self._list_names(folder):
                path = folder / name
                if len(name) != 20 or not (name.isascii() and name.isdigit()) or self._files.is_folder(path):
                    _log.warning("%s is not a file of the CommitLog; ignored", path)
                    continue
                found.append(path)
        return found

    def _list_names(self, folder: Path) -> list[str]:
        try:
            return self._files.list_names(folder)
        except NotADirectoryError as error:
            raise StoreFormatError(folder, "it should be the CommitLog's folder; move it away") from error

    def _without_unfinished(self, paths: list[Path]) -> list[Path]:
        """Leave out a last file whose maker died before it could give it its length."""
        if not paths or not 0 <= self._files.length(paths[-1]) < self.file_bytes:
            return paths
        with self._files.open(paths[-1], writable=False) as file:
            if written_end(file, 0, self.file_bytes):
                return paths
        _log.warning("%s was never finished and is left out", paths[-1])
        self._leftovers = [paths[-1]]
        return paths[:-1]

    def _check_row(self, paths: Sequence[Path]) -> None:
        expected = int(paths[0].name) if paths else 0
        lengths = [self._files.length(path) for path in paths]
        for index, path in enumerate(paths):
            if lengths[index] != self.file_bytes or int(path.name) % self.file_bytes:
                raise StoreFormatError(path, self._wrong_length(path, lengths[index], lengths))
            if int(path.name) < expected:
                raise StoreFormatError(path, f"{paths[index - 1]} is the same part of the log; move one away")
            if int(path.name) > expected:
                raise StoreFormatError(
                    path,
                    f"files are missing between {paths[index - 1].name} and it; "
                    "put them back, or move what follows the gap away",
                )
            expected += self.file_bytes

    def _wrong_length(self, path: Path, length: int, lengths: Sequence[int]) -> str:
        """What is wrong with a file of another length than configured: it was cut short, or was written with
        another size, or either."""
        other_size = (
            f"it has {length} bytes, {self.file_bytes} are configured; "
            "open the store with the mappedFileSizeCommitLog it was written with"
        )
        start = int(path.name)
        is_like_others = lengths.count(length) > 1 and self.file_bytes not in lengths
        if length > self.file_bytes or start % self.file_bytes or is_like_others:
            return other_size
        cut_short = (
            f"it has {length} of {self.file_bytes} bytes; the log from {start + length} to "
            f"{start + self.file_bytes} is missing. Restore the file from a backup, or run `truncate -s "
            f"{self.file_bytes} {shlex.quote(str(path))}` to go on without the missing part"
        )
        if self.file_bytes in lengths:
            return cut_short
        return f"{cut_short}. If it was written with smaller files, set mappedFileSizeCommitLog to their size"

    def file_at(self, phy_offset: int) -> LogFile | None:
        """The file that holds `phy_offset`, None when it is gone or not there yet."""
        index = bisect_right(self._starts, phy_offset) - 1
        if index < 0:
            return None
        log_file = self.log_files[index]
        return log_file if phy_offset < log_file.end_phy_offset else None

    def written_end(self, phy_offset: int) -> int:
        """The end of what was ever written behind `phy_offset`: behind the last byte that is not zero."""
        for log_file in reversed(self.log_files):
            if log_file.end_phy_offset <= phy_offset:
                break
            position = max(0, phy_offset - log_file.start_phy_offset)
            end = log_file.written_end(position)
            if end > position:
                return log_file.start_phy_offset + end
        return phy_offset

    # -- writing ---------------------------------------------------------------------------------

    def write(self, start_phy_offset: int, data: Buffer) -> None:
        """Put `data`, which lies in one file, at `start_phy_offset`: the log's end or the start of
        the file behind it. In the page cache on return; OSError leaves the log's end as it was."""
        self.write_parts(start_phy_offset, (data,))

    def write_parts(self, start_phy_offset: int, parts: Sequence[Buffer]) -> None:
        """Like `write`, for bytes in parts: large ones are not copied before."""
        log_file = self.log_files[-1] if self.log_files else None
        if log_file is None or not log_file.start_phy_offset <= start_phy_offset < log_file.end_phy_offset:
            log_file = self._other_writable(start_phy_offset, log_file)
        position = start_phy_offset - log_file.start_phy_offset
        if len(parts) == 1:
            log_file.file.pwrite(parts[0], position)
        elif sum(map(len, parts)) < len(parts) * _JOIN_BELOW_BYTES:
            log_file.file.pwrite(b"".join(parts), position)
        else:
            log_file.file.pwritev(parts, position)

    def undo(self, start_phy_offset: int, end_phy_offset: int) -> None:
        """Zero what a failed batch may have left between the two, or raise OSError."""
        phy_offset = start_phy_offset
        while phy_offset < end_phy_offset and (log_file := self.file_at(phy_offset)) is not None:
            end = min(end_phy_offset, log_file.end_phy_offset)
            log_file.file.pwrite(bytes(end - phy_offset), phy_offset - log_file.start_phy_offset)
            phy_offset = end

    def _other_writable(self, phy_offset: int, last: LogFile | None) -> LogFile:
        """The file to write to that is not the last one."""
        if last is not None and phy_offset < last.start_phy_offset:
            found = self.file_at(phy_offset)
            assert found is not None, f"the log has no byte {phy_offset}"
            return found
        return self._roll(phy_offset - phy_offset % self.file_bytes)

    def _roll(self, start_phy_offset: int) -> LogFile:
        with self._creating:
            log_file = self._take_prepared(start_phy_offset) or self._create(start_phy_offset)
            self._add(log_file)
        self._let_go_of_old_maps()
        _log.info("CommitLog goes on in %s", log_file.path)
        return log_file

    def _take_prepared(self, start_phy_offset: int) -> LogFile | None:
        if self.prepared is not None and self.prepared.start_phy_offset != start_phy_offset:
            self._drop_prepared()
        prepared, self.prepared = self.prepared, None
        return prepared

    def _drop_prepared(self) -> None:
        prepared, self.prepared = self.prepared, None
        if prepared is not None:
            prepared.close()
            with suppress(FileNotFoundError):  # removed with its folder
                self._files.remove(prepared.path)

    def _create(self, start_phy_offset: int) -> LogFile:
        folder = self._next_folder(start_phy_offset)
        try:
            # A folder that had files and is gone was removed, or moved away with its store.
            if all(log_file.path.parent != folder for log_file in self.log_files):
                self._files.make_folder(folder)
            self._clear_the_way(folder / log_file_name(start_phy_offset))
            return LogFile.create(self._files, folder, start_phy_offset, self.file_bytes)
        except OSError as error:
            raise CreateLogFileError(error.errno, error.strerror, error.filename or str(folder)) from error

    def _next_folder(self, start_phy_offset: int) -> Path:
        folders = [folder for folder in self._folders if folder not in self.full_folders] or self._folders
        return folders[start_phy_offset // self.file_bytes % len(folders)]

    def _clear_the_way(self, path: Path) -> None:
        """Remove a file that was never used; FileExistsError when there are bytes in it."""
        if not self._files.exists(path):
            return
        with self._files.open(path, writable=False) as file:
            if written_end(file, 0, file.length()):
                raise FileExistsError(errno.EEXIST, "a file that is not empty is in the way", str(path))
        self._files.remove(path)

    def _add(self, log_file: LogFile) -> None:
        self.log_files.append(log_file)
        self._starts.append(log_file.start_phy_offset)

    def _let_go_of_old_maps(self) -> None:
        for log_file in self.log_files:
            is_old = log_file.end_phy_offset < self.max_phy_offset - self._window
            if is_old and not self._regions.has_mapped(log_file):
                log_file.unmap()

    @property
    def wants_next_file(self) -> bool:
        """True when the last file is in use and the one behind it is not prepared."""
        return bool(self.log_files) and self.prepared is None

    def prepare_next(self) -> None:
        """Create the file behind the last one. May run in a thread of its own; creating 1 GiB
        inline would hold up every sender. CreateLogFileError: it is tried again when it is needed."""
        with self._creating:
            if self.wants_next_file:
                self.prepared = self._create(self.log_files[-1].end_phy_offset)

    def kept_files(self) -> list[LogFile]:
        """The files that have to be there under their names: all but one that is being deleted here."""
        return [log_file for log_file in self.log_files if not log_file.is_deleted]

    # -- durability ------------------------------------------------------------------------------

    def unsynced_files(self) -> list[LogFile]:
        """The files with bytes that are not durable."""
        if self.flushed_phy_offset >= self.max_phy_offset:
            return []
        return [
            log_file
            for log_file in self.log_files
            if log_file.end_phy_offset > self.flushed_phy_offset
            and log_file.start_phy_offset < self.max_phy_offset
        ]

    def mark_flushed(self, phy_offset: int) -> None:
        """Everything below `phy_offset` is durable."""
        self.flushed_phy_offset = max(self.flushed_phy_offset, phy_offset)

    # -- reading ---------------------------------------------------------------------------------

    def read_nowait(self, phy_offset: int, size_bytes: int) -> Buffer | None:
        """Bytes of one file if they are in memory; None when they would have to come from disk,
        or are not there at all. Never waits for the disk."""
        log_file = self.file_at(phy_offset)
        end = phy_offset + size_bytes
        if log_file is None or end > log_file.end_phy_offset or end > self.max_phy_offset:
            return None
        position = phy_offset - log_file.start_phy_offset
        if not log_file.can_be_mapped():
            return None
        if phy_offset >= self.window_phy_offset:
            return log_file.mapped()[position : position + size_bytes]
        return log_file.file.pread_nowait(size_bytes, position)

    @property
    def window_phy_offset(self) -> int:
        """Where the newest bytes begin, those that are read through a map; 0 or less: all are."""
        return self.max_phy_offset - self._window

    def window_at(self, phy_offset: int) -> LogWindow | None:
        """The newest bytes around this one, through the map; None when it is older than those."""
        log_file = self.file_at(phy_offset)
        low = self.window_phy_offset
        if log_file is None or phy_offset < low or not log_file.can_be_mapped():
            return None
        start = log_file.start_phy_offset
        end = min(log_file.end_phy_offset, self.max_phy_offset)
        return LogWindow(log_file.mapped(), start, max(start, low), end)

    def region_at(self, phy_offset: int, until_phy_offset: int = 0) -> LogWindow | None:
        """Older bytes around this one, and on until another, through a map; None when not all of them are in
        memory and in one file. Worth it for reads of many bytes."""
        log_file = self.file_at(phy_offset)
        if log_file is None or until_phy_offset > min(log_file.end_phy_offset, self.max_phy_offset):
            return None
        if not log_file.can_be_mapped():
            return None
        return self._regions.over(log_file, phy_offset, until_phy_offset, self.max_phy_offset)

    def read(self, phy_offset: int, size_bytes: int) -> bytes | None:
        """Bytes of one file, from disk if need be; None when they are not there (any more)."""
        log_file = self.file_at(phy_offset)
        if log_file is None or phy_offset + size_bytes > log_file.end_phy_offset:
            return None
        raw = log_file.file.pread(size_bytes, phy_offset - log_file.start_phy_offset)
        return raw if len(raw) == size_bytes else None

    # -- shortening ------------------------------------------------------------------------------

    def truncate(self, phy_offset: int) -> None:
        """End the log at `phy_offset`: files behind it are removed, bytes behind it are zero and
        durable on return. Only while no other thread works on the log."""
        self.drop_prepared()
        self._regions.clear()
        while self.log_files and self._starts[-1] > max(phy_offset, self._starts[0]):
            self._remove(len(self.log_files) - 1)
        if (log_file := self.file_at(phy_offset)) is not None:
            log_file.zero(phy_offset - log_file.start_phy_offset)
        self.max_phy_offset = phy_offset
        self.flushed_phy_offset = min(self.flushed_phy_offset, phy_offset)

    def clear(self) -> None:
        """Remove all files, the last one first: an empty log may begin anywhere. As `truncate`."""
        self.drop_prepared()
        self._regions.clear()
        while self.log_files:
            self._remove(len(self.log_files) - 1)
        self.max_phy_offset = self.flushed_phy_offset = 0

    def remove_leftovers(self) -> None:
        """Remove what `load` left out: Apache would not open the store with it."""
        for path in self._leftovers:
            self._files.remove(path)
        self._leftovers = []

    def delete_first(self) -> Path:
        """Remove the oldest file, which is never the last one. OSError: it is still there."""
        return run_steps(self.delete_first_steps())

    def delete_first_steps(self) -> Steps[Path]:
        """The same in steps, one such work at a time: what frees a file's blocks takes its time."""
        assert len(self.log_files) > 1, "the last file of the log is never removed"
        log_file = self.log_files[0]
        is_removed = False

        def remove() -> None:
            nonlocal is_removed
            with suppress(FileNotFoundError):  # removed by another program
                self._files.remove(log_file.path)
            is_removed = True

        log_file.is_deleted = True
        try:
            yield remove
        finally:
            log_file.is_deleted = is_removed
            # Also when the waiter for the step is cancelled: the file is gone all the same.
            if is_removed:
                del self.log_files[0], self._starts[0]
                self._regions.forget(log_file)
                self._removed.append(log_file)
        yield from self.close_removed_steps()
        yield partial(self._files.sync_folder, log_file.path.parent)
        return log_file.path

    def close_removed_steps(self) -> Steps[None]:
        """Close removed files, in steps, except those still being read: the last descriptor of a
        file that is gone frees its blocks."""
        for log_file in [log_file for log_file in self._removed if not log_file.is_pinned]:
            self._removed.remove(log_file)
            yield log_file.close

    def _remove(self, index: int) -> None:
        log_file = self.log_files[index]
        self._files.remove(log_file.path)
        del self.log_files[index], self._starts[index]
        log_file.close()
        self._files.sync_folder(log_file.path.parent)

    def drop_prepared(self) -> None:
        """Remove a file that was prepared and not used, as a clean stop does."""
        with self._creating:
            self._drop_prepared()

    def close(self) -> None:
        """Close the files. Nothing is written or removed."""
        with self._creating:
            prepared, self.prepared = self.prepared, None
        for log_file in (*self.log_files, *self._removed, *([prepared] if prepared else [])):
            log_file.close()
        self.log_files.clear()
        self._removed.clear()
        self._starts.clear()
