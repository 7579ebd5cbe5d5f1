"""Properties files on disk: read whole, replaced atomically.

Not here: the text's syntax (properties.py), which keys exist (keys.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kourou.config.properties import Property, merge_properties, parse_properties
from kourou.errors import ConfigError

_MAX_BYTES = 1 << 20  # a configuration file is a few KiB; more is a wrong path, such as a log


def read_properties(path: Path) -> list[Property]:
    """Read the entries of a file; ConfigError if it cannot be read."""
    return parse_properties(read_text(path))


def read_text(path: Path) -> str:
    """The text of a file: UTF-8, or else ISO-8859-1, which is what Java assumes."""
    raw = _read_bytes(path)
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: more than {_MAX_BYTES} bytes; this is not a configuration file")
    if b"\0" in raw:
        raise ConfigError(f"{path}: not a text file; is the path right?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def update_file(path: Path, changes: Mapping[str, str]) -> None:
    """Put changed values into the file, keeping its comments; created if it does not exist.

    On return the new text is on disk. The text before it is kept beside it as `.bak`.
    """
    before = read_text(path) if path.exists() else ""
    if before:
        replace_file(path.with_name(path.name + ".bak"), before)
    replace_file(path, merge_properties(before, changes))


def replace_file(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one, never a part.

    Not readable by others: a configuration may hold a key's password. An existing file keeps its
    mode, and a link stays a link.
    """
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        _write_and_rename(path, text.encode(), mode)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def _write_and_rename(path: Path, raw: bytes, mode: int) -> None:
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
