"""Manifest: what a backup holds, as `backup.json` in its folder; the store's files are in `store` beside it.

The manifest is written last, in one step: a folder without it is an incomplete backup. For each file it has
the CRC-32 of the first `size_bytes`; the rest, up to `length_bytes`, is zeros.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from kourou.errors import StoreFormatError
from kourou.store.disk.files import Files

MANIFEST_NAME: Final = "backup.json"
STORE_NAME: Final = "store"
VERSION: Final = 1
"""Of the format. Another number means that this version cannot restore it."""


class BackupFile(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One file. `path` is relative to the store. `is_final`: a file of the CommitLog whose bytes nothing
    changes any more, so that it may be linked; `inode` and `modified_ns` are those of the original."""

    path: str
    size_bytes: int
    length_bytes: int
    crc32: int
    is_final: bool = False
    modified_ns: int = 0
    inode: int = 0


class Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One backup. The CommitLog goes from `min_phy_offset` to `end_phy_offset`, all whole records.
    `left_out` are names in the store's folder that were not copied."""

    version: int
    program: str
    store: str
    begun_ms: int
    completed_ms: int
    min_phy_offset: int
    end_phy_offset: int
    files: list[BackupFile]
    left_out: list[str] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, without the zeros behind their content."""
        return sum(file.size_bytes for file in self.files)


class _Version(msgspec.Struct):
    version: int


def store_manifest(files: Files, folder: Path, manifest: Manifest) -> None:
    """Complete a backup; on disk on return."""
    try:
        raw = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    except UnicodeEncodeError as error:
        raise StoreFormatError(Path(manifest.store), f"the name of a file is not UTF-8: {error}") from error
    files.replace(folder / MANIFEST_NAME, raw + b"\n")


def load_manifest(files: Files, folder: Path) -> Manifest:
    """The manifest of a backup; StoreFormatError if there is none, or it cannot be used."""
    path = folder / MANIFEST_NAME
    try:
        raw = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreFormatError(folder, _why_none(files, folder)) from None
    try:
        version = msgspec.json.decode(raw, type=_Version).version
        if version != VERSION:
            raise StoreFormatError(
                path, f"its version is {version}, this program restores version {VERSION}: use a newer one"
            )
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreFormatError(path, f"damaged: {error}") from error
    for file in manifest.files:
        _check_file(path, file)
    return manifest


def _why_none(files: Files, folder: Path) -> str:
    if not files.is_folder(folder):
        return "there is no such folder"
    if files.exists(folder / STORE_NAME):
        return (
            f"the backup is incomplete: it has no {MANIFEST_NAME}, which is written last; it was interrupted "
            "or is still running. Use another backup"
        )
    return f"not a backup: it has no {MANIFEST_NAME}"


def _check_file(path: Path, file: BackupFile) -> None:
    """StoreFormatError for an entry that no backup has: it could write outside the store."""
    pure = PurePosixPath(file.path)
    is_inside = bool(pure.parts) and not pure.is_absolute() and ".." not in pure.parts
    if not is_inside or not 0 <= file.size_bytes <= file.length_bytes or "\0" in file.path:
        raise StoreFormatError(path, f"damaged: the entry {file.path!r} is not one of a store's file")
