"""QueuesCheck: every ConsumeQueue of a store, files and units.

Not here: one queue's units (check_queue.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from kourou.protocol.names import is_system_topic
from kourou.store.check.check_context import CheckContext
from kourou.store.check.check_queue import QueueCheck, QueuesTally
from kourou.store.check.check_window import QueueRows
from kourou.store.check.invariants import Invariant
from kourou.store.queue.cq_unit import UNIT_BYTES
from kourou.store.queue.queue_view import QueueView
from kourou.store.store_layout import QueueFolder, QueueKey, SegmentFile, is_number
from kourou.wording import counted


class QueuesCheck:
    """All queues. Make it before the log is read, feed it with records, then `finish`."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._file_bytes = context.layout.queue_file_bytes or UNIT_BYTES
        self._tally = QueuesTally()
        # A folder without files is what a crash may leave of a queue that was about to be made.
        self._queues = {key: folder for key, folder in context.layout.queues.items() if folder.segments}
        self._topics = {topic for topic, _ in self._queues}
        self._checks: dict[QueueKey, QueueCheck] = {}
        self._unreadable: set[QueueKey] = set()
        # Queues that the log has records of and that have no folder.
        self._absent: dict[QueueKey, QueueCheck] = {}

    def open(self) -> None:
        """Check the files, find the ends; the context learns how far the queues reach into the log."""
        counts = self._context.findings.report.counts
        end_of_log = self._end_of_log_files()
        for key, folder in self._queues.items():
            counts.queues += 1
            counts.queue_files += len(folder.segments)
            self._check_files(folder)
            try:
                view = QueueView(self._context.files, folder, self._file_bytes)
                reaches = view.last_end_phy_offset()
            except OSError as error:
                self._cannot_read(key, folder, error)
                continue
            self._checks[key] = QueueCheck(self._context, view, self._tally, ext_bytes=self._ext_bytes(key))
            if reaches <= end_of_log:  # else it is a broken unit, or the log has lost its end
                known = self._context.queues_end_phy_offset
                self._context.queues_end_phy_offset = max(known, reaches)

    def _ext_bytes(self, key: QueueKey) -> int:
        """How far the queue's extension reaches, if it has one."""
        files, topic, queue_id = self._context.files, *key
        folder = self._context.layout.root / "consumequeue_ext" / topic / str(queue_id)
        numbers = [name for name in files.list_names(folder) if is_number(name, 20)]
        return int(numbers[-1]) + files.length(folder / numbers[-1]) if numbers else 0

    def _end_of_log_files(self) -> int:
        return max((file.start + file.length for file in self._context.layout.log_files), default=0)

    def _cannot_read(self, key: QueueKey, folder: QueueFolder, error: OSError) -> None:
        self._unreadable.add(key)
        path = folder.path if error.filename is None else type(folder.path)(error.filename)
        self._context.unreadable(path, error)

    # -- files -----------------------------------------------------------------------------------

    def _check_files(self, folder: QueueFolder) -> None:
        expected: int | None = None
        for segment in folder.segments:
            self._check_file(segment)
            if expected is not None and segment.start > expected:
                missing = (segment.start - expected) // self._file_bytes
                self._context.findings.violation(
                    Invariant.QUEUE_CONTIGUOUS,
                    segment.path,
                    None,
                    f"{missing} {'file is' if missing == 1 else 'files are'} missing before it, "
                    f"from {expected:020d} on",
                )
            expected = segment.start + self._file_bytes

    def _check_file(self, segment: SegmentFile) -> None:
        findings = self._context.findings
        if segment.start % self._file_bytes:
            findings.violation(
                Invariant.QUEUE_FILE_NAME,
                segment.path,
                None,
                f"its name is not a multiple of the file size {self._file_bytes}",
            )
        if segment.length == self._file_bytes:
            return
        if segment.length < self._file_bytes and self._context.will_recover:
            findings.recovery(segment.path, segment.length, f"give it {self._file_bytes} bytes again")
        else:
            findings.violation(
                Invariant.QUEUE_FILE_LENGTH,
                segment.path,
                min(segment.length, self._file_bytes),
                f"it has {segment.length} bytes, the others have {self._file_bytes}",
            )

    # -- records ---------------------------------------------------------------------------------

    def take(self, queues: Iterable[tuple[QueueKey, QueueRows]]) -> None:
        """Compare records, in the order of the log, with their units."""
        for key, rows in queues:
            check = self._check_of(key)
            if check is None:
                continue
            try:
                check.take(rows)
            except OSError as error:
                self._checks.pop(key, None)
                self._cannot_read(key, self._folder(key), error)

    def _check_of(self, key: QueueKey) -> QueueCheck | None:
        check = self._checks.get(key) or self._absent.get(key)
        if check is None and key not in self._unreadable and key[0] not in self._context.layout.batch_topics:
            view = QueueView(self._context.files, self._folder(key), self._file_bytes)
            check = self._absent[key] = QueueCheck(self._context, view, self._tally)
        return check

    def _folder(self, key: QueueKey) -> QueueFolder:
        topic, queue_id = key
        return QueueFolder(self._context.layout.queue_root / topic / str(queue_id))

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check what can be decided only after the last record."""
        for key, check in self._checks.items():
            try:
                check.finish()
            except OSError as error:
                self._cannot_read(key, self._folder(key), error)
            self._note_earlier(key, check)
        self._finish_absent()
        self._report_beyond()
        self._report_tally()

    def _report_beyond(self) -> None:
        """A single unit that points behind the log is wrong; if many do, the log has lost its end."""
        context = self._context
        reaching = [check for check in self._checks.values() if check.beyond]
        units = sum(check.beyond for check in reaching)
        context.has_lost_end = units > 1
        if not context.has_lost_end:
            for check in reaching:
                check.report_beyond()
            return
        segments = context.layout.log_files
        end = context.log_end_phy_offset
        context.findings.violation(
            Invariant.LOG_END,
            segments[-1].path if segments else context.layout.log_folders[0],
            max(end - segments[-1].start, 0) if segments else None,
            f"the log ends at {end}, and {units} units in {counted(len(reaching), 'queue')} point behind it",
        )

    def _note_earlier(self, key: QueueKey, check: QueueCheck) -> None:
        if check.earlier_records:
            self._context.findings.note(
                self._folder(key).path,
                None,
                f"{counted(check.earlier_records, 'record')} in the log are from before this topic was "
                "deleted and created again",
            )

    def _finish_absent(self) -> None:
        gone: dict[str, int] = {}
        restarts = self._restarts()
        for key, check in self._absent.items():
            if check.last_phy_offset < restarts.get(key[0], 0) or self._was_deleted(key[0]):
                gone[key[0]] = gone.get(key[0], 0) + check.records + check.earlier_records
            else:
                check.finish()
        for topic, records in gone.items():
            self._context.findings.note(
                self._context.layout.queue_root / topic,
                None,
                f"{counted(records, 'record')} of this topic in the log, no queue: it was deleted",
            )

    def _was_deleted(self, topic: str) -> bool:
        """Whether a topic is not expected to have queues."""
        context = self._context
        if topic in context.options.deleted_topics:
            return True
        # System topics need no entry in topics.json.
        if is_system_topic(topic) or topic in self._topics:
            return False
        if context.topics is not None:
            return topic not in context.topics
        # Without topics.json a store that has no queue at all has lost them, and a folder its files.
        folders = {name for name, _ in context.layout.queues}
        return bool(folders) and topic not in folders

    def _restarts(self) -> dict[str, int]:
        """Topics that were deleted and made anew, and where the first record after that lies."""
        restarts: dict[str, int] = {}
        for (topic, _), check in self._checks.items():
            if check.restart_phy_offset:
                restarts[topic] = min(check.restart_phy_offset, restarts.get(topic, check.restart_phy_offset))
        return restarts

    def _report_tally(self) -> None:
        tally, findings, root = self._tally, self._context.findings, self._context.layout.queue_root
        findings.report.counts.units = tally.units
        if tally.undispatched:
            what = f"{counted(tally.undispatched, 'record')} from {tally.undispatched_phy_offset} on"
            if self._context.in_use:
                findings.note(root, None, f"{what} are not in the files of their queues yet")
            else:
                findings.recovery(root, None, f"dispatch {what}, which are in no queue")
        if tally.beyond_end:
            end = self._context.log_end_phy_offset
            what = f"{counted(tally.beyond_end, 'unit')} that point behind the end of the log at {end}"
            if self._context.in_use:
                findings.note(root, None, f"{what} were written while the check went on")
            else:
                findings.recovery(root, None, f"remove {what}")
        if tally.in_holes:
            findings.note(
                root, None, f"units that point into damaged or missing parts of the log: {tally.in_holes}"
            )
        if tally.blanks:
            findings.note(root, None, f"blank units, which hold the place of lost messages: {tally.blanks}")
        if tally.ext_addresses:
            findings.note(
                root, None, f"units that lead to consumequeue_ext, not looked at: {tally.ext_addresses}"
            )
