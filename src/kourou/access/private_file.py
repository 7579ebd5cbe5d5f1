"""PrivateFile: a small file with secrets, which only its owner can read, replaced whole.

The content before is kept as `.bak`, closed to others as well. Whenever the machine stops, the file is there
with its old or its new content: unlike other files of `config`, it is never missing, and the `.bak` is never
taken in its place without an operator's decision, since what was forbidden since might be allowed by it.
Not here: what is in it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import Final

from kourou.errors import ConfigError

_MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_log = logging.getLogger(__name__)


class PrivateFile:
    """One file."""

    __slots__ = ("path", "backup_path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")

    def read(self) -> bytes | None:
        """The content; None if there is no file, nor a `.bak`. ConfigError: it cannot be read.

        A file that others can read is closed to them.
        """
        try:
            with self.path.open("rb") as file:
                self._close_to_others(file.fileno())
                return file.read()
        except FileNotFoundError:
            if self.backup_path.exists():
                raise ConfigError(
                    f"{self.path} is missing, but {self.backup_path.name} is there: rename that one to go on "
                    "with it, or remove it to begin without"
                ) from None
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror or error}") from None

    def write(self, data: bytes) -> None:
        """Replace the content; on return it is on disk. OSError: the old one is still there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(self.path.name + ".tmp")
        _write_new(temporary, data)
        if self.path.exists():
            # A file that a user wrote may be open to others; its secrets are still in force.
            with contextlib.suppress(OSError):
                self.path.chmod(_MODE)
            _give_name(self.path, self.backup_path)
        os.replace(temporary, self.path)
        _sync_folder(self.path.parent)

    def _close_to_others(self, fd: int) -> None:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if not mode & _OTHERS:
            return
        _log.warning("%s has secrets and mode %o, it gets mode %o", self.path, mode, _MODE)
        with contextlib.suppress(OSError):
            os.fchmod(fd, _MODE)


def _write_new(path: Path, data: bytes) -> None:
    """Write a file of our own, whatever had its name before."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _give_name(path: Path, name: Path) -> None:
    """Let `name` be another name of a file, in one step; of a copy, where files have one name only."""
    temporary = name.with_name(name.name + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        _write_new(temporary, path.read_bytes())
    os.replace(temporary, name)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
