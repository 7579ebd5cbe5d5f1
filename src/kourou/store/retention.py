"""Retention: which files of the log may go, and when the disk is too full to take more.

By age, as RocketMQ: a file goes when it was last written `file_reserved_ms` ago, read or not,
at the hours of `deleteWhen` or as soon as the disk is above `max_used_ratio`; oldest first,
never the last one.

Before its age, and here we differ: above `forcible_ratio` Apache drops the oldest files
whatever is in them. We drop only what every live group has read, unless
`delete_unread_under_pressure` restores Apache's way. If that frees too little, writes are
refused above `warning_ratio`, with path and ratio, and taken again by themselves below it.

Queues and index follow the log. Not here: who knows what groups have read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from kourou.errors import DiskFullError
from kourou.store.files import Files
from kourou.store.message_store import MessageStore

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
    """What one round did."""

    deleted: list[Path]
    used_ratio: float
    refuses_puts: bool


class Retention:
    """Looks after the space of one store. `unread_phy_offset` says from which byte of the log on
    some live group has not read; None when no group is known."""

    def __init__(
        self,
        store: MessageStore,
        files: Files,
        config: RetentionConfig,
        unread_phy_offset: Callable[[], int | None],
    ) -> None:
        self._store = store
        self._files = files
        self._config = config
        self._unread_phy_offset = unread_phy_offset
        self._followed_phy_offset = store.log.min_phy_offset
        self._is_full = False

    def run(self, now_ms: int, *, manual: bool = False) -> RetentionRound:
        """One round; a broker runs it every 10 s. `manual` deletes what is expired at any hour.

        OSError: a file cannot be deleted; the next round tries again.
        """
        ratio = self.used_ratio()
        deleted: list[Path] = []
        try:
            if manual or self._is_hour(now_ms) or ratio > self._config.max_used_ratio:
                self._delete(deleted, lambda path, _: self._is_expired(path, now_ms))
            if ratio > self._config.forcible_ratio and self._config.clean_forcibly_enable:
                self._delete_under_pressure(deleted)
            self._follow()
        finally:
            ratio = self.used_ratio() if deleted else ratio
            self._watch_space(ratio)
        return RetentionRound(deleted, ratio, self._is_full)

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

    def _is_expired(self, path: Path, now_ms: int) -> bool:
        return now_ms >= self._files.modified_ms(path) + self._config.file_reserved_ms

    def _delete(self, deleted: list[Path], may_go: Callable[[Path, int], bool]) -> None:
        """Delete from the front while `may_go(path, end_phy_offset)`."""
        log = self._store.log
        while len(log.log_files) > 1 and len(deleted) < self._config.max_files_per_round:
            oldest = log.log_files[0]
            if not may_go(oldest.path, oldest.end_phy_offset) or not self._is_settled(oldest.end_phy_offset):
                return
            deleted.append(log.delete_first())
            _log.info("CommitLog file %s deleted", deleted[-1])

    def _is_settled(self, end_phy_offset: int) -> bool:
        """Whether all below is durable, in the queues too: these go on counting where a file that is
        gone has left off, so they have to know on disk before it goes."""
        store = self._store
        if end_phy_offset > store.log.flushed_phy_offset:
            return False
        if end_phy_offset > store.checkpoint.logics_physical_offset:
            store.flush_derived(thorough=True)
        return end_phy_offset <= store.checkpoint.logics_physical_offset

    def _delete_under_pressure(self, deleted: list[Path]) -> None:
        if self._config.delete_unread_under_pressure:
            self._delete(deleted, lambda _, __: True)
            return
        unread = self._unread_phy_offset()
        if unread is not None:
            self._delete(deleted, lambda _, end_phy_offset: end_phy_offset <= unread)

    def _follow(self) -> None:
        """Queues and index let go of what the log no longer has."""
        low = self._store.log.min_phy_offset
        if low == self._followed_phy_offset:
            return
        # The units that are left keep a queue's next offset: a power loss must not take all of them.
        self._store.flush()
        if self._store.log.flushed_phy_offset < self._store.dispatcher.dispatched_phy_offset:
            return
        self._store.queues.delete_expired(low)
        if self._store.index is not None:
            self._store.index.delete_expired(low)
        # Noted at once: a crash must not take what is gone on purpose for lost.
        self._store.flush_derived(thorough=True)
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
