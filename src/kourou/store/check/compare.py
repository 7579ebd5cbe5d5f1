"""compare_stores: from which offset on two stores differ. Read-only; running brokers are not disturbed.

First the CommitLogs, byte by byte over their common range. The ends are those found at the beginning,
whatever is appended meanwhile; files that are deleted meanwhile move the start of the range. Then the end of
each queue, within the part of the logs that is equal. Memory does not grow with the stores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from kourou.errors import ProtocolError, StoreFormatError
from kourou.protocol.ha import Epoch
from kourou.protocol.record_spans import leading_bounds
from kourou.store.check.log_end import find_log_end, read_checkpoint
from kourou.store.disk.file_lock import is_locked
from kourou.store.disk.files import Files
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.log_reader import LogReader
from kourou.store.queue.queue_view import QueueView
from kourou.store.replica.epochs import EpochFile
from kourou.store.replica.handshake import common_end
from kourou.store.store_layout import QueueKey, StoreLayout, find_layout

_BLOCK_BYTES: Final = 1024 * 1024
_WALK_BYTES: Final = 4 * 1024 * 1024

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ComparedRecord:
    """What one store has at the divergence. `problem`: why it is not a record; the rest is empty then."""

    size: int = 0
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    store_timestamp: int = 0
    msg_id: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first record that differs, and its first byte that does."""

    phy_offset: int
    byte_phy_offset: int
    a: ComparedRecord
    b: ComparedRecord


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """A queue whose ends differ; None: that store has no message of it in the part compared."""

    topic: str
    queue_id: int
    a_end: int | None
    b_end: int | None


@dataclass(slots=True)
class ComparedStore:
    """One of the two, as it was at the beginning."""

    root: Path
    min_phy_offset: int
    end_phy_offset: int
    last_timestamp: int | None
    epochs: tuple[Epoch, ...]
    is_clean: bool
    in_use: bool

    @property
    def is_settled(self) -> bool:
        """Whether the queues' files have everything: a running or killed broker may not have written all."""
        return self.is_clean and not self.in_use

    @property
    def is_empty(self) -> bool:
        """Whether its log has no record."""
        return self.min_phy_offset >= self.end_phy_offset


@dataclass(slots=True)
class Comparison:
    """The outcome. Compared were the bytes from `min_phy_offset` to `end_phy_offset`; `epochs_end` is how far
    the logs can be the same by their epochs, None where a store has none."""

    a: ComparedStore
    b: ComparedStore
    min_phy_offset: int = 0
    end_phy_offset: int = 0
    divergence: Divergence | None = None
    epochs_end: int | None = None
    queues: list[QueueDifference] = field(default_factory=list)

    @property
    def has_common_range(self) -> bool:
        """Whether there was something to compare, or one of the logs is empty."""
        return self.min_phy_offset < self.end_phy_offset or self.a.is_empty or self.b.is_empty

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found. Queues count if both stores have written all of them."""
        queues_differ = bool(self.queues) and self.a.is_settled and self.b.is_settled
        return self.has_common_range and self.divergence is None and not queues_differ


def compare_stores(
    files: Files,
    root_a: Path,
    root_b: Path,
    *,
    log_folders_a: Sequence[Path] = (),
    log_folders_b: Sequence[Path] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Compare two stores. Errors as in `find_layout`; OSError when a file cannot be read."""
    with _Side(files, root_a, log_folders_a) as a, _Side(files, root_b, log_folders_b) as b:
        found = Comparison(a.describe(), b.describe())
        found.min_phy_offset = max(found.a.min_phy_offset, found.b.min_phy_offset)
        found.end_phy_offset = min(found.a.end_phy_offset, found.b.end_phy_offset)
        if found.a.epochs and found.b.epochs:
            found.epochs_end = common_end(
                found.a.epochs, found.a.end_phy_offset, found.b.epochs, found.b.end_phy_offset
            )
        _compare_logs(found, a, b, progress)
        limit = found.end_phy_offset if found.divergence is None else found.divergence.phy_offset
        found.queues = list(_queue_differences(a, b, found.min_phy_offset, limit))
        return found


