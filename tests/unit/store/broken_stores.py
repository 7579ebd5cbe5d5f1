"""Golden stores, broken in one place, and what the check makes of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kourou.store.check.check import CheckReport, check_store
from kourou.store.check.invariants import Invariant
from kourou.store.disk.files import Files, OpenFile

Break = Callable[[Path], Any]
"""Changes a store, given its root."""


class ReadOnlyFiles(Files):
    """Files that refuse every change, as a read-only file system does."""

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        assert not (writable or create or exclusive), f"{path} was opened for writing"
        return super().open(path, writable=False)

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise AssertionError(f"a change: {args}")

    make_folder = remove = remove_folder = remove_tree = rename = sync_folder = replace = lock = _refuse


def linked_copy(source: Path, target: Path) -> Path:
    """A store that shares its files with another; what is here replaces files and changes none."""
    shutil.copytree(source, target, copy_function=os.link)
    return target


def check(root: Path) -> CheckReport:
    """Check a store with files that refuse every change."""
    return check_store(ReadOnlyFiles(), root)


def edit(name: str, change: Callable[[bytearray], bytes | bytearray | None]) -> Break:
    """Change the bytes of one file, in place or by returning others."""

    def apply(root: Path) -> None:
        raw = bytearray((root / name).read_bytes())
        changed = change(raw)
        (root / name).unlink()  # it may be a link: see `linked_copy`
        (root / name).write_bytes(raw if changed is None else changed)

    return apply


def flip(name: str, position: int, bit: int = 0) -> Break:
    """Turn one bit over."""

    def change(raw: bytearray) -> None:
        raw[position] ^= 1 << bit

    return edit(name, change)


def put(name: str, position: int, data: bytes) -> Break:
    """Write bytes over others."""

    def change(raw: bytearray) -> None:
        raw[position : position + len(data)] = data

    return edit(name, change)


def cut(name: str, length: int) -> Break:
    """Shorten a file."""
    return edit(name, lambda raw: raw[:length])


def remove(name: str) -> Break:
    """Remove a file."""
    return lambda root: (root / name).unlink()


def named(report: CheckReport) -> list[tuple[Invariant | None, str, int | None]]:
    """What a report calls broken, and where."""
    return [
        (found.invariant, found.path.relative_to(report.root).as_posix(), found.position)
        for found in report.violations
    ]


def contents(root: Path) -> dict[str, tuple[str, int]]:
    """Every file below `root` with its hash and time of change."""
    return {
        path.relative_to(root).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in root.rglob("*")
    }
