"""Faults: which call of the file layer fails, and how.

Calls are counted from when the fault is set. Kinds of calls that change something:
`create` (an open that creates the file), `pwrite` (pwritev too; the continuation of a short write
is a separate call), `sync`, `preallocate`, `set_length`, `make_folder`, `rename`, `remove`,
`sync_folder`. Kinds that do not: `open`, `pread`, `map`, `look` (length, names, existence), `lock`.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHANGES: Final = frozenset(
    {"create", "pwrite", "sync", "preallocate", "set_length"}
    | {"make_folder", "rename", "remove", "sync_folder"}
)
SYNCS: Final = frozenset({"sync", "sync_folder"})
LOOKS: Final = frozenset({"open", "pread", "map", "look", "lock"})


@dataclass(slots=True)
class Fault:
    """Fails call number `nth` of the given kinds, once or from then on.

    A write that fails may have stored its first `written_bytes`; with `error` None it succeeds as a short
    write. -1 is half of the write, at least 1.
    """

    kinds: frozenset[str]
    nth: int
    error: int | None
    for_ever: bool
    written_bytes: int
    part_of_path: str
    seen: int = 0

    def is_due(self, kind: str, path: Path) -> bool:
        """Count this call; whether it fails."""
        if kind not in self.kinds or self.part_of_path not in str(path):
            return False
        self.seen += 1
        return self.seen >= self.nth if self.for_ever else self.seen == self.nth

    def stored_bytes(self, asked_bytes: int) -> int:
        """How much of the write is stored nevertheless."""
        return max(1, asked_bytes // 2) if self.written_bytes < 0 else min(self.written_bytes, asked_bytes)


def fault(
    kinds: str | Collection[str],
    nth: int = 1,
    *,
    error: int | None = errno.EIO,
    for_ever: bool = False,
    written_bytes: int = 0,
    part_of_path: str = "",
) -> Fault:
    """A fault; unknown kinds are rejected, since they would never occur."""
    kinds = frozenset({kinds} if isinstance(kinds, str) else kinds)
    if unknown := kinds - CHANGES - LOOKS:
        raise ValueError(f"no such calls: {sorted(unknown)}")
    return Fault(kinds, nth, error, for_ever, written_bytes, part_of_path)
