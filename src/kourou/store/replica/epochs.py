"""EpochFile: which reign of a master each part of the log belongs to.

Apache's file and format (`epochFileCheckpoint`, with a `.bak`): the number of lines, the CRC-32 of them, and
a line `epoch-offset` for each reign. A master begins a new epoch when its log may have lost its end: after a
stop that was not clean, and when it was a slave before. A slave takes over its master's epochs as far as its
log goes. So two logs that were one have the same epochs up to where they part.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kourou.errors import ProtocolError, StorageError
from kourou.protocol.ha import Epoch
from kourou.protocol.layout import CRC_MASK
from kourou.store.disk.files import Files

_log = logging.getLogger(__name__)

EPOCH_FILE: Final = "epochFileCheckpoint"

MAX_EPOCHS: Final = 1_000
"""More are not kept; the oldest go first."""


class EpochFile:
    """The epochs of one store, oldest first; on disk whenever a method returns."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._path = root / EPOCH_FILE
        self._backup = root / f"{EPOCH_FILE}.bak"
        self.epochs: tuple[Epoch, ...] = ()

    def load(self) -> None:
        """Read the file, or its `.bak` where it is damaged; without either there are no epochs."""
        for path in (self._path, self._backup):
            try:
                self.epochs = decode_epochs(self._files.read(path))
                return
            except FileNotFoundError:
                continue
            except ProtocolError as error:
                _log.warning("%s is not used: %s", path, error)

    def begin(self, start_phy_offset: int, epoch: int | None = None) -> Epoch:
        """Begin a reign at the end of the log: this epoch, or the next one. One that has no records yet is
        replaced."""
        last = self.epochs[-1].epoch if self.epochs else 0
        if epoch is not None and epoch <= last:
            raise StorageError(f"epoch {epoch} cannot follow epoch {last} of this store", self._path)
        begun = Epoch(epoch or last + 1, start_phy_offset)
        self._store([*before(self.epochs, start_phy_offset), begun])
        return begun

    def follow(self, epochs: Iterable[Epoch], max_phy_offset: int) -> None:
        """Take over a master's epochs as far as this log goes."""
        known = [epoch for epoch in epochs if epoch.start_phy_offset <= max_phy_offset]
        if tuple(known) != self.epochs:
            self._store(known)

    def cut(self, phy_offset: int) -> None:
        """The log ends at `phy_offset`: forget the epochs that have no records any more."""
        kept = before(self.epochs, phy_offset)
        if len(kept) < len(self.epochs):
            self._store(kept)

    def _store(self, epochs: Sequence[Epoch]) -> None:
        kept = tuple(epochs[-MAX_EPOCHS:])
        has_old = self._files.exists(self._path)
        self._files.replace(self._path, encode_epochs(kept), backup=self._backup if has_old else None)
        self.epochs = kept


def before(epochs: Iterable[Epoch], phy_offset: int) -> list[Epoch]:
    """The epochs that have records below `phy_offset`."""
    return [epoch for epoch in epochs if epoch.start_phy_offset < phy_offset]


def encode_epochs(epochs: Sequence[Epoch]) -> bytes:
    """The content of the file."""
    lines = "".join(f"{each.epoch}-{each.start_phy_offset}\n" for each in epochs).encode()
    return b"%d\n%d\n" % (len(epochs), zlib.crc32(lines) & CRC_MASK) + lines


def decode_epochs(raw: bytes) -> tuple[Epoch, ...]:
    """The epochs of a file; ProtocolError."""
    try:
        count, crc, lines = raw.split(b"\n", 2)
        pairs = [line.split(b"-") for line in lines.split()]
        epochs = tuple(Epoch(int(epoch), int(start)) for epoch, start in pairs)
        is_whole = int(count) == len(epochs) and int(crc) == zlib.crc32(lines) & CRC_MASK
    except ValueError as error:
        raise ProtocolError(f"not an epoch file: {error}") from error
    if not is_whole:
        raise ProtocolError("its checksum or its number of lines is wrong")
    if any(
        a.epoch >= b.epoch or a.start_phy_offset > b.start_phy_offset
        for a, b in zip(epochs, epochs[1:], strict=False)
    ):
        raise ProtocolError("its epochs are not in order")
    return epochs
