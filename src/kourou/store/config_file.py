"""JsonConfigFile: one of the small JSON files of a store, replaced whole, with the one before as `.bak`.

Whenever the machine stops, the old or the new content is found again. Apache reads what is written
here and the reverse: same names, same order of looking.
Not here: what is in the files (config_tables.py), when they are written (broker).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from kourou.errors import ProtocolError, StoreFormatError
from kourou.protocol import fastjson
from kourou.store.disk.files import Files

_log = logging.getLogger(__name__)

T = TypeVar("T")

_EMPTY: Final = "empty"


class JsonConfigFile:
    """A file and its `.bak`. `problem` says what was wrong with the file when it was loaded last."""

    __slots__ = ("path", "backup_path", "problem", "_files", "_is_sound")

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self.problem: str | None = None
        self._files = files
        # Whether the file may become the `.bak`; None until checked.
        self._is_sound: bool | None = None

    def load(self) -> bytes | None:
        """The content, which is JSON; None when neither the file nor its `.bak` is there."""
        return self.load_as(_checked)

    def load_as(self, decode: Callable[[bytes], T]) -> T | None:
        """What `decode` makes of the content, of the `.bak` where it raises ProtocolError on the file.

        None when nothing is there. StoreFormatError when there is something, and nothing of it can
        be read: to go on would be to forget it.
        """
        found, self.problem = self._read(self.path, decode)
        self._is_sound = found is not None
        if found is not None:
            return found
        found, backup_problem = self._read(self.backup_path, decode)
        if found is None:
            self._refuse_damage(self.problem, backup_problem)
        if self.problem is not None:
            _log.warning("%s: %s; going on with %s", self.path, self.problem, self._origin(found))
        return found

    def store(self, data: bytes) -> None:
        """Replace the content; on return it is on disk, and what was there before is the `.bak`.

        A damaged file does not become the `.bak`: the one that is there may be the last good one.
        """
        if self._is_sound is None:
            self._is_sound = self._looks_sound()
        if not self._files.exists(self.path.parent):
            self._check_root(self.path.parent.parent)
            self._files.make_folder(self.path.parent)
            self._files.sync_folder(self.path.parent.parent)
        self._files.replace(self.path, data, backup=self.backup_path if self._is_sound else None)
        self._is_sound = True

    def _check_root(self, root: Path) -> None:
        """FileNotFoundError if the folder of the store is not there: an open store has one, so that it was
        moved away or removed, and must not be made anew."""
        if not self._files.is_folder(root):
            raise FileNotFoundError(errno.ENOENT, f"{root} was moved or removed", str(root))

    def _read(self, path: Path, decode: Callable[[bytes], T]) -> tuple[T | None, str | None]:
        """The decoded content, or None and what is wrong with it, if it is there at all."""
        try:
            raw = self._files.read(path)
        except FileNotFoundError:
            return None, None
        try:
            return decode(raw), None
        except ProtocolError as error:
            # Apache 4.9 does not sync these files: a power loss may leave one of no length, or of zeros.
            return None, f"damaged ({error})" if raw.strip(b"\0 \t\r\n") else _EMPTY

    def _refuse_damage(self, *problems: str | None) -> None:
        for problem in problems:
            if problem not in (None, _EMPTY):
                raise StoreFormatError(self.path, f"{problem}; repair it, or remove it to begin without it")

    def _origin(self, found: object) -> str:
        return "nothing" if found is None else str(self.backup_path)

    def _looks_sound(self) -> bool:
        found, _ = self._read(self.path, _checked)
        return found is not None


def _checked(raw: bytes) -> bytes:
    fastjson.parse(raw)
    return raw
