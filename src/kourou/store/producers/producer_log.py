"""ProducerLog: keeps a ProducerTable up with the log, over restarts and crashes.

Its snapshot (producer_snapshot.py) is saved with the checkpoint of the derived files, which says from where
on a recovery has to look: a snapshot covers at least what the checkpoint does. A store that never had an
idempotent producer has no snapshot, and nothing of its log is read for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.errors import ProtocolError, StoreFormatError
from kourou.store.producers.log_notes import note_log
from kourou.store.producers.producer_snapshot import (
    SNAPSHOT_NAME,
    ProducerSnapshot,
    merge_producers,
    restore_producers,
    snapshot_phy_offset,
)
from kourou.store.producers.producer_table import ProducerTable
from kourou.store.steps import Steps

if TYPE_CHECKING:
    from kourou.store.disk.files import Files
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_scanner import LogScanner

_log = logging.getLogger(__name__)


class ProducerLog:
    """The producers of one store."""

    def __init__(self, files: Files, config_folder: Path, log: CommitLog) -> None:
        self._files = files
        self._path = config_folder / SNAPSHOT_NAME
        self._log = log
        self.table = ProducerTable()
        # Of the master's table, until this log reaches as far as it does.
        self._expected: bytes | None = None

    def load(self, scanner: LogScanner, undispatched_phy_offset: int) -> None:
        """Read the snapshot, and the log behind it; without a snapshot, the log from
        `undispatched_phy_offset` on. StoreFormatError: the snapshot is damaged."""
        try:
            raw = self._files.read(self._path)
        except FileNotFoundError:
            begin = undispatched_phy_offset
        else:
            begin = self._restore(raw)
        note_log(self.table, self._log, scanner, max(begin, self._log.min_phy_offset))
        if self.table.producers:
            _log.info("%d idempotent producers", len(self.table))

    def _restore(self, raw: bytes) -> int:
        """Fill the table from a snapshot; where to go on in the log."""
        try:
            phy_offset = snapshot_phy_offset(raw)
            if phy_offset <= self._log.max_phy_offset:
                return restore_producers(self.table, raw)
        except ProtocolError as error:
            raise StoreFormatError(
                self._path,
                f"it is damaged ({error}); put it back from a backup. Without it, by removing it, producers "
                "whose messages are no longer in the CommitLog are forgotten, and repeats of what they sent "
                "are stored again",
            ) from error
        _log.warning(
            "%s covers the CommitLog up to %d, which ends at %d: it is not used",
            self._path,
            phy_offset,
            self._log.max_phy_offset,
        )
        return self._log.min_phy_offset

    # -- commit cycles ---------------------------------------------------------------------------

    def written(self) -> None:
        """The commit cycle is written."""
        if self.table.windows.undo:
            self.table.windows.keep()

    def not_written(self) -> None:
        """The commit cycle could not be written: nothing of it counts."""
        self.table.windows.take_back()

    # -- saving ----------------------------------------------------------------------------------

    def snapshot(self) -> ProducerSnapshot | None:
        """What is known of the log as it is now; None if there is nothing to be saved."""
        if not self.table.producers and not self._files.exists(self._path):
            return None
        return ProducerSnapshot(self.table, self._log.max_phy_offset - self._log.incomplete_bytes)

    def save_steps(self, snapshot: ProducerSnapshot, flush_steps: Callable[[], Steps[None]]) -> Steps[None]:
        """Save it, on disk at the end; first the log, so that nothing is known that could get lost."""
        if self._log.flushed_phy_offset < snapshot.phy_offset:
            yield from flush_steps()
        if self._log.flushed_phy_offset >= snapshot.phy_offset:
            yield lambda: self._write(snapshot)

    def _write(self, snapshot: ProducerSnapshot) -> None:
        self._files.make_folder(self._path.parent)
        self._files.replace(self._path, snapshot.encode())

    # -- slaves ----------------------------------------------------------------------------------

    def expect(self, raw: bytes) -> None:
        """Add what the master's table knows, as soon as this log has all that it is derived from.
        ProtocolError: it is no snapshot."""
        snapshot_phy_offset(raw)
        self._expected = raw
        self.reached()

    def reached(self) -> None:
        """The log has grown."""
        raw = self._expected
        if raw is not None and snapshot_phy_offset(raw) <= self._log.max_phy_offset:
            self._expected = None
            merge_producers(self.table, raw)
