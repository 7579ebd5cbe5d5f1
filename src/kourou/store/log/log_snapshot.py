"""LogSnapshot: the files of a CommitLog for a thread that does not own it.

The owner opens, closes and removes files as it likes. Other threads that check records open the files
themselves: a descriptor of the owner's may be closed, and its number be another file's, at any moment.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from kourou.errors import StorageError
from kourou.store.disk.files import Files, OpenFile
from kourou.store.disk.map_guard import MapGuard
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_file import LOSS_CURE, LogFile

MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
"""The largest that is taken for a record: the body limit may have been larger once."""


class LogSnapshot:
    """The files of a log as they are now, for one thread that does not own the log: it opens them itself.
    FileNotFoundError when the log has deleted one meanwhile: take another snapshot. StorageError when the log
    has lost one."""

    def __init__(self, files: Files, log: CommitLog) -> None:
        self._files = files
        # Copied first: the owner may remove one meanwhile.
        self._log_files = [log_file for log_file in list(log.log_files) if not log_file.is_deleted]
        self._starts = [log_file.start_phy_offset for log_file in self._log_files]
        self._open: dict[int, OpenFile] = {}
        self._maps: dict[int, memoryview] = {}
        self.file_bytes = log.file_bytes
        self.max_phy_offset = log.max_phy_offset
        self.min_phy_offset = self._starts[0] if self._starts else self.max_phy_offset

    def file_at(self, phy_offset: int) -> LogFile | None:
        """The file that holds `phy_offset`; only its name and place are to be used."""
        index = bisect_right(self._starts, phy_offset) - 1
        if index < 0 or phy_offset >= self._log_files[index].end_phy_offset:
            return None
        return self._log_files[index]

    def read(self, phy_offset: int, size_bytes: int) -> bytes | None:
        """Bytes of one file; None when they are not there."""
        log_file = self.file_at(phy_offset)
        if log_file is None or phy_offset + size_bytes > log_file.end_phy_offset:
            return None
        raw = self._file(log_file).pread(size_bytes, phy_offset - log_file.start_phy_offset)
        return raw if len(raw) == size_bytes else None

    def read_into(self, target: memoryview, phy_offset: int) -> bool:
        """The same into memory that is there already; False when it is not filled."""
        log_file = self.file_at(phy_offset)
        if log_file is None:
            return False
        position = phy_offset - log_file.start_phy_offset
        return self._file(log_file).pread_into(target, position) == len(target)

    def descriptor_at(self, phy_offset: int) -> tuple[int, int, int] | None:
        """The open file with this byte, where in the log it begins, and up to where it may be read; None when
        there is no such file."""
        log_file = self.file_at(phy_offset)
        if log_file is None:
            return None
        end = min(log_file.end_phy_offset, self.max_phy_offset)
        return self._file(log_file).descriptor, log_file.start_phy_offset, end

    def view(self, low: int, high: int) -> memoryview | None:
        """Bytes of one file through a map, if they are in memory."""
        log_file = self.file_at(low)
        if log_file is None:
            return None
        file = self._file(log_file)
        begin, end = low - log_file.start_phy_offset, high - log_file.start_phy_offset
        if not file.is_resident(begin, end) or file.length() < end:
            return None
        # The map that pulls use, if there is one: its pages are looked up only once. None is made of it here,
        # since its owner may close the file meanwhile.
        mapped = log_file.map_in_use
        if mapped is None:
            mapped = self._maps.get(log_file.start_phy_offset)
        if mapped is None:
            mapped_file = file.map_readonly(log_file.size_bytes)
            MapGuard(mapped_file)
            mapped = memoryview(mapped_file)
            self._maps[log_file.start_phy_offset] = mapped
        return mapped[begin:end]

    def _file(self, log_file: LogFile) -> OpenFile:
        file = self._open.get(log_file.start_phy_offset)
        if file is None:
            try:
                file = self._files.open(log_file.path, writable=False)
            except FileNotFoundError:
                self._check_kept(log_file, None)
                raise
            self._check_kept(log_file, file)
            self._open[log_file.start_phy_offset] = file
        return file

    @staticmethod
    def _check_kept(log_file: LogFile, file: OpenFile | None) -> None:
        """StorageError if the log has lost the file: its messages may be put back, and are not to be taken
        for lost. Those of a file that the log has deleted itself are gone."""
        if log_file.is_deleted:
            return
        status = None if file is None else file.status()
        loss = log_file.find_misnaming(None if status is None else status.identity)
        if loss is None and status is not None and status.length_bytes < log_file.size_bytes:
            loss = f"{log_file.path} was cut short while it was in use"
        if loss is not None:
            if file is not None:
                file.close()
            raise StorageError(f"{loss}; {LOSS_CURE}", log_file.path)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
