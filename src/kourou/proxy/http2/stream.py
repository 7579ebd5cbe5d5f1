"""Stream: a call and the state of its HTTP/2 stream, in both directions.

Not here: sending (response_writer.py), receiving (connection.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.protocol.layout import Buffer
from kourou.proxy.http2.call import Call, GrpcCode, Handler
from kourou.proxy.http2.messages import MessageReader
from kourou.proxy.http2.request_headers import RequestHead

if TYPE_CHECKING:
    from kourou.proxy.http2.response_writer import ResponseWriter

_log = logging.getLogger(__name__)


class Stream(Call):
    """One RPC on one connection."""

    __slots__ = (
        "_writer",
        "encoding",
        "ending",
        "handler",
        "has_request",
        "has_response",
        "head_bytes",
        "held_bytes",
        "id",
        "is_client_stream",
        "is_half_closed",
        "progressed_at",
        "queue",
        "queued_bytes",
        "reader",
        "received_bytes",
        "send_window",
    )

    def __init__(
        self,
        stream_id: int,
        head: RequestHead,
        handler: Handler,
        writer: ResponseWriter,
        *,
        is_client_stream: bool,
        now: float,
    ) -> None:
        self.id = stream_id
        self.path = head.path
        self.authority = head.authority
        self.metadata = head.metadata
        self.encoding = head.encoding
        self.deadline_s = None if head.timeout_s is None else now + head.timeout_s
        self.peer = writer.peer
        self.is_tls = writer.is_tls
        self.request = b""
        self.has_request = False
        self.is_over = False
        self.on_message = None
        self.on_half_close = None
        self.on_end = None
        self.on_unsent = None
        self.handler = handler
        self.is_client_stream = is_client_stream
        self.is_half_closed = False
        self.reader: MessageReader | None = None
        self.received_bytes = 0  # since the last WINDOW_UPDATE of this stream
        self.held_bytes = 0  # counted in the server's inbound budget
        self.head_bytes = 0  # the part of it that is the headers and the call itself
        self._writer = writer
        self.send_window = writer.initial_window
        self.has_response = False
        self.queue: deque[Buffer] = deque()  # messages, framed, that wait for windows
        self.queued_bytes = 0
        self.ending: bytes | None = None  # fields of the trailers that follow the queue; empty: status OK
        self.progressed_at = now

    @property
    def unsent_bytes(self) -> int:
        return self.queued_bytes + self._writer.buffered_bytes

    def reply(self, message: bytes) -> None:
        if not self.is_over:
            self._writer.reply(self, message)

    def send(self, message: bytes) -> None:
        if not self.is_over:
            self._writer.send(self, message)

    def finish(self) -> None:
        if not self.is_over:
            self._writer.finish(self)

    def fail(self, code: GrpcCode, text: str) -> None:
        if not self.is_over:
            self._writer.fail(self, code, text)

    def end_early(self) -> None:
        """The call has ended without the handler's doing, and nothing can be sent."""
        if self.is_over:
            return
        on_end = self.on_end
        self.is_over = True
        self.drop_callbacks()
        self._report(on_end)

    def end_with(self, code: GrpcCode, text: str, *fields: bytes) -> None:
        """End the call with a status, without the handler's doing."""
        if self.is_over:
            return
        on_end = self.on_end
        self._writer.fail(self, code, text, *fields)
        self._report(on_end)

    def report_unsent(self) -> None:
        """What waited to be sent is dropped."""
        on_unsent, self.on_unsent = self.on_unsent, None
        self._report(on_unsent)

    def _report(self, on_end: Callable[[], None] | None) -> None:
        if on_end is None:
            return
        try:
            on_end()
        except Exception:
            # A bug of the handler, which must not cost other calls their ends.
            _log.exception("the end of %s of %s was not handled", self.path, self.peer)

    def drop_callbacks(self) -> None:
        """Callbacks often refer to the call: without them it is freed at once."""
        self.on_message = self.on_half_close = self.on_end = None
