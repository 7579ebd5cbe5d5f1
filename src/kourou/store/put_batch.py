"""PutBatch: the puts of one pass, and where each of them goes.

One write, so one fate: all stored or none. Offsets are taken when a put is added; on failure
`give_back` returns them. Each sender is told once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kourou.store.consume_queue import ConsumeQueue
from kourou.store.put_status import PutStatus

_log = logging.getLogger(__name__)

PutDone: TypeAlias = Callable[[PutStatus, int, int], None]
"""Called once with status, phy_offset and queue_offset."""

# done (None: nobody waits for this record), queue (None: not in its ConsumeQueue), topic,
# phy_offset, queue_offset, size, tags_code, index keys, whether the sender waits for the flush
Put: TypeAlias = tuple[PutDone | None, ConsumeQueue | None, str, int, int, int, int, Sequence[str], bool]

BatchMark: TypeAlias = tuple[int, int, int, int]

_NOBODY: Final = 0
_UNWAITED: Final = 1
_ALL: Final = 2


class PutBatch:
    """Records waiting to be written, in log order."""

    __slots__ = (
        "_told",
        "end_phy_offset",
        "first_offsets",
        "puts",
        "start_phy_offset",
        "store_timestamp",
        "writes",
    )

    def __init__(self, start_phy_offset: int, store_timestamp: int) -> None:
        self.start_phy_offset = start_phy_offset
        self.end_phy_offset = start_phy_offset
        self.store_timestamp = store_timestamp
        # One entry per file touched: where its bytes start, and the pieces.
        self.writes: list[tuple[int, list[bytes]]] = [(start_phy_offset, [])]
        self.puts: list[Put] = []
        self.first_offsets: dict[ConsumeQueue, int] = {}
        self._told = _NOBODY

    @property
    def size_bytes(self) -> int:
        """How much will be written."""
        return self.end_phy_offset - self.start_phy_offset

    def mark(self) -> BatchMark:
        """How far the batch is, for `rewind`."""
        return len(self.puts), len(self.writes), len(self.writes[-1][1]), self.end_phy_offset

    def rewind(self, mark: BatchMark) -> None:
        """Take out what was added since `mark`; the queues' offsets are the caller's to put back."""
        puts, writes, parts, self.end_phy_offset = mark
        del self.puts[puts:]
        del self.writes[writes:]
        del self.writes[-1][1][parts:]

    def give_back(self) -> None:
        """The write failed: every queue's next offset is what it was before the batch."""
        for queue, queue_offset in self.first_offsets.items():
            queue.next_queue_offset = queue_offset

    def answer_unwaited(self, status: PutStatus) -> None:
        """Tell the senders that do not wait for the flush."""
        if self._told == _NOBODY:
            self._told = _UNWAITED
            self._tell(status, True, False)

    def answer(self, status: PutStatus) -> None:
        """Tell every sender that was not told before; a second time there is none."""
        told, self._told = self._told, _ALL
        if told != _ALL:
            self._tell(status, told == _NOBODY, True)

    def _tell(self, status: PutStatus, unwaited: bool, waiting: bool) -> None:
        for done, _, _, phy_offset, queue_offset, _, _, _, waits in self.puts:
            if done is not None and (waiting if waits else unwaited):
                # One sender's trouble must not cost the others their answers.
                try:
                    done(status, phy_offset, queue_offset)
                except Exception:
                    _log.exception(
                        "the sender of the record at %d cannot be told %s", phy_offset, status.name
                    )


class PutFailedError(Exception):
    """The write of a batch failed; `batch` was put back and `status` is the answer to all of it."""

    def __init__(self, batch: PutBatch, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.batch = batch
        self.status = status
