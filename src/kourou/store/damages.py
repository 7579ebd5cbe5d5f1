"""Damage to the CommitLog that is known: which bytes hold no records although they did once.

Kept as JSON in `quarantine/damages.json`, so that readers go around it after a restart too, when
nobody looks at these bytes again. Not here: who finds damage (recovery.py), who goes around it
(get_message.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kourou.store.files import Files

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log that were durable once and hold no record now."""

    path: Path
    phy_offset: int
    end_phy_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: no valid record from {self.phy_offset} to {self.end_phy_offset}: {self.reason}; "
            "the bytes are kept and passed over, what follows is served"
        )


class _Entry(msgspec.Struct, rename="camel"):
    file: str
    phy_offset: int
    end_phy_offset: int
    reason: str


class KnownDamages:
    """The list of a store, in its folder `quarantine`."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / "damages.json"

    def load(self) -> list[Damage]:
        """What is known; nothing when the list is not there, or not to be read."""
        try:
            entries = msgspec.json.decode(self._files.read(self._path), type=list[_Entry])
        except FileNotFoundError:
            return []
        except msgspec.MsgspecError as error:
            _log.warning("%s is no list of damages and ignored: %s", self._path, error)
            return []
        return [Damage(Path(e.file), e.phy_offset, e.end_phy_offset, e.reason) for e in entries]

    def save(self, damages: Sequence[Damage]) -> None:
        """Replace the list; on disk on return."""
        entries = [_Entry(str(d.path), d.phy_offset, d.end_phy_offset, d.reason) for d in damages]
        self._files.make_folder(self._path.parent)
        self._files.replace(self._path, msgspec.json.format(msgspec.json.encode(entries), indent=1))
        self._files.sync_folder(self._path.parent.parent)
