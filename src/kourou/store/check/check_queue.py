"""QueueCheck: one ConsumeQueue against the records of the log, in both directions.

Records come in the order of the log. Each must find its unit at its queue_offset; a unit that no
record claims must point at one that the log no longer has (below its first file), or hold a place
(blank). What is found is kept back until the queue is done: records of an earlier life of the queue,
whose topic was deleted and made anew, need no units.
Not here: which records belong to which queue (check_queues.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from kourou.protocol.record_spans import Bools, Int64s
from kourou.store.check.check_context import CheckContext
from kourou.store.check.check_report import MAX_ALIKE
from kourou.store.check.check_window import QueueRows
from kourou.store.check.invariants import Invariant
from kourou.store.queue.queue_view import QueueView, Units
from kourou.wording import counted

# A tags code may be an address in `consumequeue_ext`, counted from here.
_FIRST_EXT_ADDRESS: Final = -(1 << 63)
_STEP_UNITS: Final = 100_000


@dataclass(slots=True)
class QueuesTally:
    """Counters over all ConsumeQueues of a store."""

    units: int = 0
    undispatched: int = 0
    undispatched_phy_offset: int = 0
    beyond_end: int = 0
    in_holes: int = 0
    blanks: int = 0
    ext_addresses: int = 0

    def add_undispatched(self, phy_offsets: Int64s) -> None:
        """Records that the next start dispatches."""
        first = int(phy_offsets.min())
        if not self.undispatched or first < self.undispatched_phy_offset:
            self.undispatched_phy_offset = first
        self.undispatched += len(phy_offsets)


@dataclass(frozen=True, slots=True)
class _Problem:
    invariant: Invariant
    queue_offset: int
    what: str


class QueueCheck:
    """One queue. Feed `take` with its records, then `finish`."""

    def __init__(
        self, context: CheckContext, view: QueueView, tally: QueuesTally, *, ext_bytes: int = 0
    ) -> None:
        self._context = context
        self._ext_end = _FIRST_EXT_ADDRESS + ext_bytes
        self._view = view
        self._tally = tally
        self._next: int | None = None
        self._problems: list[_Problem] = []
        self._more_problems = 0
        self._missing = 0
        self._missing_from: tuple[int, int] = (0, 0)  # queue_offset, phy_offset
        # Units that point behind the end of the log: how many, and which is the first.
        self.beyond = 0
        self._beyond_from: tuple[int, int] = (0, 0)
        self.earlier_records = 0
        self.records = 0
        # Where the queue started over, and its last record.
        self.restart_phy_offset = 0
        self.last_phy_offset = 0

    def take(self, rows: QueueRows) -> None:
        """Compare records with their units."""
        starts = np.flatnonzero(rows.queue_offsets == 0).tolist()
        for first, last in _ranges([0, *starts, len(rows)]):
            if first in starts and self._next is not None:
                self._start_over()
                self.restart_phy_offset = int(rows.phy_offsets[first])
            self._take_run(rows.part(first, last))
        self.last_phy_offset = int(rows.phy_offsets[-1])

    def _start_over(self) -> None:
        self.earlier_records += self.records
        self.records = 0
        self._problems.clear()
        self._more_problems = self._missing = 0
        self._next = 0

    def _take_run(self, rows: QueueRows) -> None:
        self.records += len(rows)
        if self._next is None:
            self._begin(int(rows.queue_offsets[0]))
        breaks = (np.flatnonzero(np.diff(rows.queue_offsets) != 1) + 1).tolist()
        ranges = list(_ranges([0, *breaks, len(rows)]))
        for number, (first, last) in enumerate(ranges):
            following = ranges[number + 1][0] if number + 1 < len(ranges) else None
            resumes_at = None if following is None else int(rows.queue_offsets[following])
            self._take_dense(rows.part(first, last), resumes_at)

    def _take_dense(self, rows: QueueRows, resumes_at: int | None) -> None:
        """Records with consecutive queue_offsets; behind them it goes on at `resumes_at`."""
        rows = self._without_misnumbered(rows)
        expected = self._expected
        if len(rows) and int(rows.queue_offsets[0]) < expected:
            rows = self._without_used(rows)
        if not len(rows):
            return
        first = int(rows.queue_offsets[0])
        units = self._view.units(first, len(rows))
        if first > expected:
            if resumes_at == expected and units.phy_offsets[0] != rows.phy_offsets[0]:
                # The queue goes on where it was: these records were never part of it.
                return self._strangers(rows)
            self._unclaimed(expected, first)
        self._compare(rows, units)
        self._next = first + len(rows)

    @property
    def _expected(self) -> int:
        assert self._next is not None
        return self._next

    def _without_misnumbered(self, rows: QueueRows) -> QueueRows:
        """Take records whose unit is in the right place while they name another one."""
        while len(rows) and int(rows.queue_offsets[0]) != self._expected:
            expected = self._expected
            unit = self._view.units(expected, 1)
            if unit.are_zero[0] or unit.phy_offsets[0] != rows.phy_offsets[0]:
                break
            self._problem(
                Invariant.QUEUE_UNIT,
                expected,
                f"unit {expected} points at the record at {rows.phy_offsets[0]}, "
                f"which says queue_offset {rows.queue_offsets[0]}",
            )
            self._next = expected + 1
            rows = rows.part(1)
        return rows

    def _without_used(self, rows: QueueRows) -> QueueRows:
        used = min(self._expected - int(rows.queue_offsets[0]), len(rows))
        for row in range(used):
            self._problem(
                Invariant.QUEUE_OFFSET_ONCE,
                int(rows.queue_offsets[row]),
                f"the record at {rows.phy_offsets[row]} has queue_offset {rows.queue_offsets[row]}, "
                "as a record before it",
            )
        return rows.part(used)

    def _strangers(self, rows: QueueRows) -> None:
        for row in range(len(rows)):
            self._problem(
                Invariant.QUEUE_COMPLETE,
                int(rows.queue_offsets[row]),
                f"no unit for the record at {rows.phy_offsets[row]}, queue_offset {rows.queue_offsets[row]}",
            )

    # -- records and their units -----------------------------------------------------------------

    def _compare(self, rows: QueueRows, units: Units) -> None:
        same_place = (units.phy_offsets == rows.phy_offsets) & (units.sizes == rows.sizes)
        is_right = same_place & (units.tags_codes == rows.tags_codes)
        if not is_right.all():
            is_ext = same_place & (units.tags_codes < self._ext_end)
            self._tally.ext_addresses += int(is_ext.sum())
            is_right |= is_ext
            is_missing = units.are_zero & ~is_right
            self._miss(rows.select(np.flatnonzero(is_missing)))
            self._differ(rows, units, ~is_right & ~is_missing)
        self._tally.units += int(is_right.sum())

    def _miss(self, rows: QueueRows) -> None:
        """Records without a unit: the next start adds it, or something is lost."""
        if not len(rows):
            return
        comes = self._will_come(rows.phy_offsets)
        if comes.any():
            self._tally.add_undispatched(rows.phy_offsets[comes])
        lost = rows.select(np.flatnonzero(~comes))
        if len(lost):
            if not self._missing:
                self._missing_from = int(lost.queue_offsets[0]), int(lost.phy_offsets[0])
            self._missing += len(lost)

    def _will_come(self, phy_offsets: Int64s) -> Bools:
        if not self._context.will_recover:
            return np.zeros(len(phy_offsets), np.bool_)
        return phy_offsets >= self._context.redispatch_phy_offset

    def _differ(self, rows: QueueRows, units: Units, are_wrong: Bools) -> None:
        wrong = np.flatnonzero(are_wrong).tolist()
        self._more_problems += max(0, len(wrong) - MAX_ALIKE)
        for row in wrong[:MAX_ALIKE]:
            queue_offset = int(rows.queue_offsets[row])
            what = self._difference(
                (int(units.phy_offsets[row]), int(units.sizes[row]), int(units.tags_codes[row])),
                (int(rows.phy_offsets[row]), int(rows.sizes[row]), int(rows.tags_codes[row])),
                is_blank=bool(units.are_blank[row]),
            )
            self._problem(Invariant.QUEUE_UNIT, queue_offset, f"unit {queue_offset} {what}")

    def _difference(self, unit: tuple[int, int, int], record: tuple[int, int, int], *, is_blank: bool) -> str:
        phy_offset, size, code = record
        if is_blank:
            return f"is blank, the log has its record at {phy_offset}"
        if unit[0] != phy_offset:
            return f"points at {unit[0]}, its record lies at {phy_offset}; {self._describe(unit[0])}"
        if unit[1] != size:
            return f"says size {unit[1]}, the record at {phy_offset} has {size} bytes"
        return f"has tags code {unit[2]}, that of the record at {phy_offset} is {code}{self._levels_hint()}"

    def _levels_hint(self) -> str:
        if self._view.folder.parent.name != "SCHEDULE_TOPIC_XXXX":
            return ""
        return " (a delivery time; with another messageDelayLevel give it as an option)"

    def _describe(self, phy_offset: int) -> str:
        return self._context.reader.describe(phy_offset)

    # -- units that no record claims -------------------------------------------------------------

    def _begin(self, queue_offset: int) -> None:
        """The first record of the queue in the log: the units before it are older than the log."""
        self._next = min(self._view.first_queue_offset, queue_offset)
        self._unclaimed(self._view.first_queue_offset, queue_offset)
        self._next = queue_offset

    def _unclaimed(self, first: int, last: int) -> None:
        """Look at the units from `first` to before `last`, for which the log has no record."""
        last = min(last, self._view.end_queue_offset)
        for at in range(first, last, _STEP_UNITS):
            self._unclaimed_step(at, self._view.units(at, min(_STEP_UNITS, last - at)))

    def _unclaimed_step(self, first: int, units: Units) -> None:
        are_blank, are_zero = units.are_blank, units.are_zero
        are_old = (units.phy_offsets < self._context.log_min_phy_offset) & ~are_zero & (units.sizes > 0)
        are_beyond = units.phy_offsets >= self._context.log_end_phy_offset
        self._tally.blanks += int(are_blank.sum())
        self._tally.units += int((are_old & ~are_blank).sum())
        self._check_order(first, units, are_old & ~are_blank)
        if self._context.will_recover:
            self._tally.beyond_end += int((are_beyond & ~are_zero).sum())
            are_old |= are_beyond
        self._zeros(first, are_zero)
        for row in np.flatnonzero(~are_blank & ~are_old & ~are_zero).tolist():
            self._unclaimed_unit(first + row, int(units.phy_offsets[row]))

    def _check_order(self, first: int, units: Units, are_old: Bools) -> None:
        rows = np.flatnonzero(are_old)
        phy_offsets = units.phy_offsets[rows]
        for row in np.flatnonzero(phy_offsets[1:] <= phy_offsets[:-1]).tolist():
            queue_offset = first + int(rows[row + 1])
            self._problem(
                Invariant.QUEUE_ORDER,
                queue_offset,
                f"unit {queue_offset} points at {phy_offsets[row + 1]}, the one before it at "
                f"{phy_offsets[row]}",
            )

    def _zeros(self, first: int, are_zero: Bools) -> None:
        zeros = np.flatnonzero(are_zero)
        if len(zeros):
            queue_offset = first + int(zeros[0])
            self._problem(
                Invariant.QUEUE_UNIT,
                queue_offset,
                f"{counted(len(zeros), 'unit')} from {queue_offset} on were never written, others follow",
            )

    def _unclaimed_unit(self, queue_offset: int, phy_offset: int) -> None:
        if self._context.in_hole(phy_offset):
            self._tally.in_holes += 1
        elif phy_offset >= self._context.log_end_phy_offset:
            if not self.beyond:
                self._beyond_from = queue_offset, phy_offset
            self.beyond += 1
        else:
            self._problem(
                Invariant.QUEUE_UNIT,
                queue_offset,
                f"unit {queue_offset} points at {phy_offset}; {self._describe(phy_offset)}",
            )

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """All records are through: look at what is left, and report."""
        end = self._view.end_queue_offset
        if self._next is None:
            self._begin(end)
        self._unclaimed(self._expected, end)
        findings = self._context.findings
        if self._missing:
            queue_offset, phy_offset = self._missing_from
            path, position = self._view.place(queue_offset)
            findings.violation(
                Invariant.QUEUE_COMPLETE,
                path,
                position,
                f"no unit for {counted(self._missing, 'record')}, the first at {phy_offset} "
                f"with queue_offset {queue_offset}",
            )
        for problem in self._problems:
            findings.violation(problem.invariant, *self._view.place(problem.queue_offset), problem.what)
        if self._more_problems:
            findings.violation(
                Invariant.QUEUE_UNIT, self._view.folder, None, f"{self._more_problems} more wrong units"
            )

    def report_beyond(self) -> None:
        """Report the units that point behind the end of the log."""
        queue_offset, phy_offset = self._beyond_from
        self._context.findings.violation(
            Invariant.QUEUE_UNIT,
            *self._view.place(queue_offset),
            f"unit {queue_offset} points at {phy_offset}, behind the end of the log at "
            f"{self._context.log_end_phy_offset}",
        )

    def _problem(self, invariant: Invariant, queue_offset: int, what: str) -> None:
        if len(self._problems) < MAX_ALIKE:
            self._problems.append(_Problem(invariant, queue_offset, what))
        else:
            self._more_problems += 1


def _ranges(bounds: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring bounds as ranges that are not empty."""
    return ((first, last) for first, last in pairwise(bounds) if first < last)