class _Side:
    """One of the two stores, open for reading."""

    def __init__(self, files: Files, root: Path, log_folders: Sequence[Path]) -> None:
        self._files = files
        self._root = root
        self._log_folders = log_folders
        self.layout: StoreLayout = find_layout(files, root, log_folders)
        self.reader = LogReader(files, self.layout.log_files)

    def describe(self) -> ComparedStore:
        layout = self.layout
        epochs = EpochFile(self._files, self._root)
        epochs.load()
        checkpoint = read_checkpoint(self._files, layout).checkpoint
        end = find_log_end(self._files, layout, self.reader, checkpoint)
        return ComparedStore(
            root=self._root,
            min_phy_offset=self.min_phy_offset,
            end_phy_offset=end.phy_offset,
            last_timestamp=end.last_timestamp,
            epochs=epochs.epochs,
            is_clean=not layout.has_abort,
            in_use=is_locked(self._root / "lock") is True,
        )

    @property
    def min_phy_offset(self) -> int:
        return self.layout.log_files[0].start if self.layout.log_files else 0

    def read(self, phy_offset: int, size_bytes: int) -> bytes:
        """Bytes of one file, at least one; none when the broker has deleted the file since."""
        try:
            raw = self.reader.read(phy_offset, size_bytes)
        except FileNotFoundError:
            raw = b""
        if not raw:
            self.list_again()
            if phy_offset >= self.min_phy_offset:
                raise StoreFormatError(self._root, f"the CommitLog has no byte {phy_offset}")
        return raw

    def list_again(self) -> None:
        """See which files there are now."""
        self.reader.close()
        self.layout = find_layout(self._files, self._root, self._log_folders)
        self.reader = LogReader(self._files, self.layout.log_files)

    def record_start(self, phy_offset: int) -> int:
        """Where the record begins that has this byte, by the sizes of those before it in its file; as far as
        they can be followed."""
        segment = self.reader.segment_at(phy_offset)
        at = segment.start if segment is not None else phy_offset
        while at < phy_offset:
            bounds = leading_bounds(self.reader.read(at, _WALK_BYTES))
            behind = at + bounds
            if int(behind[-1]) > phy_offset:
                return int(behind[np.searchsorted(behind, phy_offset, "right") - 1])
            at = int(behind[-1])
            if not bounds[-1]:
                size = self._record_size(at)  # larger than what was read, or none
                if not size or at + size > phy_offset:
                    break
                at += size
        return at

    def _record_size(self, phy_offset: int) -> int:
        try:
            found = self.reader.request_at(phy_offset)
        except ProtocolError:
            return 0
        return found.size if isinstance(found, DispatchRequest) else 0

    def record(self, phy_offset: int) -> ComparedRecord:
        """What lies at the start of a record."""
        try:
            message = self.reader.message_at(phy_offset)
        except ProtocolError as error:
            return ComparedRecord(problem=str(error))
        return ComparedRecord(
            size=message.store_size,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            store_timestamp=message.store_timestamp,
            msg_id=message.msg_id,
        )

    def queue_end(self, key: QueueKey, low: int, limit: int) -> int | None:
        """The offset behind the last message of a queue whose record lies between the two."""
        folder = self.layout.queues.get(key)
        if folder is None:
            return None
        view = QueueView(self._files, folder, self.layout.queue_file_bytes or 1)

        def is_behind(queue_offset: int) -> bool:
            unit = view.units(queue_offset, 1)
            return int(unit.phy_offsets[0]) >= limit

        first, end = view.first_queue_offset, view.end_queue_offset
        end = first + bisect_left(range(first, end), True, key=is_behind)
        if end <= first or int(view.units(end - 1, 1).phy_offsets[0]) < low:
            return None
        return end

    def __enter__(self) -> _Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()


def _compare_logs(found: Comparison, a: _Side, b: _Side, progress: Progress | None) -> None:
    """Compare the bytes of the common range, up to the first that differ."""
    at = found.min_phy_offset
    while at < found.end_phy_offset:
        size = min(_BLOCK_BYTES, found.end_phy_offset - at)
        raw_a = a.read(at, size)
        raw_b = b.read(at, len(raw_a)) if raw_a else b""
        if not raw_b:
            # What was compared before is gone from one of them: it does not count any more.
            at = found.min_phy_offset = max(a.min_phy_offset, b.min_phy_offset)
            continue
        raw_a = raw_a[: len(raw_b)]
        if raw_a != raw_b:
            found.divergence = _divergence(at + _first_difference(raw_a, raw_b), found.min_phy_offset, a, b)
            return
        at += len(raw_a)
        if progress is not None:
            progress(at - found.min_phy_offset, found.end_phy_offset - found.min_phy_offset)


def _first_difference(a: bytes, b: bytes) -> int:
    return int(np.argmax(np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)))


def _divergence(byte_phy_offset: int, low: int, a: _Side, b: _Side) -> Divergence:
    phy_offset = max(a.record_start(byte_phy_offset), low)
    return Divergence(phy_offset, byte_phy_offset, a.record(phy_offset), b.record(phy_offset))


def _queue_differences(a: _Side, b: _Side, low: int, limit: int) -> Iterator[QueueDifference]:
    a.list_again()
    b.list_again()
    for key in sorted(a.layout.queues.keys() | b.layout.queues.keys()):
        try:
            end_a, end_b = a.queue_end(key, low, limit), b.queue_end(key, low, limit)
        except FileNotFoundError:
            continue  # deleted meanwhile
        if end_a != end_b:
            yield QueueDifference(*key, end_a, end_b)
