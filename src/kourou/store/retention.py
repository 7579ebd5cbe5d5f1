"""Retention: which files of the log may go, and when the disk is too full to take more.

By age, as RocketMQ: a file goes when it was last written `file_reserved_ms` ago, read or not,
at the hours of `deleteWhen` or as soon as the disk is above `max_used_ratio`; oldest first,
never the last one.

Before its age, and here we differ: above `forcible_ratio` Apache drops the oldest files
whatever is in them. We drop only what every live group has read, unless
`delete_unread_under_pressure` restores Apache's way. If that frees too little, writes are
refused above `warning_ratio`, with path and ratio, and taken again by themselves below it.

Queues and index follow the log. A round comes in steps (steps.py): what waits for the disk, freeing
a file's blocks too, may be left to threads. Not here: the progress of groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from kourou.errors import DiskFullError
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.steps import Steps, run_steps

_log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_SOURCE: Final = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """When files go. Each default is RocketMQ's unless a comment says otherwise."""

    delete_when: frozenset[int] = frozenset({4})  # deleteWhen, hours of the day
    file_reserved_ms: int = 72 * _HOUR_MS  # fileReservedTime, in hours there
    max_used_ratio: float = 0.75  # diskMaxUsedSpaceRatio
    forcible_ratio: float = 0.85  # diskSpaceCleanForciblyRatio
    warning_ratio: float = 0.90  # diskSpaceWarningLevelRatio
    clean_forcibly_enable: bool = True  # cleanFileForciblyEnable
    delete_unread_under_pressure: bool = False  # ours; true is what Apache does
    max_files_per_round: int = 10  # deleteFileBatchMax


@dataclass(slots=True)
class RetentionRound:
    """The result of one round of retention."""

    deleted: list[Path]
    used_ratio: float
    refuses_puts: bool


