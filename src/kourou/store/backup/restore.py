"""restore: makes a store of a backup, checked against its manifest.

Files are first written to the folder `restoring` inside the new store, and moved to their places when all are
on disk: the checkpoint first, the CommitLog last. A broker that is started in between refuses the store, as
`restoring` alone is no store, and a log that ends before the checkpoint is an error.

The copy of a running broker's store is in the state of a killed broker's. Its first start dispatches the
records after the checkpoint to queues and index, with the broker's own settings (delay levels, file sizes),
unknown here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kourou.errors import StorageError, StoreFormatError
from kourou.store.backup.file_copies import copy_file, crc_of, sync_tree, try_link
from kourou.store.backup.manifest import STORE_NAME, BackupFile, Manifest, load_manifest
from kourou.store.disk.files import Files
from kourou.store.store_folder import make_root

STAGING_NAME: Final = "restoring"

Progress = Callable[[int, int], None]


def restore(
    files: Files, backup: Path, root: Path, *, copies_only: bool = False, progress: Progress | None = None
) -> Manifest:
    """Make a store in `root`, a new or empty folder; durable on return.

    With `copies_only` no file is linked to the one in the backup. StoreFormatError when the backup is
    incomplete, or a folder is not what it should be; StorageError when a file of the backup is damaged;
    OSError. Nothing is left in `root` then.
    """
    manifest = load_manifest(files, backup)
    _check_target(files, root)
    source = backup / STORE_NAME
    for file in manifest.files:
        _check_length(files, source, file)
    make_root(files, root)
    staging = root / STAGING_NAME
    try:
        _fill(files, source, staging, manifest, copies_only, progress)
    except BaseException:
        files.remove_tree(staging)
        raise
    _move(files, staging, root)
    return manifest


def _check_target(files: Files, root: Path) -> None:
    if files.exists(root) and not files.is_folder(root):
        raise StoreFormatError(root, "it is a file; give a new or empty folder for the store")
    names = files.list_names(root)
    if names:
        remains = "remains of an interrupted restore; remove them" if STAGING_NAME in names else ""
        hint = remains or f"it has {names[0]}"
        raise StoreFormatError(root, f"not empty: {hint}; give a new or empty folder for the store")


def _check_length(files: Files, source: Path, file: BackupFile) -> None:
    path = source / file.path
    try:
        length = files.length(path)
    except FileNotFoundError:
        raise StorageError(f"{path}: missing from the backup; use another backup", path) from None
    if length != file.length_bytes:
        raise StorageError(
            f"{path}: it has {length} bytes, {file.length_bytes} in the manifest; use another backup",
            path,
        )


def _fill(
    files: Files,
    source: Path,
    staging: Path,
    manifest: Manifest,
    copies_only: bool,
    progress: Progress | None,
) -> None:
    """Put all files into the staging folder, on disk."""
    total, done = manifest.size_bytes, 0

    def count(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        if progress is not None:
            progress(done, total)

    files.make_folder(staging)
    for file in manifest.files:
        original, target = source / file.path, staging / file.path
        files.make_folder(target.parent)
        if file.is_final and not copies_only and try_link(files, original, target):
            crc = crc_of(files, target, file.size_bytes, count)
        else:
            crc = copy_file(
                files,
                original,
                target,
                size_bytes=file.size_bytes,
                length_bytes=file.length_bytes,
                on_bytes=count,
            )
        if crc != file.crc32:
            raise StorageError(
                f"{original}: damaged: its CRC-32 is {crc:#010x}, {file.crc32:#010x} in the manifest; "
                "use another backup",
                original,
            )
    sync_tree(files, staging)


def _move(files: Files, staging: Path, root: Path) -> None:
    """Move everything to its place; on disk on return."""
    for name in sorted(files.list_names(staging), key=_order):
        if name == "commitlog":
            files.sync_folder(root)
        files.rename(staging / name, root / name)
    files.remove_folder(staging)
    files.sync_folder(root)


def _order(name: str) -> int:
    """The checkpoint first, the log last."""
    return {"checkpoint": 0, "commitlog": 2}.get(name, 1)
