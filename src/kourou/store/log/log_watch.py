"""LogWatch: whether the files that a store has open are still those under their names.

Linux lets anyone remove, move or cut a file that is open: writes and syncs go on without an error, into a
file that the next start does not find. So names and open files are compared (device and inode), about once
a second and before anything is written by name, and a loss fences the store.

The newest files count, those written since the last look. An older one that is gone is reported: its messages
can be read until the broker stops, and new messages are not in danger. A file that was cut short fences,
whichever it is: a map of it must not be read any more (log_file.py).

A file that was written to although this process did not is not lost, but its records may be damaged: units of
the queues are verified again before they are read (queue_verifier.py). That is seen by the time of the last
write, so not for a file that messages are appended to between two looks.

Where the store's folder itself is gone, or another one has its name, the store is *displaced*: nothing is
written there by name from then on, as it might be the store of another broker.
Not here: what a file tells of itself, which each sync asks (flush_job.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from kourou.errors import StorageError, StoreLockedError
from kourou.store.disk.files import Files
from kourou.store.disk.store_lock import StoreLock
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_appender import LogAppender
from kourou.store.log.log_file import LOSS_CURE, LogFile
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.steps import Steps

_log = logging.getLogger(__name__)

_MOVED_CURE: Final = (
    "put the folder back, or restore it, before the broker is restarted: without it the start makes an empty "
    "store"
)
_REPLACED_CURE: Final = "put the right folder in its place before the broker is restarted"


class _Look:
    """What one look has found; made by the owner, filled in any thread."""

    __slots__ = ("cure", "displaced", "locked_out", "losses", "modified_ns", "problem")

    def __init__(self) -> None:
        self.cure = ""
        self.displaced: str | None = None
        self.locked_out: str | None = None
        self.losses: list[tuple[LogFile, str]] = []
        self.modified_ns: dict[LogFile, int] = {}
        self.problem: OSError | None = None


class LogWatch:
    """Watches one open store. Owned by the store's thread."""

    def __init__(
        self,
        files: Files,
        root: Path,
        lock: StoreLock,
        log: CommitLog,
        appender: LogAppender,
        queues: ConsumeQueues,
    ) -> None:
        self._files = files
        self._root = root
        self._root_identity = files.identity(root)
        self._lock = lock
        self._commit_log = log
        self._appender = appender
        self._queues = queues
        self._looked_phy_offset: int | None = None  # the log's end at the last look
        self._reported: set[LogFile] = set()
        # When each file was last written to, where the log ended then, and how often it was written again.
        self._modified: dict[LogFile, tuple[int, int, int]] = {}
        self._could_look = True
        self._locking = Lock()  # two looks may be under way, each in its thread
        self.is_displaced = False

    def look_steps(self) -> Steps[None]:
        """Look, in a thread if need be; the store is fenced on return if something is lost."""
        if self.is_displaced:
            return
        log = self._commit_log
        log_files, end_phy_offset = log.kept_files(), log.max_phy_offset
        look = _Look()
        for log_file in log_files:
            log_file.pin()
        try:
            yield lambda: self._look(look, log_files)
        finally:
            for log_file in log_files:
                log_file.unpin()
        self._conclude(look)
        self._find_foreign_writes(look, end_phy_offset)
        self._looked_phy_offset = end_phy_offset

    def _look(self, look: _Look, log_files: Sequence[LogFile]) -> None:
        try:
            self._look_at_folder(look)
            if look.displaced is None:
                self._look_at_files(look, log_files)
        except OSError as error:
            look.problem = error

    def _look_at_folder(self, look: _Look) -> None:
        identity = self._files.identity(self._root)
        if identity != self._root_identity:
            if identity is None:
                became, look.cure = "moved or removed", _MOVED_CURE
            else:
                became, look.cure = "replaced by another folder", _REPLACED_CURE
            look.displaced = f"{self._root} was {became} while the broker was running"
            return
        try:
            with self._locking:
                self._lock.keep()
        except StoreLockedError as error:
            look.locked_out = f"the lock file was removed, and another broker may write there: {error}"
            look.cure = "stop the other broker, then restart this one"

    def _look_at_files(self, look: _Look, log_files: Sequence[LogFile]) -> None:
        for log_file in log_files:
            loss = log_file.find_loss() or log_file.find_misnaming(self._files.identity(log_file.path))
            if loss is not None:
                look.losses.append((log_file, loss))
            else:
                look.modified_ns[log_file] = log_file.file.status().modified_ns

    def _conclude(self, look: _Look) -> None:
        self._note_problem(look.problem)
        if look.displaced is not None:
            self.is_displaced = True
            self._queues.refuse_opening(StorageError(f"{look.displaced}; {look.cure}", self._root))
        reason = look.displaced or look.locked_out
        if reason is not None:
            self._appender.fence(reason, look.cure)
        kept = self._commit_log.kept_files()
        for log_file, loss in look.losses:
            if log_file not in kept:  # deleted here meanwhile
                continue
            if log_file.is_broken or self._is_recent(log_file):
                self._appender.fence(loss, LOSS_CURE)
            elif not self._appender.is_fenced and log_file not in self._reported:
                self._reported.add(log_file)
                _log.error("%s; its messages can be read until the broker stops", loss)

    def _find_foreign_writes(self, look: _Look, began_phy_offset: int) -> None:
        """Compare the times of the last writes with those of the look before."""
        ended_phy_offset = self._commit_log.max_phy_offset
        known, self._modified = self._modified, {}
        written = []
        for log_file, modified_ns in look.modified_ns.items():
            began, ended = (
                min(end_phy_offset, log_file.end_phy_offset)
                for end_phy_offset in (began_phy_offset, ended_phy_offset)
            )
            before = known.get(log_file)
            if before is not None and before[0] != modified_ns and before[1:] == (ended, log_file.rewrites):
                written.append(log_file)
            if began == ended:  # else the time may be that of a write of our own, or not
                self._modified[log_file] = modified_ns, ended, log_file.rewrites
        if written:
            _log.warning(
                "something else has written to %s while it was in use; its messages are verified again "
                "before they are read",
                ", ".join(str(log_file.path) for log_file in written),
            )
            self._queues.distrust_all()

    def _is_recent(self, log_file: LogFile) -> bool:
        """Whether the file was written to since the last look, or is the last one."""
        looked = self._looked_phy_offset
        is_last = log_file is self._commit_log.log_files[-1]
        return is_last or (looked is not None and log_file.end_phy_offset > looked)

    def _note_problem(self, problem: OSError | None) -> None:
        if problem is not None and self._could_look:
            _log.warning("%s cannot be looked at: %s", problem.filename or self._root, problem.strerror)
        self._could_look = problem is None
