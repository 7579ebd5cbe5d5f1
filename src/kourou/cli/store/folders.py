"""Which store a folder on the command line means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kourou.errors import ConfigError
from kourou.store.disk.files import Files
from kourou.store.store_layout import stores_in


def one_store(files: Files, folder: Path, log_folders: Sequence[Path] = ()) -> Path:
    """The store in a folder: the folder itself, or the one in it. ConfigError if there are several."""
    stores = [folder] if log_folders else stores_in(files, folder)
    if len(stores) > 1:
        names = ", ".join(map(str, stores))
        raise ConfigError(f"{folder}: contains several stores; choose one of them: {names}")
    return stores[0]
