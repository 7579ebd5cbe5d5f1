"""LargeReads: receives the bytes of one connection straight into memory that the log can be written from.

A connection that brings much in one read is handed over to this, and back as soon as it brings something
else. An event loop copies what it reads into bytes, and a frame that does not come whole is copied again.
Here bytes arrive in a room: its whole sends are collected where they are, as views; of an incomplete frame
the beginning is moved to the next room, once. A room lives as long as there is a view of it, and its bytes
are never written a second time.
Not here: what is no send, or cannot be collected (connection.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kourou.protocol.layout import FRAME

if TYPE_CHECKING:
    from kourou.transport.connection import BulkHandler, Connection, InboundBudget

MAX_LARGE_READS: Final = 64
"""So many connections of a server may have a room each, 32 MiB in total; the others receive as always."""
_ROOM_BYTES: Final = 512 * 1024
# Other connections wait for the end of a read.
_READ_BYTES: Final = 256 * 1024
# A read that brings no more than this, and leaves nothing, is the last one here.
_FEW_BYTES: Final = 16 * 1024

_PREFIX: Final = FRAME.struct()
_unpack_prefix: Final = _PREFIX.unpack_from
_LENGTH_BYTES: Final = FRAME.end("length")


class LargeReads(asyncio.BufferedProtocol):
    """Stands in for a connection at its transport. `rest` is what it had received of an incomplete frame."""

    __slots__ = ("_budget", "_bulk", "_connection", "_end", "_frame_bytes", "_is_over", "_start", "_view")

    def __init__(self, connection: Connection, bulk: BulkHandler, budget: InboundBudget, rest: bytes) -> None:
        self._connection = connection
        self._bulk = bulk
        self._budget = budget
        budget.large_reads += 1
        # The room: [start, end) are received and not collected, the beginning of a frame of `_frame_bytes`.
        self._view = memoryview(rest)
        self._start = 0
        self._end = len(rest)
        self._frame_bytes = 0
        self._is_over = False
        self._is_incomplete(len(rest))

    def get_buffer(self, sizehint: int) -> memoryview:
        view, start, end = self._view, self._start, self._end
        if view.readonly or start + self._frame_bytes > len(view):
            room = memoryview(self._bulk.room(max(_ROOM_BYTES, self._frame_bytes)))
            room[: end - start] = view[start:end]
            self._view = view = room
            self._start, self._end = 0, (end := end - start)
        return view[end : end + _READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._end = end = self._end + nbytes
        connection = self._connection
        self._start += connection.collect_large(self._view[self._start : end])
        rest = end - self._start
        if self._is_over:
            return
        if not (self._is_incomplete(rest) if rest else nbytes > _FEW_BYTES):
            self._hand_back()
            return
        if not rest:
            self._view, self._start, self._end, self._frame_bytes = _NOTHING, 0, 0, 0
        connection.large_read_done(rest, nbytes)

    def _is_incomplete(self, rest: int) -> bool:
        """Whether the rest is the beginning of a frame, as far as can be said; its length is known then."""
        if rest < _PREFIX.size:
            return False
        self._frame_bytes = _LENGTH_BYTES + _unpack_prefix(self._view, self._start)[0]
        return rest < self._frame_bytes <= self._connection.max_frame_bytes

    def _hand_back(self) -> None:
        rest = bytes(self._view[self._start : self._end])
        self._end_reads()
        self._connection.end_large_reads(rest)

    def _end_reads(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._budget.large_reads -= 1
            self._view = _NOTHING

    # -- what concerns the connection only ---------------------------------------------------------

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_reads()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


_NOTHING: Final = memoryview(b"")
