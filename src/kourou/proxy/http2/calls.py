"""Calls: the open calls of one connection, from their header fields and DATA to their handlers.

A fault of a request ends its call with a status or resets its stream; a fault that concerns the connection
raises Http2Error. Not here: other frames (connection.py), responses (response_writer.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import GrpcCode, Handler
from kourou.proxy.http2.frames import ErrorCode, Http2Error
from kourou.proxy.http2.hpack import Field
from kourou.proxy.http2.messages import IDENTITY, PREFIX_BYTES, CallError, MessageReader
from kourou.proxy.http2.request_headers import (
    HttpStatusError,
    MalformedRequestError,
    RequestHead,
    read_request_head,
)
from kourou.proxy.http2.response_headers import ACCEPTED_ENCODINGS, literal
from kourou.proxy.http2.response_writer import ResponseWriter
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from kourou.proxy.http2.stream import Stream

_log = logging.getLogger(__name__)

STREAM_WINDOW: Final = 4 * 1024 * 1024 + 256 * 1024
"""What a client may send before it needs an update: a body of the usual limit, 4 MiB, and more."""
CONNECTION_WINDOW: Final = 32 * 1024 * 1024
"""The same over all calls of a connection."""

# A window is given back when half of it is used.
_STREAM_UPDATE: Final = STREAM_WINDOW // 2
_CONNECTION_UPDATE: Final = CONNECTION_WINDOW // 2
# Streams that we have reset lately: what the peer sent before it knew is ignored.
_MAX_RESETS: Final = 1_024
_NO_HEAD: Final = RequestHead("", "", {}, None, IDENTITY, 0)
# What an open call keeps in memory beside its headers and messages.
_CALL_BYTES: Final = 1_024


class Calls:
    """What is open, by stream id. `spend` counts control frames and faults; `emptied` runs after the last
    call of a connection that accepts no new ones."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        client_streams: frozenset[str],
        config: GrpcServerConfig,
        budget: ByteBudget,
        *,
        spend: Callable[[int, str], None],
        emptied: Callable[[], None],
    ) -> None:
        self._handlers = handlers
        self._client_streams = client_streams
        self._config = config
        self._budget = budget
        self._spend = spend
        self._emptied = emptied
        self._now_s = asyncio.get_running_loop().time
        self._open: dict[int, Stream] = {}
        self._resets: dict[int, None] = {}
        self._received_bytes = 0  # since the last WINDOW_UPDATE of the connection
        self._writer: ResponseWriter
        self._next_deadline_s = math.inf  # or earlier: the call may have ended
        self.last_id = 0
        self.is_draining = False
        """New calls are refused."""

    def attach(self, writer: ResponseWriter) -> None:
        """Respond by this writer."""
        self._writer = writer

    def __len__(self) -> int:
        return len(self._open)

    def streams(self) -> list[Stream]:
        """The open ones."""
        return list(self._open.values())

    def get(self, stream_id: int) -> Stream | None:
        """The open one with this id."""
        return self._open.get(stream_id)

    # -- headers -----------------------------------------------------------------------------

    def headers(self, flags: int, stream_id: int, fields: list[Field], now: float) -> None:
        """A decoded header block: a new call, or the end of one."""
        if stream_id <= self.last_id or not stream_id & 1:
            self._trailers(flags, stream_id)
            return
        self.last_id = stream_id
        if self.is_draining or len(self._open) >= self._config.max_concurrent_calls:
            self._spend(1, "refused calls")
            self._reset_id(stream_id, ErrorCode.REFUSED_STREAM)
            return
        is_complete = bool(flags & frames.END_STREAM)
        problem: CallError | None = None
        try:
            head = read_request_head(fields, self._config.max_header_list_bytes)
        except MalformedRequestError as error:
            _log.debug("resetting stream %d of %s: %s", stream_id, self._writer.peer, error)
            self._spend(1, "malformed requests")
            self._reset_id(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        except HttpStatusError as error:
            self._writer.refuse_http(stream_id, error.status, str(error))
            if not is_complete:
                self._reset_id(stream_id, ErrorCode.NO_ERROR)
            return
        except CallError as error:
            head, problem = _NO_HEAD, error
        self._begin(stream_id, head, problem, is_complete=is_complete, now=now)

    def _begin(
        self, stream_id: int, head: RequestHead, problem: CallError | None, *, is_complete: bool, now: float
    ) -> None:
        handler = self._handlers.get(head.path)
        if handler is None:
            problem = problem or CallError(
                GrpcCode.UNIMPLEMENTED, f"{head.path[:256]} is not a method of this server"
            )
            handler = _no_handler
        stream = Stream(
            stream_id,
            head,
            handler,
            self._writer,
            is_client_stream=head.path in self._client_streams,
            now=now,
        )
        self._open[stream_id] = stream
        stream.head_bytes = stream.held_bytes = _CALL_BYTES + head.size_bytes
        self._budget.used += stream.held_bytes
        if self._budget.used > self._budget.limit:
            problem = problem or self._over_budget()
        if stream.deadline_s is not None and stream.deadline_s < self._next_deadline_s:
            self._next_deadline_s = stream.deadline_s
        if problem is not None:
            stream.is_half_closed = is_complete
            self._fail(stream, problem)
            return
        if stream.is_client_stream:
            self._call_back(stream, handler, stream)
            if not stream.is_over:
                # Some clients wait for the headers of the response before they send anything.
                self._writer.open(stream)
        if is_complete:
            self._half_closed(stream)

    def _trailers(self, flags: int, stream_id: int) -> None:
        """Further headers of a stream: gRPC has none from clients, HTTP/2 allows them at its end."""
        stream = self._open.get(stream_id)
        if stream is None and stream_id & 1 and stream_id not in self._resets:
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"HEADERS of stream {stream_id}, which is closed")
        if stream is None or stream.is_half_closed:
            self._on_closed(stream_id, "HEADERS")
        elif not flags & frames.END_STREAM:
            self.reset(stream, ErrorCode.PROTOCOL_ERROR)
        else:
            self._half_closed(stream)

    # -- data --------------------------------------------------------------------------------

    def data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """A DATA frame."""
        size = len(payload)
        self._received_bytes += size
        if self._received_bytes >= _CONNECTION_UPDATE:
            self._writer.write(frames.encode_window_update(0, self._received_bytes))
            self._received_bytes = 0
        if flags & frames.PADDED:
            payload = frames.without_padding(payload)
        stream = self._open.get(stream_id)
        if stream is None or stream.is_half_closed:
            self._on_closed(stream_id, "DATA")
            return
        if (
            flags & frames.END_STREAM
            and stream.reader is None
            and not stream.is_client_stream
            and len(payload) >= PREFIX_BYTES
            and not payload[0]
            and int.from_bytes(payload[1:PREFIX_BYTES]) == len(payload) - PREFIX_BYTES
            and size + self._budget.used <= self._budget.limit
            and size <= self._config.max_message_bytes
        ):
            # The usual case: the message of a unary call, whole.
            stream.is_half_closed = True
            stream.request = payload[PREFIX_BYTES:]
            stream.held_bytes += size
            self._budget.used += size
            self._call_back(stream, stream.handler, stream)
            return
        self._data_in_pieces(stream, payload, size, is_last=bool(flags & frames.END_STREAM))

    def _data_in_pieces(self, stream: Stream, payload: bytes, size: int, *, is_last: bool) -> None:
        stream.received_bytes += size
        stream.progressed_at = self._now_s()
        if not payload and not is_last:
            self._spend(1, "empty DATA frames")
        if stream.reader is None:
            stream.reader = MessageReader(self._config.max_message_bytes, stream.encoding)
        stream.is_half_closed = is_last
        try:
            messages = stream.reader.feed(payload)
            self._hold(stream, messages)
            for message in messages:
                self._deliver(stream, message)
                if stream.is_over:
                    return
        except CallError as error:
            self._fail(stream, error)
            return
        if is_last:
            self._half_closed(stream)
        elif stream.received_bytes >= _STREAM_UPDATE:
            self._writer.write(frames.encode_window_update(stream.id, stream.received_bytes))
            stream.received_bytes = 0

    def _hold(self, stream: Stream, messages: list[bytes]) -> None:
        """Count what a call keeps in memory: its headers, the start of a message, and the request of a unary
        call."""
        assert stream.reader is not None
        held = stream.head_bytes + stream.reader.pending_bytes
        if not stream.is_client_stream:
            held += len(stream.request) + sum(map(len, messages))
        budget = self._budget
        budget.used += held - stream.held_bytes
        stream.held_bytes = held
        if budget.used > budget.limit:
            raise self._over_budget()

    def _over_budget(self) -> CallError:
        return CallError(
            GrpcCode.RESOURCE_EXHAUSTED,
            f"the requests of all connections exceed {self._budget.limit} bytes; try again later",
        )

    def _deliver(self, stream: Stream, message: bytes) -> None:
        if stream.is_client_stream:
            if stream.on_message is not None:
                self._call_back(stream, stream.on_message, message)
        elif stream.has_request:
            raise CallError(GrpcCode.INTERNAL, "a unary call has one request message, this one has more")
        else:
            stream.request, stream.has_request = message, True

    def _half_closed(self, stream: Stream) -> None:
        """The peer has sent everything of the call."""
        stream.is_half_closed = True
        if stream.is_over:  # its response waits for windows
            return
        if stream.reader is not None and stream.reader.pending_bytes:
            self._fail(stream, CallError(GrpcCode.INTERNAL, "the request ends inside a message"))
        elif stream.is_client_stream:
            if stream.on_half_close is not None:
                self._call_back(stream, stream.on_half_close)
        elif not stream.has_request:
            self._fail(stream, CallError(GrpcCode.INTERNAL, "the call has no request message"))
        else:
            self._call_back(stream, stream.handler, stream)

    # -- ends --------------------------------------------------------------------------------

    def check_not_idle(self, stream_id: int, what: str) -> None:
        """A frame of a stream that was never opened raises Http2Error."""
        if not stream_id or stream_id > self.last_id or not stream_id & 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"{what} of stream {stream_id}, which is not open")

    def reset_by_peer(self, stream_id: int) -> None:
        """The client has cancelled a call."""
        self.check_not_idle(stream_id, "RST_STREAM")
        stream = self._open.pop(stream_id, None)
        if stream is not None:
            self._end(stream)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset a stream for a fault of the peer."""
        self._spend(1, "faults")
        self.cancel(stream, code)

    def cancel(self, stream: Stream, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Reset a stream."""
        if self._open.pop(stream.id, None) is not None:
            self._reset_id(stream.id, code)
            self._end(stream)

    def sent(self, stream: Stream) -> None:
        """The response of a call is complete."""
        if self._open.pop(stream.id, None) is None:
            return
        if not stream.is_half_closed:
            # The rest of the request is of no use.
            self._reset_id(stream.id, ErrorCode.NO_ERROR)
        self._release(stream)
        if self.is_draining and not self._open:
            self._emptied()

    def fail_all(self, text: str, *, only_client_streams: bool) -> None:
        """End open calls with UNAVAILABLE."""
        for stream in self.streams():
            if stream.is_client_stream or not only_client_streams:
                stream.end_with(GrpcCode.UNAVAILABLE, text)

    def end_late(self, now: float) -> None:
        """End the calls whose deadline has passed."""
        if now < self._next_deadline_s:
            return
        self._next_deadline_s = math.inf
        for stream in self.streams():
            if stream.deadline_s is None or stream.is_over:
                continue
            if stream.deadline_s <= now:
                stream.end_with(GrpcCode.DEADLINE_EXCEEDED, "the deadline of the call has passed")
            else:
                self._next_deadline_s = min(self._next_deadline_s, stream.deadline_s)

    def incomplete(self, before: float) -> list[Stream]:
        """Calls whose request should be complete, and nothing of which has come since then."""
        return [
            stream
            for stream in self._open.values()
            if not stream.is_half_closed and not stream.is_client_stream and stream.progressed_at < before
        ]

    def drop_all(self) -> None:
        """The connection is gone."""
        streams, self._open = self._open, {}
        for stream in streams.values():
            self._end(stream)

    def _end(self, stream: Stream) -> None:
        self._release(stream)
        stream.end_early()
        if self.is_draining and not self._open:
            self._emptied()

    def _release(self, stream: Stream) -> None:
        self._budget.used -= stream.held_bytes
        stream.held_bytes = 0
        if stream.queue:
            self._writer.forget(stream)
            stream.report_unsent()

    def _reset_id(self, stream_id: int, code: ErrorCode) -> None:
        self._writer.write(frames.encode_reset(stream_id, code))
        self._resets[stream_id] = None
        if len(self._resets) > _MAX_RESETS:
            del self._resets[next(iter(self._resets))]

    def _on_closed(self, stream_id: int, what: str) -> None:
        """A frame of a stream on which the peer has sent, or we have refused, everything."""
        self.check_not_idle(stream_id, what)
        if stream_id in self._resets:
            return
        self._spend(1, f"{what} frames of closed streams")
        stream = self._open.pop(stream_id, None)
        self._reset_id(stream_id, ErrorCode.STREAM_CLOSED)
        if stream is not None:
            self._end(stream)

    def _fail(self, stream: Stream, error: CallError) -> None:
        """End a call for a fault of its request."""
        fields = [literal(*ACCEPTED_ENCODINGS)] if error.code is GrpcCode.UNIMPLEMENTED else []
        stream.end_with(error.code, str(error), *fields)

    def _call_back(self, stream: Stream, function: Callable[..., None], *arguments: object) -> None:
        try:
            function(*arguments)
        except Exception:
            # A bug. It must cost this call only.
            _log.exception("%s of %s failed", stream.path, stream.peer)
            stream.end_with(GrpcCode.INTERNAL, "internal error; the server's log has the reason")


def _no_handler(call: object) -> None:
    raise AssertionError("a call without a handler has ended before")
