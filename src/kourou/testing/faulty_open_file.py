"""FaultyOpenFile: an open file on a faulty disk. Records unsynced changes before it changes the real file.

Not here: the model of what is unsynced (unsynced_file.py), when something fails (faulty_machine.py).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.store.disk.files import OpenFile
from kourou.store.disk.page_cache import MappedPages
from kourou.testing.faulty_machine import FaultyMachine, SimulatedCrash
from kourou.testing.unsynced_file import UnsyncedFile

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class FaultyOpenFile(OpenFile):
    """An open file of a `FaultyFiles`; `closed` is called when it is closed."""

    __slots__ = ("_machine", "_unsynced", "_closed", "_is_dead")

    def __init__(
        self,
        machine: FaultyMachine,
        path: Path,
        fd: int,
        unsynced: UnsyncedFile,
        closed: Callable[[FaultyOpenFile], None],
    ) -> None:
        super().__init__(path, fd)
        self._machine = machine
        self._closed = closed
        self._unsynced = unsynced
        self._is_dead = False

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check_alive()
        self._machine.call("pread", self.path)
        return super().pread(size_bytes, position)

    def pread_nowait(self, size_bytes: int, position: int) -> bytes | bytearray | None:
        self._check_alive()
        self._machine.call("pread", self.path)
        return None if self._machine.cold else super().pread_nowait(size_bytes, position)

    def is_resident(self, position: int, end: int, mapped: MappedPages | None = None) -> bool:
        return not self._machine.cold and super().is_resident(position, end, mapped)

    def map_readonly(self, size_bytes: int) -> mmap.mmap:
        self._check_alive()
        self._machine.call("map", self.path)
        self._unsynced.is_mapped = True
        return super().map_readonly(size_bytes)

    def length(self) -> int:
        self._check_alive()
        self._machine.call("look", self.path)
        return super().length()

    def data_end(self, position: int = 0) -> int:
        self._check_alive()
        self._machine.call("look", self.path)
        return super().data_end(position)

    def sync(self) -> None:
        with self._machine.turn:
            self._check_alive()
            try:
                self._machine.call("sync", self.path)
            except OSError:
                self._unsynced.sync_failed()
                raise
            self._machine.stop_here()
            self._unsynced.synced()

    def preallocate(self, size_bytes: int) -> None:
        with self._machine.turn:
            self._check_alive()
            self._machine.call("preallocate", self.path)
            if size_bytes > self._unsynced.length:
                self._change_length(size_bytes, super().preallocate)
            self._machine.stop_here()

    def set_length(self, size_bytes: int) -> None:
        with self._machine.turn:
            self._check_alive()
            self._machine.call("set_length", self.path)
            self._change_length(size_bytes, super().set_length)
            self._machine.stop_here()

    def close(self) -> None:
        with self._machine.turn:
            self._closed(self)
            super().close()

    def die(self) -> None:
        """The power is off: every later call raises."""
        self._is_dead = True
        self.close()

    def _write_once(self, _: int, data: Buffer, position: int) -> int:
        return self._write(memoryview(data).tobytes(), position)

    def _writev_once(self, parts: Sequence[Buffer], position: int) -> int:
        return self._write(b"".join(parts), position)

    def _write(self, data: bytes, position: int) -> int:
        with self._machine.turn:
            self._check_alive()
            due = self._machine.due_fault("pwrite", self.path)
            stored = data if due is None else data[: due.stored_bytes(len(data))]
            self._unsynced.record_write(self._fd, self._machine.tick(), position, stored)
            if stored:
                os.pwrite(self._fd, stored, position)
            self._machine.stop_here()
            if due is not None and due.error is not None:
                raise OSError(due.error, os.strerror(due.error), str(self.path))
            return len(stored)

    def _change_length(self, size_bytes: int, change: Callable[[int], None]) -> None:
        data_end = OpenFile.data_end(self, size_bytes) if size_bytes < self._unsynced.length else 0
        self._unsynced.record_length(self._fd, self._machine.tick(), size_bytes, data_end)
        change(size_bytes)

    def _check_alive(self) -> None:
        if self._is_dead:
            raise SimulatedCrash
