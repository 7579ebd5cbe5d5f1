"""Damage that is known: bytes of the CommitLog that hold no records although they did once, and what it cost.

Kept as JSON in `quarantine/damages.json`, so that a restart reports it in one line. With it the places of
lost messages at the end of queues: a message that came next must not get the offset of one that consumers
have seen. What was lost and rebuilt is counted since the start.
Not here: finding damage (recovery.py, queue_verifier.py, index_verifier.py).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from kourou.store.disk.files import Files
from kourou.wording import counted

_log = logging.getLogger(__name__)

DAMAGES_NAME: Final = "damages.json"
"""What is known of damage, in the folder `quarantine`."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log that were durable once and hold no record now."""

    path: Path
    phy_offset: int
    end_phy_offset: int
    reason: str

    def covers(self, other: Damage) -> bool:
        """Whether all of the other one is part of this one."""
        return self.phy_offset <= other.phy_offset and other.end_phy_offset <= self.end_phy_offset

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
    """The list of a store, in its folder `quarantine`. `next_offsets` is by topic and queue_id.

    `lost_messages`: whose records are damaged. `rebuilt_units`, `rebuilt_entries`: of ConsumeQueues and
    index, made anew from the log because they did not fit it. All since the start. The `note` methods may be
    called in any thread.
    """

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / DAMAGES_NAME
        self._saved = _Content()
        self.damages: list[Damage] = []
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.lost_messages = 0
        self.rebuilt_units = 0
        self.rebuilt_entries = 0
        self._lock = Lock()
        self._reported: set[Path] = set()

    @property
    def damaged_bytes(self) -> int:
        """How many bytes of the log hold no records."""
        return sum(damage.end_phy_offset - damage.phy_offset for damage in self.damages)

    def is_known(self, phy_offset: int, end_phy_offset: int) -> bool:
        """Whether all of these bytes are known to be damaged."""
        return any(
            known.phy_offset <= phy_offset and end_phy_offset <= known.end_phy_offset
            for known in list(self.damages)
        )

    def note(self, damage: Damage) -> None:
        """Report a damaged stretch of the log and remember it, unless it is known."""
        with self._lock:
            if self.is_known(damage.phy_offset, damage.end_phy_offset):
                return
            _log.error("%s", damage)
            self.damages[:] = [known for known in self.damages if not damage.covers(known)] + [damage]
            try:
                self.save()
            except OSError as error:  # it is found again after the next start
                _log.warning("%s cannot be written: %s", self._path, error)

    def note_lost(self, topic: str, queue_id: int, first: int, last: int) -> None:
        """Report messages whose records are damaged."""
        with self._lock:
            self.lost_messages += last - first + 1
        what = (
            f"message {first} is lost: its record in the CommitLog is damaged; consumers go on after it"
            if first == last
            else f"messages {first} to {last} are lost: their records in the CommitLog are damaged; "
            "consumers go on after them"
        )
        _log.error("%s/%d: %s", topic, queue_id, what)

    def note_rebuilt(self, topic: str, queue_id: int, path: Path, queue_offset: int, count: int) -> None:
        """Report units that did not fit their records; of each file once."""
        with self._lock:
            self.rebuilt_units += count
            is_new = path not in self._reported
            self._reported.add(path)
        _log.log(
            logging.WARNING if is_new else logging.DEBUG,
            "%s/%d: %d units from %d on in %s did not fit their records and are rebuilt from the CommitLog; "
            "further ones in this file are rebuilt as they are read",
            topic,
            queue_id,
            count,
            queue_offset,
            path,
        )

    def note_rebuilt_entries(self, path: Path, count: int) -> None:
        """Report what was wrong in a file of the index."""
        with self._lock:
            self.rebuilt_entries += count
        _log.warning("%s: %d slots or entries did not fit the CommitLog and are rebuilt", path, count)

    def report_known(self) -> None:
        """Log one line about the damage that earlier runs found."""
        if self.damages:
            _log.warning(
                "known damage: %s of the CommitLog, %d bytes in all, without valid records; consumers go on "
                "after the messages that were there. Files and offsets are in %s; what to do is in "
                'docs/operations.md, "Damage in a store"',
                counted(len(self.damages), "stretch", "stretches"),
                self.damaged_bytes,
                self._path,
            )

    def load(self) -> None:
        """Take what is known; nothing when the list is not there, or not to be read."""
        try:
            self._saved = msgspec.json.decode(self._files.read(self._path), type=_Content)
        except FileNotFoundError:
            return
        except msgspec.MsgspecError as error:
            _log.warning("%s is not a list of damages; ignored: %s", self._path, error)
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
