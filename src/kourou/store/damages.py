"""Damage to the CommitLog that is known: which bytes hold no records although they did once.

Kept as JSON in `quarantine/damages.json`, so that readers go around it after a restart too, when
nobody looks at these bytes again. With it the places of lost messages at the end of queues: a message
that came next must not get the offset of one that consumers have seen.
Not here: who finds damage (recovery.py), who goes around it (get_message.py).
"""

from __future__ import annotations

import logging
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


class _Range(msgspec.Struct, rename="camel"):
    file: str
    phy_offset: int
    end_phy_offset: int
    reason: str


class _Place(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: int
    next_queue_offset: int


class _Content(msgspec.Struct, rename="camel"):
    damages: list[_Range] = []
    queues: list[_Place] = []


class KnownDamages:
    """The list of a store, in its folder `quarantine`. `next_offsets` is by topic and queue_id."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / "damages.json"
        self._saved = _Content()
        self.damages: list[Damage] = []
        self.next_offsets: dict[tuple[str, int], int] = {}

    def load(self) -> None:
        """Take what is known; nothing when the list is not there, or not to be read."""
        try:
            self._saved = msgspec.json.decode(self._files.read(self._path), type=_Content)
        except FileNotFoundError:
            return
        except msgspec.MsgspecError as error:
            _log.warning("%s is no list of damages and ignored: %s", self._path, error)
            return
        self.damages = [
            Damage(Path(d.file), d.phy_offset, d.end_phy_offset, d.reason) for d in self._saved.damages
        ]
        self.next_offsets = {(q.topic, q.queue_id): q.next_queue_offset for q in self._saved.queues}

    def save(self) -> None:
        """Replace the list if it has changed; on disk on return."""
        content = _Content(
            [_Range(str(d.path), d.phy_offset, d.end_phy_offset, d.reason) for d in self.damages],
            [_Place(*queue, next_offset) for queue, next_offset in self.next_offsets.items()],
        )
        if content == self._saved:
            return
        self._files.make_folder(self._path.parent)
        self._files.replace(self._path, msgspec.json.format(msgspec.json.encode(content), indent=1))
        self._files.sync_folder(self._path.parent.parent)
        self._saved = content
