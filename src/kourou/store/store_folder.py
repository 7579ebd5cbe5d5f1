"""The folder of a store: whether there may be one, and making it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kourou.errors import StoreFormatError
from kourou.store.disk.files import Files

# One of them is in every store; in a folder with other names only we do not begin a new one.
_STORE_NAMES: Final = frozenset(
    {"abort", "checkpoint", "commitlog", "config", "consumequeue", "index", "lock", "lost+found"}
)


def check_folder(files: Files, root: Path) -> None:
    """StoreFormatError for a folder that has files, and none that a store has."""
    names = [name for name in files.list_names(root) if not name.startswith(".")]
    if names and _STORE_NAMES.isdisjoint(names):
        raise StoreFormatError(
            root,
            f"not a store: it holds {names[0]} and {len(names) - 1} more, but neither commitlog nor "
            "config; give a store, or a new or empty folder",
        )


def make_root(files: Files, root: Path) -> None:
    """Make the store's folder; on return its name is on disk, without which all in it would be lost."""
    missing = [folder for folder in (root, *root.parents) if not files.is_folder(folder)]
    files.make_folder(root)
    for folder in missing:
        files.sync_folder(folder.parent)
