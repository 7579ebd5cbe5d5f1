"""What the parts of a check share: the store as found, what may be expected of it, the findings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kourou.store.check.check_report import Findings
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS
from kourou.store.disk.files import Files
from kourou.store.kernel import Kernel
from kourou.store.log.log_reader import LogReader
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.store_layout import StoreLayout

Progress = Callable[[int, int], None]
"""Called with the bytes of the CommitLog that are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What the files themselves do not tell."""

    commit_log_folders: tuple[Path, ...] = ()  # storePathCommitLog; empty: root/commitlog
    index_slots: int | None = None  # maxHashSlotNum, where it is not a quarter of maxIndexNum
    delay_levels: tuple[int, ...] = DEFAULT_DELAY_LEVELS  # messageDelayLevel, in ms
    # Topics whose queues were deleted on purpose: records of theirs need no units.
    deleted_topics: frozenset[str] = frozenset()
    progress: Progress | None = None


@dataclass(slots=True)
class CheckContext:
    """One check. What it learns on the way stands at the end."""

    files: Files
    layout: StoreLayout
    findings: Findings
    options: CheckOptions
    checkpoint: StoreCheckpoint
    reader: LogReader
    is_clean: bool
    in_use: bool
    kernel: Kernel | None = None
    # Topics in config/topics.json; None when that cannot be read.
    topics: frozenset[str] | None = None
    # Up to where the ConsumeQueues say that there are records.
    queues_end_phy_offset: int = 0
    # Records from here on are dispatched again at the next start.
    redispatch_phy_offset: int = 0
    log_min_phy_offset: int = 0
    log_end_phy_offset: int = 0
    # Queues point at much that lies behind the end of the log; it has been reported.
    has_lost_end: bool = False
    _holes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def will_recover(self) -> bool:
        """The next start looks at the end of everything, as the last stop was none, or none has been."""
        return self.in_use or not self.is_clean

    def unreadable(self, path: Path, error: OSError) -> None:
        """A file cannot be read. Of a store in use a file may go while it is looked at."""
        if self.in_use and isinstance(error, FileNotFoundError):
            self.findings.note(path, None, "it was removed while the check went on")
        else:
            self.findings.unreadable(path, error)

    def add_hole(self, start_phy_offset: int, end_phy_offset: int) -> None:
        """A part of the log that holds no records and should; it has been reported."""
        self._holes.append((start_phy_offset, end_phy_offset))

    def in_hole(self, phy_offset: int) -> bool:
        """Whether a byte of the log lies in such a part."""
        at = bisect_right(self._holes, (phy_offset, 1 << 62)) - 1
        return at >= 0 and phy_offset < self._holes[at][1]
