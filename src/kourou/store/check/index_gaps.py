"""IndexGaps: keys of records that are in no IndexFile, and what that means.

A gap between two files is what Apache's recovery leaves: after a kill it drops the newest file, and
indexes again only what it dispatches again, from the first record of some CommitLog file on. Such a
gap is a note. Behind the last file keys are missing that were not indexed yet. Any other gap is a file
that got lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.record_spans import Bools, Int64s
from kourou.store.check.check_context import CheckContext
from kourou.store.check.check_window import KeyRows
from kourou.store.check.index_view import IndexView
from kourou.store.check.invariants import Invariant
from kourou.wording import counted


@dataclass(slots=True)
class _Gap:
    """Keys in front of a file, or behind the last one."""

    keys: int = 0
    first_phy_offset: int = 0
    last_phy_offset: int = 0

    def add(self, phy_offsets: Int64s) -> None:
        """Count keys of records at these places, which ascend."""
        if not self.keys:
            self.first_phy_offset = int(phy_offsets[0])
        self.keys += len(phy_offsets)
        self.last_phy_offset = int(phy_offsets[-1])

    def __str__(self) -> str:
        return (
            f"{counted(self.keys, 'key')} of records from {self.first_phy_offset} "
            f"to {self.last_phy_offset} are in no index file"
        )


class IndexGaps:
    """The gaps around some files, which lie in the order of the log."""

    def __init__(self, context: CheckContext, views: Sequence[IndexView]) -> None:
        self._context = context
        self._views = views
        self._gaps = [_Gap() for _ in range(len(views) + 1)]
        self._firsts = np.array([view.first_phy_offset for view in views], np.int64)
        self._lasts = np.array([view.last_phy_offset for view in views], np.int64)
        self._has_keys = False
        # Of each CommitLog file: its first record with a key. A recovery may begin there.
        self._first_keys: set[int] = set()
        self._last_log_file = -1

    def watch(self, keys: KeyRows) -> None:
        """All keys of the log go by, in order."""
        phy_offsets = keys.phy_offsets[~keys.is_tag]
        if not len(phy_offsets):
            return
        self._has_keys = True
        log_files = phy_offsets // (self._context.layout.log_file_bytes or 1)
        starts = np.flatnonzero(np.diff(log_files, prepend=self._last_log_file))
        self._first_keys.update(phy_offsets[starts].tolist())
        self._last_log_file = int(log_files[-1])

    def take(self, keys: KeyRows) -> tuple[Bools, NDArray[np.intp]]:
        """Keys without an entry: which of them lie inside a file, and in which; the others are kept."""
        # Gap n lies in front of file n. Two files may share the keys of a record: what is missing of
        # it belongs to the gap between them.
        numbers = np.searchsorted(self._lasts, keys.phy_offsets, "right")
        inside = np.zeros(len(keys), np.bool_)
        has_file = numbers < len(self._firsts)
        inside[has_file] = keys.phy_offsets[has_file] > self._firsts[numbers[has_file]]
        for number in np.unique(numbers[~inside]).tolist():
            self._gaps[number].add(keys.phy_offsets[~inside & (numbers == number)])
        return inside, numbers[inside]

    def report(self) -> None:
        """Say what the gaps are."""
        if not self._views:
            if self._has_keys:
                self._report_absence()
            return
        for number, gap in enumerate(self._gaps[:-1]):
            if gap.keys:
                self._report_gap(number, gap)
        if self._gaps[-1].keys:
            self._report_end(self._views[-1], self._gaps[-1])

    def _report_absence(self) -> None:
        checkpoint = self._context.checkpoint
        had_index = checkpoint.index_msg_timestamp or checkpoint.index_end_phy_offset
        folder = self._context.layout.root / "index"
        if had_index and not self._context.will_recover:
            self._context.findings.violation(
                Invariant.INDEX_COMPLETE, folder, None, "there is no index, the checkpoint knows of one"
            )
        else:
            self._context.findings.note(folder, None, "there is no index: messages cannot be found by key")

    def _report_gap(self, number: int, gap: _Gap) -> None:
        view = self._views[number]
        before = self._views[number - 1] if number else None
        what = f"{gap}{'; this one follows ' + before.path.name if before else ''}"
        # The file before the one that Apache drops was full.
        is_apaches = view.first_phy_offset in self._first_keys and (before is None or before.is_full)
        if is_apaches and gap.first_phy_offset < view.first_phy_offset:
            what += ": Apache gives up the newest index file after a kill"
            self._context.findings.note(view.path, None, what)
        else:
            self._context.findings.violation(Invariant.INDEX_COMPLETE, view.path, None, what)

    def _is_switched_off(self, gap: _Gap) -> bool:
        """Kourou notes how far it has indexed, as long as it does."""
        checkpoint = self._context.checkpoint
        return checkpoint.is_ours and gap.first_phy_offset >= checkpoint.indexed_phy_offset

    def _report_end(self, view: IndexView, gap: _Gap) -> None:
        what = f"{counted(gap.keys, 'key')} of records from {gap.first_phy_offset} on"
        if self._context.in_use:
            self._context.findings.note(view.path, None, f"{what} are not in the index yet")
        elif self._context.will_recover and gap.first_phy_offset >= self._context.redispatch_phy_offset:
            self._context.findings.recovery(view.path, None, f"index {what}")
        elif self._is_switched_off(gap):
            self._context.findings.note(view.path, None, f"{gap}: indexing was switched off")
        else:
            self._context.findings.violation(Invariant.INDEX_COMPLETE, view.path, None, str(gap))