class Retention:
    """Looks after the space of one store. `unread_steps` find out from which byte of the log on some
    live group has not read; None when no group is known. `file_age_ms` computes the age of a file
    from the time of its last write and its end in the log; without it the time of the round counts."""

    def __init__(
        self,
        store: MessageStore,
        files: Files,
        config: RetentionConfig,
        unread_steps: Callable[[], Steps[int | None]],
        file_age_ms: Callable[[int, int], int] | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._config = config
        self._unread_steps = unread_steps
        self._file_age_ms = file_age_ms
        self._followed_phy_offset = store.log.min_phy_offset
        self._is_full = False

    def run(self, now_ms: int, *, manual: bool = False) -> RetentionRound:
        """One round; a broker runs it every 10 s. `manual` deletes what is expired at any hour.

        OSError: a file cannot be deleted; the next round tries again.
        """
        return run_steps(self.steps(now_ms, manual=manual))

    def steps(self, now_ms: int, *, manual: bool = False) -> Steps[RetentionRound]:
        """The same in steps, one such work on the store at a time: no queue may be deleted in between."""
        ratio = self.used_ratio()
        deleted: list[Path] = []
        try:
            yield from self._store.log.close_removed_steps()
            yield from self._store.watch.look_steps()
            # A fenced store is left as it is: its names may mean other files, and it takes no more room.
            if not self._store.appender.is_fenced:
                yield from self._clean(deleted, ratio, now_ms, manual=manual)
        finally:
            ratio = self.used_ratio() if deleted else ratio
            self._watch_space(ratio)
        return RetentionRound(deleted, ratio, self._is_full)

    def _clean(self, deleted: list[Path], ratio: float, now_ms: int, *, manual: bool) -> Steps[None]:
        if manual or self._is_hour(now_ms) or ratio > self._config.max_used_ratio:
            yield from self._delete(deleted, lambda path, end: self._is_expired(path, end, now_ms))
        if ratio > self._config.forcible_ratio and self._config.clean_forcibly_enable:
            yield from self._delete_under_pressure(deleted)
        yield from self._follow()

    def used_ratio(self) -> float:
        """How full the disk is: of several folders of the log the emptiest counts, and the
        queues' partition if that is fuller."""
        return max(self._log_ratio(), self._queue_ratio())

    def _log_ratio(self) -> float:
        """New files of the log stay out of folders that are too full, while others are not."""
        log = self._store.log
        ratios = {folder: self._files.disk_usage(folder).used_ratio for folder in log.folders}
        full = (folder for folder, ratio in ratios.items() if ratio > self._config.forcible_ratio)
        log.full_folders = frozenset(full)
        return min(ratios.values())

    def _queue_ratio(self) -> float:
        return self._files.disk_usage(self._store.config.queue_folder).used_ratio

    # -- deleting --------------------------------------------------------------------------------

    def _is_hour(self, now_ms: int) -> bool:
        # Local time, as the operator wrote it.
        return datetime.fromtimestamp(now_ms / 1000).hour in self._config.delete_when

    def _is_expired(self, path: Path, end_phy_offset: int, now_ms: int) -> bool:
        try:
            modified_ms = self._files.modified_ms(path)
        except FileNotFoundError:  # removed by another program
            return True
        if self._file_age_ms is None:
            age_ms = now_ms - modified_ms
        else:
            age_ms = self._file_age_ms(modified_ms, end_phy_offset)
        return age_ms >= self._config.file_reserved_ms

    def _delete(self, deleted: list[Path], may_go: Callable[[Path, int], bool]) -> Steps[None]:
        """Delete from the front while `may_go(path, end_phy_offset)`."""
        log = self._store.log
        while len(log.log_files) > 1 and len(deleted) < self._config.max_files_per_round:
            oldest = log.log_files[0]
            if not may_go(oldest.path, oldest.end_phy_offset):
                return
            if not (yield from self._settle(oldest.end_phy_offset)):
                return
            deleted.append((yield from log.delete_first_steps()))
            _log.info("CommitLog file %s deleted", deleted[-1])

    def _settle(self, end_phy_offset: int) -> Steps[bool]:
        """Whether all below is durable, in the queues too: these go on counting where a file that is
        gone has left off, so they have to know on disk before it goes."""
        store = self._store
        if end_phy_offset > store.log.flushed_phy_offset:
            return False
        if end_phy_offset > store.checkpoint.logics_physical_offset:
            yield from store.derived_steps(thorough=True)
        return end_phy_offset <= store.checkpoint.logics_physical_offset

    def _delete_under_pressure(self, deleted: list[Path]) -> Steps[None]:
        if self._config.delete_unread_under_pressure:
            yield from self._delete(deleted, lambda _, __: True)
            return
        unread = yield from self._unread_steps()
        if unread is not None:
            yield from self._delete(deleted, lambda _, end_phy_offset: end_phy_offset <= unread)

    def _follow(self) -> Steps[None]:
        """Queues and index let go of what the log no longer has."""
        store = self._store
        low = store.log.min_phy_offset
        if low == self._followed_phy_offset:
            return
        yield from store.queues.correct_min_steps(low)
        # The units that are left now keep a queue's next offset: a power loss must not take all of them.
        expired, dispatched = store.queues.expired_files(), store.dispatcher.dispatched_phy_offset
        yield from self._store.flush_steps()
        if store.log.flushed_phy_offset < dispatched:
            return
        yield from store.queues.remove_first_steps(expired)
        if store.index is not None:
            yield from store.index.delete_expired_steps(low)
        # Noted at once: a crash must not take what is gone on purpose for lost.
        yield from store.derived_steps(thorough=True)
        self._followed_phy_offset = low

    # -- the disk's space ------------------------------------------------------------------------

    def _watch_space(self, ratio: float) -> None:
        is_full = ratio > self._config.warning_ratio
        if is_full and not self._is_full:
            _log.error("%s is %.0f %% full: writes are refused", self._store.config.root, ratio * 100)
        elif self._is_full and not is_full:
            _log.warning("%s is %.0f %% full: writes are taken again", self._store.config.root, ratio * 100)
        self._is_full = is_full
        cause = DiskFullError(self._store.config.root, ratio) if is_full else None
        self._store.appender.refuse(_SOURCE, cause)
