"""PutBatch: the puts of one commit cycle, and where each of them goes.

One write, so one fate: all stored or none. Offsets are taken when a put is added; on failure
`give_back` returns them. Each send is answered once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from kourou.protocol.layout import Buffer
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.consume_queue import ConsumeQueue

_log = logging.getLogger(__name__)

PutDone: TypeAlias = Callable[[PutStatus, int, int], None]
"""Called once with status, phy_offset and queue_offset."""

# done (None: without a waiter), phy_offset, queue_offset, whether the sender waits for the flush
Put: TypeAlias = tuple[PutDone | None, int, int, bool]

# topic, index keys, phy_offset, store_timestamp
IndexedRecord: TypeAlias = tuple[str, Sequence[str], int, int]

GrownQueue: TypeAlias = tuple[ConsumeQueue, int, bytes]
"""A queue, its next offset before, and units for it."""


RunRoom: TypeAlias = tuple[int, int, int, int, int]
"""Where a run of records may go: its phy_offset, behind which no record may end, the time of the cycle, and
how many bytes a body and a record may have. Made for each cycle, so a plain tuple."""


class BatchMark(NamedTuple):
    """How far a batch was before the puts to one queue that may be taken out again."""

    queue: ConsumeQueue
    queue_offset: int
    units: int
    puts: int
    message_count: int
    indexed: int
    writes: int
    parts: int
    end_phy_offset: int
    last_phy_offset: int


class PutBatch:
    """Records waiting to be written, in log order, and what becomes of them once they are.

    `last_phy_offset`: no record may end behind it without a new file.
    """

    __slots__ = (
        "end_phy_offset",
        "first_offsets",
        "hashed_keys",
        "indexed",
        "last_phy_offset",
        "message_count",
        "parts",
        "puts",
        "start_phy_offset",
        "store_timestamp",
        "units",
        "writes",
    )

    def __init__(self, start_phy_offset: int, last_phy_offset: int, store_timestamp: int) -> None:
        self.start_phy_offset = start_phy_offset
        self.end_phy_offset = start_phy_offset
        self.store_timestamp = store_timestamp
        # One entry per file touched: where its bytes start, and the pieces. `parts` are the last one's.
        self.parts: list[Buffer] = []
        self.writes: list[tuple[int, list[Buffer]]] = [(start_phy_offset, self.parts)]
        self.last_phy_offset = last_phy_offset
        # The senders without an answer, and the number of messages: some came together, and have one sender.
        self.puts: list[Put] = []
        self.message_count = 0
        # Each piece has the bytes of one unit or more.
        self.units: dict[ConsumeQueue, list[bytes]] = {}
        self.first_offsets: dict[ConsumeQueue, int] = {}
        # What to index: records with their keys, and keys that are hashed already (rows of HASHED_KEYS).
        self.indexed: list[IndexedRecord] = []
        self.hashed_keys: list[bytes] = []

    @property
    def size_bytes(self) -> int:
        """How much will be written."""
        return self.end_phy_offset - self.start_phy_offset

    def begin_file(self, phy_offset: int, last_phy_offset: int) -> None:
        """The next record lies at `phy_offset`, in a file of its own."""
        self.parts = []
        self.writes.append((phy_offset, self.parts))
        self.end_phy_offset = phy_offset
        self.last_phy_offset = last_phy_offset

    def grown(self) -> list[GrownQueue]:
        """The queues with units in the batch."""
        first_offsets = self.first_offsets
        return [(queue, first_offsets[queue], b"".join(pieces)) for queue, pieces in self.units.items()]

    def grow(self, queue: ConsumeQueue, queue_offset: int) -> list[bytes]:
        """Where the units of a queue gather that has none in the batch; its next one is `queue_offset`."""
        self.first_offsets[queue] = queue_offset
        units = self.units[queue] = []
        return units

    def mark(self, queue: ConsumeQueue) -> BatchMark:
        """How far the batch is, for `rewind`; until then puts may go to `queue` only."""
        return BatchMark(
            queue,
            queue.next_queue_offset,
            len(self.units.get(queue, ())),
            len(self.puts),
            self.message_count,
            len(self.indexed),
            len(self.writes),
            len(self.parts),
            self.end_phy_offset,
            self.last_phy_offset,
        )

    def rewind(self, mark: BatchMark) -> None:
        """Take out what was added since `mark`."""
        mark.queue.next_queue_offset = mark.queue_offset
        if not mark.units:
            self.units.pop(mark.queue, None)
            self.first_offsets.pop(mark.queue, None)
        else:
            del self.units[mark.queue][mark.units :]
        del self.puts[mark.puts :]
        self.message_count = mark.message_count
        del self.indexed[mark.indexed :]
        del self.writes[mark.writes :]
        self.parts = self.writes[-1][1]
        del self.parts[mark.parts :]
        self.end_phy_offset = mark.end_phy_offset
        self.last_phy_offset = mark.last_phy_offset

    def give_back(self) -> None:
        """The write failed: every queue's next offset is what it was before the batch."""
        for queue, queue_offset in self.first_offsets.items():
            queue.next_queue_offset = queue_offset

    def answer_unwaited(self, status: PutStatus) -> None:
        """Tell the senders that do not wait for the flush."""
        waiting = [put for put in self.puts if put[3]]
        self.puts = [put for put in self.puts if not put[3]]
        self.answer(status)
        self.puts = waiting

    def answer(self, status: PutStatus) -> None:
        """Answer every send that was not answered before; a second call answers none."""
        puts, self.puts = self.puts, []
        for done, phy_offset, queue_offset, _ in puts:
            if done is not None:
                # One sender's trouble must not cost the others their answers.
                try:
                    done(status, phy_offset, queue_offset)
                except Exception:
                    _log.exception(
                        "cannot notify the sender of the record at %d of %s", phy_offset, status.name
                    )


class PutFailedError(Exception):
    """The write of a batch failed; `batch` was put back and `status` is the answer to all of it."""

    def __init__(self, batch: PutBatch, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.batch = batch
        self.status = status
