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
from kourou.wording import counted

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
        # How far the log is read, while it is recovered.
        self._recovered_to: int | None = 0
        self._saved_to = -1
        # A snapshot of the master's, until this log reaches as far as it does: how far, and the bytes.
        self._expected: tuple[int, bytes] | None = None

    # -- recovery --------------------------------------------------------------------------------

    def restore(self, undispatched_phy_offset: int, *, has_openings: bool) -> None:
        """Read the snapshot, before the log is recovered. Without one, and if the store has no openings, what
        was dispatched before `undispatched_phy_offset` has no sequences. StoreFormatError: it is damaged."""
        try:
            raw = self._files.read(self._path)
        except FileNotFoundError:
            self._recovered_to = 0 if has_openings else undispatched_phy_offset
            return
        try:
            self._recovered_to = restore_producers(self.table, raw)
        except ProtocolError as error:
            raise StoreFormatError(
                self._path,
                f"it is damaged ({error}); put it back from a backup. Without it, by removing it, producers "
                "whose messages are no longer in the CommitLog are forgotten, and repeats of what they sent "
                "are stored again",
            ) from error

    def read_log(self, scanner: LogScanner, end_phy_offset: int) -> None:
        """Note what the log has up to here: to be called before the checkpoint covers it."""
        begin = max(self._recovered_to or 0, self._log.min_phy_offset)
        if begin < end_phy_offset:
            note_log(self.table, self._log, scanner, begin, end_phy_offset)
            self._recovered_to = end_phy_offset

    def pass_over(self, phy_offset: int, end_phy_offset: int) -> None:
        """The records between these have no sequences: they need not be read once more."""
        begin = max(self._recovered_to or 0, self._log.min_phy_offset)
        if phy_offset <= begin < end_phy_offset:
            self._recovered_to = end_phy_offset

    def recovered(self, scanner: LogScanner) -> None:
        """The log is recovered; from now on the table is kept up with it."""
        end = self._log.max_phy_offset
        if self._recovered_to is not None and self._recovered_to > end:
            raise StoreFormatError(
                self._path,
                f"it covers the CommitLog up to {self._recovered_to}, which ends at {end}; put the missing "
                "files back. Without it, by removing it, producers whose messages are no longer in the "
                "CommitLog are forgotten",
            )
        self.read_log(scanner, end)
        self._recovered_to = None
        if self.table.producers:
            _log.info("%s in the CommitLog", counted(len(self.table), "idempotent producer"))

    # -- shortening ------------------------------------------------------------------------------

    def rewind(self, scanner: LogScanner, phy_offset: int) -> None:
        """The log is about to end at `phy_offset`: know what it says up to there. On disk on return.

        A window cannot be taken back. Producers with messages behind `phy_offset` are derived again from the
        log before it; what it has let go of, a slave gets from its master.
        """
        log, behind = self._log, ProducerTable()
        note_log(behind, log, scanner, phy_offset, log.max_phy_offset)
        changed = {*behind.producers, *behind.forgotten}
        if changed:
            self.table.remove(changed)
            note_log(self.table, log, scanner, log.min_phy_offset, phy_offset)
        if self.table.producers or self._files.exists(self._path):
            # A log of which nothing is left may begin anywhere.
            self._write(ProducerSnapshot(self.table, phy_offset if phy_offset > log.min_phy_offset else 0))

    # -- commit cycles ---------------------------------------------------------------------------

    def cycle_failed(self) -> None:
        """The commit cycle could not be written: nothing of it counts."""
        self.table.windows.take_back()

    # -- saving ----------------------------------------------------------------------------------

    def snapshot(self) -> ProducerSnapshot | None:
        """What is known of the log as it is now; None if there is nothing to be saved."""
        end = self._log.max_phy_offset - self._log.incomplete_bytes
        end = end if self._recovered_to is None else self._recovered_to
        is_needed = bool(self.table.producers) or self._files.exists(self._path)
        return ProducerSnapshot(self.table, end) if is_needed else None

    def save_steps(self, flush_steps: Callable[[], Steps[None]]) -> Steps[bool]:
        """Save what is known, on disk at the end; first the log, so that nothing is known that could get
        lost. False: it is not saved, and the checkpoint must not cover it."""
        if self._log.max_phy_offset == self._saved_to:
            return True
        snapshot = self.snapshot()
        if snapshot is None:
            return True
        if self._log.flushed_phy_offset < snapshot.phy_offset:
            yield from flush_steps()
        if self._log.flushed_phy_offset < snapshot.phy_offset:
            return False
        yield lambda: self._write(snapshot)
        self._saved_to = snapshot.phy_offset
        return True

    def _write(self, snapshot: ProducerSnapshot) -> None:
        folder = self._path.parent
        self._files.make_folder(folder)
        # Each time: that it is there does not mean that its name is on disk.
        self._files.sync_folder(folder.parent)
        self._files.replace(self._path, snapshot.encode())

    # -- slaves ----------------------------------------------------------------------------------

    def expect_snapshot(self, raw: bytes) -> None:
        """Add what the master's table knows, as soon as this log has all that it is derived from.
        ProtocolError: it is no snapshot."""
        self._expected = snapshot_phy_offset(raw), raw
        self.log_grown()

    def expect_none(self) -> None:
        """The master is another one: what was expected of the last does not count."""
        self._expected = None

    def log_grown(self) -> None:
        """The log has grown."""
        if self._expected is not None and self._expected[0] <= self._log.max_phy_offset:
            (_, raw), self._expected = self._expected, None
            merge_producers(self.table, raw)
