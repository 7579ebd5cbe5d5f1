"""FaultyFiles: the store's files on a disk that fails on demand and a machine that loses power.

Same interface as `Files`, over real files: everything reads back as written, until `crash` puts the tree
into a state that a power loss may leave. Syncs are only counted: nothing waits for the real disk.

    files = FaultyFiles()
    files.fail("sync", nth=3)                 # EIO, once; from then on with for_ever=True
    files.crash_at(17)                        # SimulatedCrash from the 17th change on, in every call
    files.crash(seed)                         # what was not synced: kept, dropped, torn, reordered
    files.flip_bit(path, position)            # damage at rest

Files that exist when the object is created count as on disk. After `crash` the same object serves the next
start; earlier open files and locks are dead. Thread-safe.
Not here: what survives (survival.py), the record of changes (unsynced_file.py, unsynced_names.py).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from kourou.store.disk.file_lock import FileLock
from kourou.store.disk.files import DiskUsage, Files, OpenFile
from kourou.testing.faults import fault
from kourou.testing.faulty_machine import FaultyMachine, SimulatedCrash
from kourou.testing.faulty_open_file import FaultyOpenFile
from kourou.testing.sparse_content import SparseContent
from kourou.testing.survival import Survival, by_seed
from kourou.testing.unsynced_file import UnsyncedFile
from kourou.testing.unsynced_names import UnsyncedNames

__all__ = ["FaultyFiles", "SimulatedCrash"]


class FaultyFiles(Files):
    """Files that fail on demand; `usage` replaces the usage of the disk."""

    def __init__(self) -> None:
        self.usage: DiskUsage | None = None
        self._machine = FaultyMachine()
        self._unsynced: dict[Path, UnsyncedFile] = {}
        self._names = UnsyncedNames()
        self._open_files: set[FaultyOpenFile] = set()
        self._locks: list[FileLock] = []

    @property
    def changes(self) -> int:
        """The number of calls that changed something."""
        return self._machine.changes

    @property
    def sync_points(self) -> list[int]:
        """Which of the changes were syncs of a file or a folder: numbers for `crash_at` on a new object."""
        return self._machine.sync_points

    @property
    def crashed(self) -> bool:
        """Whether the power is off, so that `crash` has to be called before anything else."""
        return self._machine.crashed

    def chill(self) -> None:
        """Simulate an empty page cache: every `pread_nowait` returns None."""
        self._machine.cold = True

    # ── faults ──────────────────────────────────────────────────────────────────────────────

    def fail(
        self,
        kinds: str | Collection[str],
        nth: int = 1,
        *,
        error: int = errno.EIO,
        for_ever: bool = False,
        written_bytes: int = 0,
        part_of_path: str = "",
    ) -> None:
        """Make the nth call from now, of these kinds (faults.py), fail; a write after `written_bytes`."""
        self._machine.faults.append(
            fault(
                kinds,
                nth,
                error=error,
                for_ever=for_ever,
                written_bytes=written_bytes,
                part_of_path=part_of_path,
            )
        )

    def short_write(self, nth: int = 1, *, written_bytes: int = -1, for_ever: bool = False) -> None:
        """Make the nth write from now store only its first bytes (-1: half), without an error."""
        self._machine.faults.append(
            fault("pwrite", nth, error=None, written_bytes=written_bytes, for_ever=for_ever)
        )

    def heal(self) -> None:
        self._machine.faults.clear()

    def crash_at(self, nth: int) -> None:
        """Lose power in the nth change from now: that one is unsynced, and every later call raises."""
        self._machine.crash_at = self.changes + nth

    def crash(self, survival: int | Survival, *, sector_bytes: int | None = None) -> None:
        """Lose power now, or continue after `crash_at`: the files become what the disk has, and work again.

        `survival` is a seed or a function (survival.py). Even seeds tear at 4096 bytes, odd ones at 512.
        """
        with self._machine.turn:
            if isinstance(survival, int):
                sector_bytes = sector_bytes or (512 if survival % 2 else 4096)
                survival = by_seed(survival, self._machine.now)
            self._end_all()
            self._names.lose_power(survival)
            for path, unsynced in sorted(self._unsynced.items()):
                if path.exists() and not unsynced.is_clean:
                    self._lose_power(path, unsynced, survival, sector_bytes or 512)
            self._unsynced.clear()
            self._machine.restart()

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Flip one bit of a file that is not open."""
        with OpenFile(path, os.open(path, os.O_RDWR)) as file:
            (byte,) = file.pread(1, position)
            file.pwrite(bytes([byte ^ 1 << bit]), position)

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Truncate a file that is not open."""
        os.truncate(path, size_bytes)
        self._unsynced.pop(_absolute(path), None)

    def unsynced_paths(self) -> list[Path]:
        """The files whose content or name a power loss may change."""
        names = {name for change in self._names.changes for name in change.names}
        contents = {path for path, unsynced in self._unsynced.items() if not unsynced.is_clean}
        return sorted(names | contents)

    # ── the interface of Files ───────────────────────────────────────────────────────────────

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> FaultyOpenFile:
        with self._machine.turn:
            path = _absolute(path)
            is_new = (create or exclusive) and not path.exists()
            self._machine.call("create" if is_new else "open", path)
            fd = super().open(path, writable=writable, create=create, exclusive=exclusive)._fd
            file = FaultyOpenFile(
                self._machine, path, fd, self._unsynced_file(path, fd), self._open_files.discard
            )
            self._open_files.add(file)
            if is_new:
                self._record_name(lambda: self._undo_create(path), path)
            return file

    def list_names(self, path: Path) -> list[str]:
        self._machine.call("look", path)
        return super().list_names(path)

    def exists(self, path: Path) -> bool:
        self._machine.call("look", path)
        return super().exists(path)

    def is_folder(self, path: Path) -> bool:
        self._machine.call("look", path)
        return super().is_folder(path)

    def length(self, path: Path) -> int:
        self._machine.call("look", path)
        return super().length(path)

    def modified_ms(self, path: Path) -> int:
        self._machine.call("look", path)
        return super().modified_ms(path)

    def disk_usage(self, path: Path) -> DiskUsage:
        self._machine.call("look", path)
        return self.usage or super().disk_usage(path)

    def remove(self, path: Path) -> None:
        with self._machine.turn:
            path = _absolute(path)
            self._machine.call("remove", path)
            undo = self._undo_remove(path)
            super().remove(path)
            self._unsynced.pop(path, None)
            self._record_name(undo, path)

    def remove_folder(self, path: Path) -> None:
        with self._machine.turn:
            path = _absolute(path)
            self._machine.call("remove", path)
            super().remove_folder(path)
            self._record_name(lambda: os.mkdir(path), path)

    def rename(self, source: Path, target: Path) -> None:
        with self._machine.turn:
            source, target = _absolute(source), _absolute(target)
            self._machine.call("rename", source)
            put_back = self._undo_remove(target) if target.is_file() else None
            super().rename(source, target)
            self._move(source, target)
            self._record_name(lambda: self._undo_rename(source, target, put_back), source, target)

    def sync_folder(self, path: Path) -> None:
        with self._machine.turn:
            path = _absolute(path)
            self._machine.call("sync_folder", path)
            self._machine.stop_here()
            if not path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._names.synced(path)

    def sync_all(self, path: Path) -> bool:
        with self._machine.turn:
            try:
                self._machine.call("sync", _absolute(path))
            except OSError:
                for unsynced in self._unsynced.values():
                    unsynced.sync_failed()
                raise
            self._machine.stop_here()
            for unsynced in self._unsynced.values():
                unsynced.synced()
            self._names.changes.clear()
            return True

    def lock(self, path: Path) -> FileLock:
        with self._machine.turn:
            path = _absolute(path)
            self._machine.call("lock", path)
            is_new = not path.exists()
            lock = super().lock(path)
            self._locks.append(lock)
            if is_new:
                self._record_name(lambda: self._undo_create(path), path)
            return lock

    def _make_one_folder(self, path: Path) -> None:
        with self._machine.turn:
            path = _absolute(path)
            self._machine.call("make_folder", path)
            super()._make_one_folder(path)
            self._record_name(lambda: self._undo_make_folder(path), path)

    # ── bookkeeping ──────────────────────────────────────────────────────────────────────────

    def _record_name(self, undo: Callable[[], None], *names: Path) -> None:
        self._names.record(self._machine.tick(), names, undo)
        self._machine.stop_here()

    def _unsynced_file(self, path: Path, fd: int) -> UnsyncedFile:
        if path not in self._unsynced:
            self._unsynced[path] = UnsyncedFile(os.fstat(fd).st_size)
        return self._unsynced[path]

    def _end_all(self) -> None:
        for file in list(self._open_files):
            file.die()
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def _lose_power(self, path: Path, unsynced: UnsyncedFile, survival: Survival, sector_bytes: int) -> None:
        if unsynced.is_mapped:
            # A mapping of the old store may still exist: truncating its file would kill the process.
            SparseContent.of(path).restore_at(path)
        with OpenFile(path, os.open(path, os.O_RDWR)) as file:
            unsynced.lose_power(file._fd, survival, sector_bytes)

    def _move(self, source: Path, target: Path) -> None:
        """Move the records of a file, or of all files in a folder."""
        self._unsynced.pop(target, None)
        for path in [path for path in self._unsynced if path == source or source in path.parents]:
            self._unsynced[target / path.relative_to(source)] = self._unsynced.pop(path)

    def _undo_create(self, path: Path) -> None:
        os.unlink(path)
        self._unsynced.pop(path, None)

    def _undo_make_folder(self, path: Path) -> None:
        shutil.rmtree(path)
        for lost in [inner for inner in self._unsynced if path in inner.parents]:
            del self._unsynced[lost]

    def _undo_remove(self, path: Path) -> Callable[[], None]:
        content, unsynced = SparseContent.of(path), self._unsynced.get(path)

        def undo() -> None:
            content.restore_at(path)
            if unsynced is not None:
                self._unsynced[path] = unsynced

        return undo

    def _undo_rename(self, source: Path, target: Path, put_back: Callable[[], None] | None) -> None:
        os.rename(target, source)
        self._move(target, source)
        if put_back is not None:
            put_back()


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))
