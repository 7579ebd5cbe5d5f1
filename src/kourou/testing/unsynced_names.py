"""UnsyncedNames: names created, changed and removed in folders that were not synced since.

A power loss keeps or loses each such change independently, in any order, except where one depends on another:
two changes of one name, or of a name in a folder that is itself new. Each change can be undone on the real
folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kourou.testing.survival import Survival


@dataclass(slots=True)
class NameChange:
    """One change of names; it is on disk when all `folders` are synced."""

    time: int
    names: tuple[Path, ...]
    undo: Callable[[], None]
    folders: set[Path] = field(init=False)

    def __post_init__(self) -> None:
        self.folders = {name.parent for name in self.names}

    def needs(self, lost: set[Path]) -> bool:
        """Whether it depends on changes of these names."""
        return any(
            name == other or other in name.parents or name in other.parents
            for name in self.names
            for other in lost
        )

    def is_inside(self, other: NameChange) -> bool:
        """Whether it changed names in a folder that `other` created, renamed or removed."""
        return any(folder in name.parents for name in self.names for folder in other.names)


class UnsyncedNames:
    """Changes of names that are not on disk yet, oldest first."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[NameChange] = []

    def record(self, time: int, names: tuple[Path, ...], undo: Callable[[], None]) -> None:
        """Record a change of names that is not synced yet; `undo` reverts it."""
        self.changes.append(NameChange(time, names, undo))

    def synced(self, folder: Path) -> None:
        """Called after the sync of a folder.

        Changes inside a folder that is gone from disk are settled with it: it can no longer be synced.
        """
        kept: list[NameChange] = []
        for change in self.changes:
            change.folders.discard(folder)
            if change.folders:
                kept.append(change)
            else:
                kept = [earlier for earlier in kept if not earlier.is_inside(change)]
        self.changes = kept

    def lose_power(self, survive: Survival) -> None:
        """Undo the changes that did not survive; then the names are as on disk."""
        lost_names: set[Path] = set()
        lost: list[NameChange] = []
        for change in self.changes:
            if change.needs(lost_names) or not survive([change.time]):
                lost.append(change)
                lost_names.update(change.names)
        for change in reversed(lost):
            change.undo()
        self.changes.clear()
