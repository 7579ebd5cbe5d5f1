"""StoreLock: a store belongs to one process, and shows whether that process ended well.

Two files in the store's folder, as RocketMQ has them. `lock`: locked as long as the process lives
(file_lock.py). `abort`: there while the store is open, with the process id as text; found at the
next start, it says that the last owner was killed.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kourou.errors import StorageError
from kourou.store.disk.file_lock import FileLock, check_unlocked
from kourou.store.disk.files import Files

_log = logging.getLogger(__name__)

_LOCK: Final = "lock"


class StoreLock:
    """A store that this process has for itself. `was_clean`: its last owner closed it."""

    __slots__ = ("was_clean", "_files", "_abort_path", "_lock")

    def __init__(self, files: Files, abort_path: Path, lock: FileLock) -> None:
        self._files = files
        self._abort_path = abort_path
        self._lock = lock
        self.was_clean = not files.exists(abort_path)

    @classmethod
    def acquire(cls, files: Files, root: Path, abort_path: Path | None = None) -> StoreLock:
        """Lock the store in `root`, a folder that exists; no more is changed.

        StoreLockedError when another process has it, StorageError when the folder cannot be written.
        """
        path = root / _LOCK
        try:
            lock = files.lock(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"{path}: cannot be locked: {reason}; check owner and permissions", path
            ) from error
        return cls(files, abort_path or root / "abort", lock)

    @staticmethod
    def check_free(root: Path) -> None:
        """StoreLockedError when another process has the store in `root`, as far as that can be determined
        without taking it; nothing is changed."""
        check_unlocked(root / _LOCK)

    def mark_open(self) -> None:
        """Leave `abort`; on return it is on disk. From now on an end without `mark_clean` is a crash."""
        with self._files.open(self._abort_path, create=True) as file:
            file.set_length(0)
            file.pwrite(str(os.getpid()).encode(), 0)
        self._files.sync_folder(self._abort_path.parent)

    def keep(self) -> None:
        """Lock the file again that has the lock's name, if it is not the one that is locked: it was removed.
        StoreLockedError: another process has locked it meanwhile. In any thread, but one at a time."""
        if self._files.identity(self._lock.path) == self._lock.identity:
            return
        renewed, removed = self._files.lock(self._lock.path), self._lock
        self._lock = renewed
        removed.release()
        _log.warning("%s was removed under the running broker, and is locked anew", renewed.path)

    def mark_clean(self) -> None:
        """Remove `abort`: all that was written is on disk. On return that is on disk too."""
        with suppress(FileNotFoundError):
            self._files.remove(self._abort_path)
        self._files.sync_folder(self._abort_path.parent)

    def release(self) -> None:
        """Let others have the store; a second time does nothing."""
        self._lock.release()

    def __enter__(self) -> StoreLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
