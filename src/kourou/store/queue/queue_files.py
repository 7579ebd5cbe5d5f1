"""QueueFiles: where the units of all ConsumeQueues lie on disk.

`<root>/<topic>/<queue_id>/<start>`: `start` is the position of the file's first byte among all
bytes the queue ever had, in 20 digits. Files have one size, full length from the start, and are
sparse: 50,000 queues would otherwise take 300 GB. A position is a byte of that endless row, so
unit k is at position 20 k. The last file ends in zeros.

Nothing here is synced before `sync`: ConsumeQueues can be rebuilt from the CommitLog.
Not here: what is in memory (consume_queue.py), where the units end (queue_recovery.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files, OpenFile
from kourou.store.queue.cq_unit import BLANK_UNIT, UNIT_BYTES
from kourou.store.queue.descriptor_cache import CachedFile, DescriptorCache
from kourou.store.queue.unit_blocks import UnitBlocks

if TYPE_CHECKING:
    from kourou.store.queue.consume_queue import ConsumeQueue

_log = logging.getLogger(__name__)

_NAME_DIGITS: Final = 20
# So many single syncs take longer than one of the whole file system, whatever else it holds.
_MANY_SYNCS: Final = 256

_FileKey = tuple[str, int, int]  # topic, queue_id, start


class UnitVerifier(Protocol):
    """Has units fit their records (queue_verifier.py)."""

    def verify(self, queue: ConsumeQueue, queue_offset: int, count: int, /) -> None: ...


class QueueFiles:
    """Files of one store's queues. Reads and `write` may run in any thread."""

    def __init__(self, files: Files, root: Path, file_size_bytes: int, open_files: int) -> None:
        self.files = files
        self.root = root
        # Apache rounds up too: a file holds whole units.
        self.file_bytes = -(-file_size_bytes // UNIT_BYTES) * UNIT_BYTES
        self.units_per_file = self.file_bytes // UNIT_BYTES
        # Held while units go to disk and while files are cut or removed, so that a flush in
        # another thread never brings back what is gone.
        self.lock = Lock()
        self.snapshot_path = root.with_name(root.name + ".snapshot")
        self._deleted = root.with_name(root.name + ".deleted")
        self.covered_phy_offset = 0  # up to which byte of the log the snapshot has all units
        self._may_have_snapshot = True
        self._root_text = str(root)
        self._readers = DescriptorCache(files, open_files)
        self.blocks = UnitBlocks()
        self.verifier: UnitVerifier | None = None
        self._unsynced: dict[_FileKey, None] = {}
        self._unsynced_folders: dict[Path, None] = {}
        self._failed_sync: OSError | None = None

    # -- names -----------------------------------------------------------------------------------

    def folder(self, topic: str, queue_id: int) -> Path:
        """Where a queue's files are."""
        return Path(f"{self._root_text}/{topic}/{queue_id}")

    def path(self, topic: str, queue_id: int, start: int) -> Path:
        """The file that begins at position `start`."""
        return Path(f"{self._root_text}/{topic}/{queue_id}/{start:020d}")

    def start_of(self, position: int) -> int:
        """Where the file that holds `position` begins."""
        return position - position % self.file_bytes

    def list_starts(self, topic: str, queue_id: int) -> list[int]:
        """The files of a queue that are there, in order. Foreign names are passed over.

        StoreFormatError when they were written with another file size, or there is no such folder
        but a file of its name.
        """
        folder = self.folder(topic, queue_id)
        starts = []
        for name in self._list_names(folder):
            if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
                _log.warning("%s is not a file of a ConsumeQueue; ignored", folder / name)
                continue
            starts.append(self._checked_start(folder, name))
        return starts

    def _list_names(self, folder: Path) -> list[str]:
        try:
            return self.files.list_names(folder)
        except NotADirectoryError as error:
            raise StoreFormatError(folder, "it should be a folder; move it away") from error

    def _checked_start(self, folder: Path, name: str) -> int:
        start = int(name)
        if start % self.file_bytes:
            raise StoreFormatError(
                folder / name,
                f"its name is not a multiple of the configured {self.file_bytes} bytes; "
                "open the store with the mappedFileSizeConsumeQueue it was written with",
            )
        return start

    def length(self, topic: str, queue_id: int, start: int) -> int:
        """Length of a file, -1 when it is not there."""
        try:
            return self.files.length(self.path(topic, queue_id, start))
        except (FileNotFoundError, NotADirectoryError):
            return -1

    # -- reading ---------------------------------------------------------------------------------

    def refuse_opening(self, refusal: StorageError) -> None:
        """The names of the files may mean others: open no more of them to read, but raise `refusal`."""
        self._readers.refusal = refusal

    def read(self, topic: str, queue_id: int, position: int, size_bytes: int) -> bytes:
        """Bytes of one file, from disk if need be; fewer, or none, where the file is not there."""
        start = self.start_of(position)
        try:
            entry = self._readers.take((topic, queue_id, start), lambda: self.path(topic, queue_id, start))
        except FileNotFoundError:
            return b""
        try:
            return entry.file.pread(size_bytes, position - start)
        finally:
            self._readers.give_back(entry)

    def read_nowait(self, topic: str, queue_id: int, position: int, size_bytes: int) -> bytes | None:
        """The same if the file is open and the bytes are in memory, else None. Never waits."""
        start = self.start_of(position)
        entry = self._readers.take_nowait((topic, queue_id, start))
        return None if entry is None else self._read_entry_nowait(entry, position - start, size_bytes)

    def _read_entry_nowait(self, entry: CachedFile, position_in_file: int, size_bytes: int) -> bytes | None:
        try:
            raw = entry.file.pread_nowait(size_bytes, position_in_file)
            return None if raw is None else bytes(raw)
        finally:
            self._readers.give_back(entry)

    def read_data(self, topic: str, queue_id: int, start: int) -> tuple[bytes, int]:
        """A file from its start to its last byte that is not hole, and its length.

        Of a file that is too short only whole units: half a unit may look like another one.
        """
        with self.files.open(self.path(topic, queue_id, start), writable=False) as file:
            length = file.length()
            if length > self.file_bytes:
                raise StoreFormatError(
                    file.path,
                    f"it has {length} bytes where {self.file_bytes} are configured; "
                    "open the store with the mappedFileSizeConsumeQueue it was written with",
                )
            whole_bytes = length // UNIT_BYTES * UNIT_BYTES
            return file.pread(min(file.data_end(), whole_bytes), 0), length

    # -- writing ---------------------------------------------------------------------------------

    def write(self, topic: str, queue_id: int, position: int, data: bytes | bytearray) -> None:
        """Put units at `position`, over several files if need be. In the page cache on return.

        Files and folders are made where they are missing. To be called with `lock` held.
        """
        view = memoryview(data)
        while view:
            start = self.start_of(position)
            room_bytes = start + self.file_bytes - position
            self._write_piece((topic, queue_id, start), position - start, view[:room_bytes])
            position += min(room_bytes, len(view))
            view = view[room_bytes:]

    def _write_piece(self, key: _FileKey, position_in_file: int, piece: memoryview) -> None:
        with self._open(self.path(*key), position_in_file) as file:
            file.pwrite(piece, position_in_file)
        self._unsynced[key] = None

    def rewrite(self, topic: str, queue_id: int, position: int, data: bytes) -> None:
        """The same for units that were wrong: their files may be gone, or too short."""
        first, last = self.start_of(position), self.start_of(position + len(data) - 1)
        starts = range(first, last + 1, self.file_bytes)
        for start in starts:
            self._readers.forget((topic, queue_id, start))
        self.write(topic, queue_id, position, data)
        for start in starts:
            with self.files.open(self.path(topic, queue_id, start)) as file:
                if file.length() < self.file_bytes:
                    file.set_length(self.file_bytes)

    def _open(self, path: Path, position_in_file: int) -> OpenFile:
        """Open a file that is there unless its first unit is to be written, or it was removed."""
        if position_in_file:
            with suppress(FileNotFoundError):
                return self.files.open(path)
        return self._create(path, position_in_file)

    def _create(self, path: Path, blank_bytes: int) -> OpenFile:
        file = self._open_new(path)
        try:
            file.set_length(self.file_bytes)
            if blank_bytes:
                # A queue that begins inside a file: its readers stop at a unit of zeros.
                file.pwrite(BLANK_UNIT * (blank_bytes // UNIT_BYTES), 0)
        except OSError:
            file.close()
            self._remove_path(path)
            raise
        self._unsynced_folders[path.parent] = None
        return file

    def _open_new(self, path: Path) -> OpenFile:
        try:
            return self.files.open(path, create=True)
        except FileNotFoundError:
            self.files.make_folder(path.parent)
        for folder in (path.parent.parent, self.root, self.root.parent):
            self._unsynced_folders[folder] = None
        return self.files.open(path, create=True)

    def sync(self) -> None:
        """All units written before the call are on disk on return, and the names of their files.

        After an OSError it is unknown what is on disk, and a second try may succeed without having
        written anything: so it fails forever, and the next start rebuilds what is in doubt.
        """
        if self._failed_sync is not None:
            raise OSError(self._failed_sync.errno, f"a sync of ConsumeQueues failed: {self._failed_sync}")
        with self.lock:
            keys, self._unsynced = self._unsynced, {}
            folders, self._unsynced_folders = self._unsynced_folders, {}
        try:
            if len(keys) + len(folders) < _MANY_SYNCS or not self.files.sync_all(self.root):
                self._sync_each(keys, folders)
        except OSError as error:
            self._failed_sync = error
            raise

    def _sync_each(self, keys: Iterable[_FileKey], folders: Iterable[Path]) -> None:
        for key in keys:
            self._sync_file(self.path(*key))
        for folder in folders:
            with suppress(FileNotFoundError):
                self.files.sync_folder(folder)

    def _sync_file(self, path: Path) -> None:
        with suppress(FileNotFoundError), self.files.open(path) as file:
            file.sync()

    def save_snapshot(self, raw: bytes) -> None:
        """Put the snapshot (queue_snapshot.py) in place of the one before; on disk on return."""
        self._may_have_snapshot = True
        self.files.make_folder(self.snapshot_path.parent)
        self.files.replace(self.snapshot_path, raw)

    # -- shortening; all with `lock` held --------------------------------------------------------

    def drop_snapshot(self) -> None:
        """Units or files are about to go on purpose: after a crash they are not to be missed."""
        if self._may_have_snapshot and self.files.exists(self.snapshot_path):
            self.files.remove(self.snapshot_path)
            self.files.sync_folder(self.snapshot_path.parent)
        self._may_have_snapshot = False
        self.covered_phy_offset = 0

    def cut(self, topic: str, queue_id: int, position: int) -> None:
        """Zero what follows `position` in its file, which gets its full length again."""
        start = self.start_of(position)
        with (
            suppress(FileNotFoundError),
            self.files.open(self.path(topic, queue_id, start)) as file,
        ):
            if (length := file.length()) < self.file_bytes:
                # A power loss leaves such files; but all of one length are from another configuration.
                _log.warning(
                    "%s has %d bytes where %d are configured, and gets as many; was the store written with "
                    "another mappedFileSizeConsumeQueue?",
                    file.path,
                    length,
                    self.file_bytes,
                )
            file.set_length(position - start)
            file.set_length(self.file_bytes)
        self._unsynced[(topic, queue_id, start)] = None

    def remove_first(self, topic: str, queue_id: int, start: int) -> None:
        """Remove a queue's first file; its name is gone from disk on return: coming back without the
        files behind it, it would hide all that follow."""
        self.remove(topic, queue_id, start)
        self.files.sync_folder(self.folder(topic, queue_id))

    def remove(self, topic: str, queue_id: int, start: int) -> None:
        """Remove a file; nothing happens when it is not there."""
        key = (topic, queue_id, start)
        self._readers.forget(key)
        self._unsynced.pop(key, None)
        path = self.path(topic, queue_id, start)
        self._remove_path(path)
        self._unsynced_folders[path.parent] = None

    def _remove_path(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self.files.remove(path)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove a queue's files, and the folder if nothing else is in it."""
        for start in self.list_starts(topic, queue_id):
            self.remove(topic, queue_id, start)
        folder = self.folder(topic, queue_id)
        if self.files.is_folder(folder) and not self.files.list_names(folder):
            self.files.remove_folder(folder)
        self._unsynced_folders.pop(folder, None)
        self._unsynced_folders[folder.parent] = None

    def move_away(self, topic: str, queue_ids: Iterable[int]) -> None:
        """Take a topic's folder away, with all in it: in one step, so that a crash keeps or takes all
        of it. In a queue that came back in part new messages would get the offsets of others.

        OSError: nothing has changed.
        """
        folder = self.root / topic
        if not self.files.is_folder(folder):
            return
        keys = [
            (topic, queue_id, start) for queue_id in queue_ids for start in self.list_starts(topic, queue_id)
        ]
        self.remove_moved()
        self.files.make_folder(self._deleted)
        self.files.rename(folder, self._deleted / topic)
        for key in keys:
            self._readers.forget(key)
            self._unsynced.pop(key, None)
        for unsynced in [path for path in self._unsynced_folders if folder in (path, path.parent)]:
            del self._unsynced_folders[unsynced]

    def sync_moved(self) -> None:
        """What was moved away is so on disk on return."""
        if self.files.is_folder(self._deleted):
            self.files.sync_folder(self.root)
            self.files.sync_folder(self._deleted)

    def remove_moved(self) -> None:
        """Remove what was moved away, as far as the disk permits: it is not needed."""
        try:
            self.files.remove_tree(self._deleted)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", self._deleted, error.strerror or error)

    def close(self) -> None:
        self.blocks.clear()
        self._readers.close()
