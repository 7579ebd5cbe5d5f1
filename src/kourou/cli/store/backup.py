"""`kourou store backup` and `kourou store restore`: run them, show their progress, print the outcome."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.cli.store.folders import one_store
from kourou.cli.store.progress import progress_bar
from kourou.clock import wall_ms
from kourou.store.backup.backup import BackupOptions, back_up
from kourou.store.backup.manifest import Manifest
from kourou.store.backup.restore import restore
from kourou.store.disk.files import Files
from kourou.wording import counted


@dataclass(frozen=True, kw_only=True)
class BackupCommand:
    """The arguments of `backup`."""

    store: Path
    target: Path
    log_folders: tuple[Path, ...] = ()
    base: Path | None = None
    copies_only: bool = False
    as_json: bool = False

    def run(self) -> int:
        """Back up and print; returns the exit code."""
        files = Files()
        root = one_store(files, self.store, self.log_folders)
        started = time.perf_counter()
        with progress_bar("backup") as on_progress:
            options = BackupOptions(
                log_folders=self.log_folders,
                base=self.base,
                copies_only=self.copies_only,
                progress=on_progress,
            )
            manifest, copied = back_up(files, root, self.target, options, wall_ms)
        if self.as_json:
            extra = {"linkedLogFiles": copied.linked, "copiedLogFiles": copied.copied}
            print(json.dumps({**_summary(manifest, self.target), **extra}, indent=2))
            return 0
        print(
            f"backup of {root} in {self.target}: {_contents(manifest)} "
            f"({copied.linked} linked, {copied.copied} copied); {time.perf_counter() - started:.2f} s"
        )
        if manifest.left_out:
            print(f"not part of the backup: {', '.join(manifest.left_out)}")
        return 0


@dataclass(frozen=True, kw_only=True)
class RestoreCommand:
    """The arguments of `restore`."""

    backup: Path
    store: Path
    copies_only: bool = False
    as_json: bool = False

    def run(self) -> int:
        """Restore and print; returns the exit code."""
        started = time.perf_counter()
        with progress_bar("restore") as on_progress:
            manifest = restore(
                Files(), self.backup, self.store, copies_only=self.copies_only, progress=on_progress
            )
        if self.as_json:
            print(json.dumps(_summary(manifest, self.store), indent=2))
        else:
            seconds = time.perf_counter() - started
            print(f"restored {self.backup} to {self.store}: {_contents(manifest)}; {seconds:.2f} s")
        return 0


def _contents(manifest: Manifest) -> str:
    log_files = sum(file.path.startswith("commitlog/") for file in manifest.files)
    return (
        f"CommitLog from {manifest.min_phy_offset} to {manifest.end_phy_offset}, "
        f"{manifest.size_bytes / 1e6:,.1f} MB in {counted(len(manifest.files), 'file')}, "
        f"{log_files} of them CommitLog"
    )


def _summary(manifest: Manifest, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "store": manifest.store,
        "begunMs": manifest.begun_ms,
        "completedMs": manifest.completed_ms,
        "commitLog": {"minOffset": manifest.min_phy_offset, "maxOffset": manifest.end_phy_offset},
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "leftOut": manifest.left_out,
    }
