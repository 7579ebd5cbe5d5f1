"""check_store: every invariant of a store, read-only, for operators and for tests.

One pass over the CommitLog; ConsumeQueues and IndexFiles are compared with its records on the way,
a window of records at a time, so that memory does not grow with the store. What each file must be is
stated in invariants.py, once; what a start would repair is distinguished from damage (check_report.py).
Nothing is written, nothing is locked. A store in use can be checked too; what its broker has not
written yet is then noted.
"""

from __future__ import annotations

from pathlib import Path

from kourou.store.check.check_checkpoint import CheckpointCheck
from kourou.store.check.check_config import check_config, check_snapshot, known_topics, note_others
from kourou.store.check.check_context import CheckContext, CheckOptions
from kourou.store.check.check_index import IndexCheck
from kourou.store.check.check_log import LogCheck
from kourou.store.check.check_queues import QueuesCheck
from kourou.store.check.check_report import CheckReport, Findings
from kourou.store.check.check_window import CheckWindow
from kourou.store.disk.file_lock import is_locked
from kourou.store.disk.files import Files
from kourou.store.kernel import Kernel
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.log_reader import LogReader
from kourou.store.log.record_columns import RecordColumns
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.store_layout import StoreLayout, find_layout

__all__ = ["CheckOptions", "CheckReport", "check_store"]

_NO_OPTIONS = CheckOptions()


def check_store(
    files: Files, root: Path, *, options: CheckOptions = _NO_OPTIONS, kernel: Kernel | None = None
) -> CheckReport:
    """Check the store in `root`; a kernel computes the CRCs of bodies.

    StoreFormatError when there is none, StorageError when its folders cannot be listed. A file that
    cannot be read is a finding.
    """
    layout = find_layout(files, root, options.commit_log_folders)
    report = CheckReport(root)
    with LogReader(files, layout.log_files, options.delay_levels) as reader:
        checkpoint = StoreCheckpoint(files, layout.checkpoint)
        is_clean, in_use = not layout.has_abort, is_locked(root / "lock") is True
        context = CheckContext(
            files, layout, Findings(report), options, checkpoint, reader, is_clean, in_use, kernel
        )
        _StoreCheck(context).run()
    return report


class _StoreCheck:
    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._queues = QueuesCheck(context)
        self._index = IndexCheck(context)

    def run(self) -> None:
        """Check everything; the findings have it then."""
        context = self._context
        self._note_state()
        checkpoint = CheckpointCheck(context, self._read_checkpoint())
        context.topics = known_topics(context.files, context.layout)
        context.log_min_phy_offset = _log_min(context.layout)
        context.redispatch_phy_offset = _redispatch_from(context)
        self._queues.open()
        self._index.open()
        self._scan(checkpoint)
        self._queues.finish()
        self._index.finish()
        checkpoint.finish()
        check_config(context)
        check_snapshot(context)
        note_others(context)
        self._close()

    def _note_state(self) -> None:
        context, root = self._context, self._context.layout.root
        if context.in_use:
            context.findings.note(
                root / "lock",
                None,
                "a broker has this store open; what it writes meanwhile may be reported as inconsistent",
            )
        elif not context.is_clean:
            context.findings.recovery(
                root / "abort", None, "run at the next start: the last owner of this store was killed"
            )

    def _read_checkpoint(self) -> bytes | None:
        context = self._context
        try:
            raw = context.files.read(context.layout.checkpoint)
        except FileNotFoundError:
            return None
        except OSError as error:
            context.unreadable(context.layout.checkpoint, error)
            return None
        context.checkpoint.decode(raw)
        return raw

    def _scan(self, checkpoint: CheckpointCheck) -> None:
        window = CheckWindow(self._context.options.delay_levels)
        end_phy_offset = 0

        def take(columns: RecordColumns) -> None:
            nonlocal end_phy_offset
            end_phy_offset = int(columns.phy_offsets[-1] + columns.sizes[-1])
            checkpoint.take(columns.store_timestamps)
            window.add(columns)
            if window.is_full:
                self._compare(window, end_phy_offset)

        LogCheck(self._context, take).run()
        self._compare(window, end_phy_offset)

    def _compare(self, window: CheckWindow, end_phy_offset: int) -> None:
        queues, keys = window.take()
        self._queues.take(queues)
        self._index.take(keys, end_phy_offset)

    def _close(self) -> None:
        context = self._context
        report = context.findings.report
        report.is_clean, report.in_use = context.is_clean, context.in_use
        report.log_min_phy_offset = context.log_min_phy_offset
        report.log_end_phy_offset = context.log_end_phy_offset
        report.counts.log_files = len(context.layout.log_files)
        context.findings.close()


def _log_min(layout: StoreLayout) -> int:
    return layout.log_files[0].start if layout.log_files else 0


def _redispatch_from(context: CheckContext) -> int:
    """From where on the next start dispatches records again, as recovery.py decides it."""
    checkpoint = context.checkpoint
    if context.in_use:
        return 0  # nothing will be lost, it is only not written yet
    if checkpoint.is_ours:
        return checkpoint.logics_physical_offset
    for segment in reversed(context.layout.log_files):
        if not context.reader.is_record(segment.start):
            continue
        first = context.reader.request_at(segment.start)
        if isinstance(first, DispatchRequest) and first.store_timestamp <= checkpoint.min_timestamp:
            return segment.start
    return 0
