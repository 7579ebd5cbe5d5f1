"""DescriptorCache: open files for reading, the least recently used one closed when there are too many.

Safe to use from several threads: a file in use is closed by its last user.
Not here: what the files hold (queue_files.py); writers open and close on their own.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from threading import Lock
from typing import Final

from kourou.errors import StorageError
from kourou.store.disk.files import Files, OpenFile

_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE})


class CachedFile:
    """An open file and how many readers have it in their hands."""

    __slots__ = ("file", "forgotten", "users")

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.users = 1
        self.forgotten = False


class DescriptorCache:
    """At most `capacity` files stay open between uses."""

    __slots__ = ("_capacity", "_entries", "_files", "_forgets", "_lock", "refusal")

    def __init__(self, files: Files, capacity: int) -> None:
        self._files = files
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, CachedFile] = OrderedDict()
        self._lock = Lock()
        # How often names were forgotten: a file opened meanwhile may be one that is gone.
        self._forgets = 0
        # Raised in place of opening a file, once its name may mean another one; what is open stays usable.
        self.refusal: StorageError | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def take_nowait(self, key: Hashable) -> CachedFile | None:
        """The file if it is open, to be given back; never opens one, as that may wait for the disk."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                entry.users += 1
            return entry

    def take(self, key: Hashable, path: Callable[[], Path]) -> CachedFile:
        """The file, opened if need be, to be given back."""
        entry = self.take_nowait(key)
        if entry is not None:
            return entry
        forgets = self._forgets
        entry = CachedFile(self._open(path()))
        with self._lock:
            if self._forgets != forgets or key in self._entries:
                entry.forgotten = True  # used this once, closed when it is given back
            else:
                self._entries[key] = entry
                self._evict(self._capacity)
        return entry

    def give_back(self, entry: CachedFile) -> None:
        """The caller is done with the file."""
        with self._lock:
            entry.users -= 1
            if entry.forgotten and not entry.users:
                entry.file.close()

    def forget(self, key: Hashable) -> None:
        """The name no longer means this file: removed, or about to be made anew."""
        with self._lock:
            self._forgets += 1
            self._drop(self._entries.pop(key, None))

    def close(self) -> None:
        """Close all; what is in use is closed when given back."""
        with self._lock:
            self._forgets += 1
            self._evict(0)

    def _open(self, path: Path) -> OpenFile:
        if self.refusal is not None:
            raise self.refusal
        try:
            return self._files.open(path, writable=False)
        except OSError as error:
            if error.errno not in _TOO_MANY:
                raise
        with self._lock:
            self._evict(len(self._entries) // 2)
        return self._files.open(path, writable=False)

    def _evict(self, capacity: int) -> None:
        while len(self._entries) > capacity:
            self._drop(self._entries.popitem(last=False)[1])

    def _drop(self, entry: CachedFile | None) -> None:
        if entry is None:
            return
        entry.forgotten = True
        if not entry.users:
            entry.file.close()
