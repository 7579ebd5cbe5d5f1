"""Where the CommitLog of a store ends that is only looked at: behind its last whole record.

The search begins near the end: at the durable offset that Kourou notes, else at the last record that a queue
has. What a running broker is writing at that moment does not count: only valid records do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kourou.store.disk.files import Files
from kourou.store.log.log_reader import LogReader
from kourou.store.queue.queue_view import QueueView
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.store_layout import StoreLayout

_CHECKPOINT_READS: Final = 10


class LogEnd(NamedTuple):
    """`phy_offset` is behind the last whole record, `last_timestamp` its store time, None if not known.
    Records were followed from `begin_phy_offset` on. `durable_phy_offset`: up to there Kourou had synced the
    log when its checkpoint was read; 0: not known."""

    phy_offset: int
    last_timestamp: int | None
    begin_phy_offset: int
    durable_phy_offset: int


def find_log_end(files: Files, layout: StoreLayout, reader: LogReader, checkpoint: StoreCheckpoint) -> LogEnd:
    """Find the end of a log. OSError when a file cannot be read."""
    if not layout.log_files:
        return LogEnd(0, None, 0, 0)
    first, last = layout.log_files[0], layout.log_files[-1]
    durable = checkpoint.durable_phy_offset if checkpoint.is_ours else 0
    if first.start < durable <= last.start + last.length:
        end, timestamp = reader.find_end(durable)
        return LogEnd(end, timestamp or checkpoint.physic_msg_timestamp or None, durable, durable)
    start = _last_queued(files, layout, reader)
    if start is None:
        starts = [file.start for file in layout.log_files if reader.is_record(file.start)]
        start = starts[-1] if starts else first.start
    return LogEnd(*reader.find_end(start), start, 0)


class ReadCheckpoint(NamedTuple):
    """A checkpoint, and the bytes that were read; None: there is no file."""

    checkpoint: StoreCheckpoint
    raw: bytes | None


def read_checkpoint(files: Files, layout: StoreLayout) -> ReadCheckpoint:
    """The checkpoint, which a running broker may be writing: read again while it is not whole."""
    checkpoint = StoreCheckpoint(files, layout.checkpoint)
    raw: bytes | None = None
    for _ in range(_CHECKPOINT_READS):
        try:
            raw = files.read(layout.checkpoint)
        except FileNotFoundError:
            break
        checkpoint.decode(raw)
        if checkpoint.problem is None:
            break
    return ReadCheckpoint(checkpoint, raw)


def _last_queued(files: Files, layout: StoreLayout, reader: LogReader) -> int | None:
    """The last record that a queue has."""
    last: int | None = None
    for folder in layout.queues.values():
        view = QueueView(files, folder, layout.queue_file_bytes or 1)
        if view.end_queue_offset <= view.first_queue_offset:
            continue
        phy_offset = int(view.units(view.end_queue_offset - 1, 1).phy_offsets[0])
        if (last is None or phy_offset > last) and reader.is_record(phy_offset):
            last = phy_offset
    return last
