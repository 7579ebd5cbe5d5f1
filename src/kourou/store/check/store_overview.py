"""StoreOverview: what a store holds, without reading all of it. Read-only, for `kourou store inspect`.

Queues tell by their first and last units, the log's end is looked for behind the last record that a
queue knows. Not here: whether all of that is right (check.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kourou.errors import ProtocolError
from kourou.store.check.check_config import committed_offsets
from kourou.store.disk.file_lock import is_locked
from kourou.store.disk.files import Files
from kourou.store.index.index_entry import HEADER_BYTES, IndexHeader, IndexLayout
from kourou.store.log.dispatch_request import Blank, DispatchRequest
from kourou.store.log.log_reader import LogReader
from kourou.store.queue.queue_view import QueueView
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.store_layout import StoreLayout, find_layout, index_layout


@dataclass(frozen=True, slots=True)
class LogFileOverview:
    """One CommitLog file. `first_timestamp` is None where it does not begin with a record."""

    path: Path
    start_phy_offset: int
    length: int
    first_timestamp: int | None


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """One ConsumeQueue: offsets from `min_queue_offset` to before `max_queue_offset`."""

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    files: int

    @property
    def count(self) -> int:
        """How many messages it has."""
        return self.max_queue_offset - self.min_queue_offset


@dataclass(frozen=True, slots=True)
class IndexFileOverview:
    """One IndexFile; `layout` is None where its length tells nothing."""

    path: Path
    header: IndexHeader
    layout: IndexLayout | None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group has consumed a queue; `lag` is None where there is no such queue."""

    group: str
    topic: str
    queue_id: int
    consumer_offset: int
    lag: int | None


@dataclass(slots=True)
class StoreOverview:
    """A store at a glance."""

    root: Path
    is_clean: bool
    in_use: bool
    log_file_bytes: int | None
    queue_file_bytes: int | None
    checkpoint: StoreCheckpoint
    log_min_phy_offset: int = 0
    log_end_phy_offset: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    log_files: list[LogFileOverview] = field(default_factory=list)
    queues: list[QueueOverview] = field(default_factory=list)
    index_files: list[IndexFileOverview] = field(default_factory=list)
    groups: list[GroupOffset] = field(default_factory=list)

    @property
    def topics(self) -> dict[str, list[QueueOverview]]:
        """The queues of each topic."""
        topics: dict[str, list[QueueOverview]] = {}
        for queue in self.queues:
            topics.setdefault(queue.topic, []).append(queue)
        return topics


def overview(
    files: Files, root: Path, *, log_folders: Sequence[Path] = (), index_slots: int | None = None
) -> StoreOverview:
    """Look at the store in `root`. Errors as in `find_layout`; OSError when a file cannot be read."""
    layout = find_layout(files, root, log_folders)
    with LogReader(files, layout.log_files) as reader:
        return _Overview(files, layout, reader).make(index_slots)


class _Overview:
    def __init__(self, files: Files, layout: StoreLayout, reader: LogReader) -> None:
        self._files = files
        self._layout = layout
        self._reader = reader
        self._log_min = layout.log_files[0].start if layout.log_files else 0
        self._queues_end = 0

    def make(self, index_slots: int | None) -> StoreOverview:
        """Look at all of it."""
        layout = self._layout
        made = StoreOverview(
            layout.root,
            not layout.has_abort,
            is_locked(layout.root / "lock") is True,
            layout.log_file_bytes,
            layout.queue_file_bytes,
            StoreCheckpoint(self._files, layout.checkpoint),
        )
        made.checkpoint.load()
        made.log_files = self._log_files()
        made.queues = self._queues()
        made.index_files = self._index_files(index_slots)
        made.groups = self._groups(made.queues)
        made.log_min_phy_offset = self._log_min
        made.log_end_phy_offset, made.last_timestamp = self._find_end()
        times = [file.first_timestamp for file in made.log_files if file.first_timestamp is not None]
        made.first_timestamp = times[0] if times else None
        return made

    # -- the log ---------------------------------------------------------------------------------

    def _log_files(self) -> list[LogFileOverview]:
        return [
            LogFileOverview(file.path, file.start, file.length, self._first_timestamp(file.start))
            for file in self._layout.log_files
        ]

    def _first_timestamp(self, phy_offset: int) -> int | None:
        found = self._record(phy_offset)
        return found.store_timestamp if isinstance(found, DispatchRequest) else None

    def _record(self, phy_offset: int) -> DispatchRequest | Blank | None:
        try:
            return self._reader.request_at(phy_offset)
        except ProtocolError:
            return None

    def _find_end(self) -> tuple[int, int | None]:
        """Where the log ends, and the store time of its last record."""
        return self._reader.find_end(self._last_known())

    def _last_known(self) -> int:
        """A record near the end of the log: the last one that a queue has, else a file's first."""
        if self._queues_end:
            return self._queues_end
        starts = [file.start for file in self._layout.log_files if self._record(file.start)]
        return starts[-1] if starts else self._log_min

    # -- queues and index ------------------------------------------------------------------------

    def _queues(self) -> list[QueueOverview]:
        file_bytes = self._layout.queue_file_bytes or 1
        queues = []
        for (topic, queue_id), folder in sorted(self._layout.queues.items()):
            view = QueueView(self._files, folder, file_bytes)
            self._watch_end(view)
            end = view.end_queue_offset
            queues.append(
                QueueOverview(
                    topic, queue_id, view.min_queue_offset(self._log_min), end, len(folder.segments)
                )
            )
        return queues

    def _watch_end(self, view: QueueView) -> None:
        if view.end_queue_offset > view.first_queue_offset:
            last = int(view.units(view.end_queue_offset - 1, 1).phy_offsets[0])
            if last > self._queues_end and isinstance(self._record(last), DispatchRequest):
                self._queues_end = last

    def _index_files(self, index_slots: int | None) -> list[IndexFileOverview]:
        return [
            IndexFileOverview(path, self._index_header(path), index_layout(length, index_slots))
            for path, length in self._layout.index_files
        ]

    def _index_header(self, path: Path) -> IndexHeader:
        with self._files.open(path, writable=False) as file:
            return IndexHeader.decode(file.pread(HEADER_BYTES, 0).ljust(HEADER_BYTES, b"\0"))

    def _groups(self, queues: list[QueueOverview]) -> list[GroupOffset]:
        ends = {(queue.topic, queue.queue_id): queue.max_queue_offset for queue in queues}
        groups = []
        for key, offsets in sorted(committed_offsets(self._files, self._layout).items()):
            topic, _, group = key.partition("@")
            for queue_id, consumer_offset in sorted(offsets.items()):
                end = ends.get((topic, queue_id))
                lag = None if end is None else end - consumer_offset
                groups.append(GroupOffset(group, topic, queue_id, consumer_offset, lag))
        return groups
