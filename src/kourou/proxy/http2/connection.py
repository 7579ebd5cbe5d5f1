"""Http2Connection: one client's connection: its frames, its calls, and their ends.

Faults of the peer have one of three outcomes: a call ends with a status, a stream is reset, or the
connection ends with GOAWAY, whose text and code say why. Not here: sending (response_writer.py), the port
(server.py), what has to happen after a time (`sweep` is called by the server).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, cast

from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import GrpcCode, Handler
from kourou.proxy.http2.control_allowance import ControlAllowance
from kourou.proxy.http2.frames import ErrorCode, FrameType, Http2Error, Setting
from kourou.proxy.http2.hpack import Field, HeaderDecoder
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
from kourou.transport.addresses import format_address
from kourou.transport.cycles import Cycles
from kourou.transport.tls import describe_failure

_log = logging.getLogger(__name__)

# Room for a body of the usual limit, 4 MiB, without a round trip.
_STREAM_WINDOW: Final = 4 * 1024 * 1024 + 256 * 1024
_CONNECTION_WINDOW: Final = 32 * 1024 * 1024
# A window is given back when half of it is used.
_STREAM_UPDATE: Final = _STREAM_WINDOW // 2
_CONNECTION_UPDATE: Final = _CONNECTION_WINDOW // 2
_MAX_BLOCK_BYTES: Final = 64 * 1024
_PRIORITY_BYTES: Final = 5
_PING_BYTES: Final = 8
_GOAWAY_BYTES: Final = 8
_SETTINGS_COST: Final = 5
# Streams that we have reset lately: what the peer sent before it knew is ignored.
_MAX_RESETS: Final = 1_024
# A closing connection whose peer does not read the last frames is aborted after this time.
_CLOSE_GRACE_S: Final = 3.0
# A read of this size means that more is waiting; other connections get their turn first.
_TURN_BYTES: Final = 128 * 1024
_HTTP_1: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"TRAC")
_NOT_HTTP_2: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"this port speaks gRPC (HTTP/2)\n"
)

_FrameHandler = Callable[[int, int, bytes], None]


class Http2Connection(asyncio.Protocol):
    """One socket. `handlers` by path; `streams` are the paths with a client stream."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        streams: frozenset[str],
        config: GrpcServerConfig,
        budget: ByteBudget,
        cycles: Cycles,
        *,
        on_open: Callable[[Http2Connection], None],
        on_close: Callable[[Http2Connection], None],
    ) -> None:
        self._handlers = handlers
        self._client_streams = streams
        self._config = config
        self._budget = budget
        self._cycles = cycles
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writer = ResponseWriter(cycles, config, done=self._response_sent, abort=self.abort)
        self._decoder = frames.FrameDecoder()
        self._headers = HeaderDecoder()
        self._preface: bytes | None = b""  # None: it is complete
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._refused_after = frames.MAX_WINDOW  # streams after this id are refused: GOAWAY is sent
        self._resets: dict[int, None] = {}
        self._received_bytes = 0  # since the last WINDOW_UPDATE of the connection
        self._block = bytearray()  # a header block until its last CONTINUATION
        self._block_stream = self._block_flags = 0
        self._allowance = ControlAllowance(config.control_burst, config.control_per_s)
        self._close_reason = ""
        self._is_draining = False
        now = self._loop.time()
        self._opened_at = self._last_heard = self._last_call = now
        self._paused_at = now
        self._pinged_at: float | None = None
        self._frame_handlers: dict[int, _FrameHandler] = {
            FrameType.DATA: self._data,
            FrameType.HEADERS: self._headers_frame,
            FrameType.PRIORITY: self._priority,
            FrameType.RST_STREAM: self._reset_by_peer,
            FrameType.SETTINGS: self._settings,
            FrameType.PUSH_PROMISE: self._push_promise,
            FrameType.PING: self._ping,
            FrameType.GOAWAY: self._goaway,
            FrameType.WINDOW_UPDATE: self._window_update,
            FrameType.CONTINUATION: self._stray_continuation,
        }
        # The only type of frame that may come next, if there is one.
        self._expected: int | None = FrameType.SETTINGS

    # -- life --------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """`host:port` of the client."""
        return self._writer.peer

    @property
    def calls(self) -> int:
        """Open calls."""
        return len(self._streams)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer.attach(
            self._transport,
            format_address(transport.get_extra_info("peername")),
            is_tls=transport.get_extra_info("ssl_object") is not None,
        )
        self._on_open(self)
        self._writer.write(
            frames.encode_settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: self._config.max_concurrent_calls,
                    Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                    Setting.MAX_HEADER_LIST_SIZE: self._config.max_header_list_bytes,
                }
            )
        )
        self._writer.write(frames.encode_window_update(0, _CONNECTION_WINDOW - frames.DEFAULT_WINDOW))

    def connection_lost(self, exc: Exception | None) -> None:
        self._writer.close()
        reason = self._close_reason or (describe_failure(exc) if exc is not None else "closed by the peer")
        self._drop_streams()
        self._on_close(self)
        _log.debug("connection with %s ended: %s", self.peer, reason)

    def eof_received(self) -> bool:
        return False

    def shut_down(self, text: str) -> None:
        """Accept no new calls; close once the open ones have ended."""
        if self._is_draining or self._writer.is_closed:
            return
        self._is_draining = True
        self._refused_after = self._last_id
        self._writer.write(frames.encode_goaway(self._last_id, ErrorCode.NO_ERROR, text))
        self._close_when_drained()

    def fail_calls(self, text: str, *, only_streams: bool = False) -> None:
        """End open calls with UNAVAILABLE; their handlers are told."""
        for stream in list(self._streams.values()):
            if stream.is_over or (only_streams and not stream.is_client_stream):
                continue
            on_end = stream.on_end
            stream.fail(GrpcCode.UNAVAILABLE, text)
            if on_end is not None:
                on_end()

    def close(self, reason: str) -> None:
        """Write what is collected, then close; a peer that does not read is disconnected."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._close_reason = self._close_reason or reason
        self._writer.flush()
        self._writer.close()
        transport.close()
        self._loop.call_later(_CLOSE_GRACE_S, transport.abort)
        self._drop_streams()

    def abort(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        if self._writer.is_closed or self._transport is None:
            return
        _log.warning("closing %s: %s", self.peer, reason)
        self._close_reason = reason
        self._writer.close()
        self._transport.abort()
        self._drop_streams()

    def _drop_streams(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._release(stream)
            stream.end_early()

    def _close_when_drained(self) -> None:
        if self._is_draining and not self._streams:
            # After the responses of this cycle.
            self._loop.call_soon(self.close, "no calls are open any more")

    def _fail(self, error: Http2Error) -> None:
        """End the connection for a fault of the peer."""
        if self._writer.is_closed:
            return
        _log.warning("closing %s: %s (%s)", self.peer, error, error.error_code.name)
        self._writer.write(frames.encode_goaway(self._last_id, error.error_code, str(error)))
        self.close(str(error))

    # -- frames ------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether nothing is sent any more."""
        return self._writer.is_closed

    def data_received(self, data: bytes) -> None:
        if self.is_closed:
            return
        self._last_heard = self._loop.time()
        self._pinged_at = None
        if self._preface is not None:
            rest = self._read_preface(data)
            if rest is None:
                return
            data = rest
        self._cycles.open()
        handlers, decoder = self._frame_handlers, self._decoder
        try:
            for frame_type, flags, stream_id, payload in decoder.feed(data):
                if self._expected is not None and frame_type != self._expected:
                    raise Http2Error(
                        ErrorCode.PROTOCOL_ERROR,
                        f"a frame of type {frame_type} where {FrameType(self._expected).name} must come",
                    )
                handler = handlers.get(frame_type)
                if handler is None:
                    self._spend(1, "frames of unknown types")
                else:
                    handler(flags, stream_id, payload)
                if self._writer.is_closed:
                    return
            if decoder.failure is not None:
                raise decoder.failure
        except Http2Error as error:
            self._fail(error)
            return
        if len(data) >= _TURN_BYTES and not self._writer.is_paused:
            self._pause_reading()
            self._loop.call_soon(self._resume_reading)

    def _read_preface(self, data: bytes) -> bytes | None:
        """What follows the preface, or None as long as it is not complete."""
        received = (self._preface or b"") + data
        if not frames.PREFACE.startswith(received[: len(frames.PREFACE)]):
            if received.startswith(_HTTP_1):
                _log.warning("closing %s: it speaks HTTP/1; this port speaks gRPC", self.peer)
                self._writer.flush()
                if self._transport is not None:
                    self._transport.write(_NOT_HTTP_2)
                self.close("not HTTP/2")
            else:
                self._fail(Http2Error(ErrorCode.PROTOCOL_ERROR, "this is not the preface of HTTP/2"))
            return None
        if len(received) < len(frames.PREFACE):
            self._preface = received
            return None
        self._preface = None
        return received[len(frames.PREFACE) :]

    def _spend(self, cost: int, what: str) -> None:
        if not self._allowance.spend(cost, self._loop.time(), self._writer.data_frames):
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"too many {what}")

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & frames.ACK:
            if payload:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with content")
            if self._expected is not None:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "an acknowledgement where SETTINGS must come")
            return
        self._spend(_SETTINGS_COST, "SETTINGS")
        self._expected = None
        for name, value in frames.decode_settings(payload):
            self._apply_setting(name, value)
        self._writer.write(frames.encode_frame(FrameType.SETTINGS, frames.ACK, 0))

    def _apply_setting(self, name: int, value: int) -> None:
        writer = self._writer
        if name == Setting.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value} bytes")
            grown, writer.initial_window = value - writer.initial_window, value
            for stream in list(self._streams.values()):
                stream.send_window += grown
                if stream.send_window > frames.MAX_WINDOW:
                    raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream overflows")
                if grown > 0:
                    writer.pump_stream(stream)
        elif name == Setting.MAX_FRAME_SIZE:
            if not frames.MAX_FRAME_BYTES <= value < 2**24:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a largest frame of {value} bytes")
            writer.max_frame = value
        elif name == Setting.HEADER_TABLE_SIZE:
            if value < frames.DEFAULT_TABLE_BYTES:
                writer.use_no_table()
        elif name == Setting.ENABLE_PUSH and value > 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}; it is 0 or 1")

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != _PING_BYTES:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a PING of {len(payload)} bytes; it has 8")
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        if not flags & frames.ACK:
            self._spend(1, "PINGs")
            self._writer.write(frames.encode_frame(FrameType.PING, frames.ACK, 0, payload))

    def _goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < _GOAWAY_BYTES:
            raise Http2Error(
                ErrorCode.FRAME_SIZE_ERROR, f"a GOAWAY of {len(payload)} bytes; it has 8 or more"
            )
        # The peer opens no more calls; it closes the connection after its last one.
        self._spend(1, "GOAWAYs")

    def _priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != _PRIORITY_BYTES:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a PRIORITY of {len(payload)} bytes; it has 5")
        self._spend(1, "PRIORITY frames")

    def _push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        increment = frames.decode_u32(payload, "WINDOW_UPDATE") & frames.MAX_WINDOW
        self._spend(1, "WINDOW_UPDATEs")
        writer = self._writer
        if not stream_id:
            if not increment:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0 bytes")
            writer.window += increment
            if writer.window > frames.MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the window of the connection overflows")
            writer.pump_all()
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_not_idle(stream_id, "WINDOW_UPDATE")
        elif not increment:
            self._reset(stream, ErrorCode.PROTOCOL_ERROR)
        elif stream.send_window + increment > frames.MAX_WINDOW:
            self._reset(stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            stream.send_window += increment
            writer.pump_stream(stream)

    def _reset_by_peer(self, flags: int, stream_id: int, payload: bytes) -> None:
        frames.decode_u32(payload, "RST_STREAM")
        self._check_not_idle(stream_id, "RST_STREAM")
        self._spend(1, "RST_STREAMs")
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._release(stream)
            stream.end_early()
            self._close_when_drained()

    def _check_not_idle(self, stream_id: int, what: str) -> None:
        if not stream_id or stream_id > self._last_id or not stream_id & 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"{what} of stream {stream_id}, which is not open")

    # -- headers -----------------------------------------------------------------------------

    def _headers_frame(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.PRIORITY_FLAG):
            if flags & frames.PADDED:
                payload = frames.without_padding(payload)
            if flags & frames.PRIORITY_FLAG:
                if len(payload) < _PRIORITY_BYTES:
                    raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "HEADERS end inside their priority")
                payload = payload[_PRIORITY_BYTES:]
        if flags & frames.END_HEADERS:
            self._header_block(flags, stream_id, payload)
            return
        self._block += payload
        self._block_stream, self._block_flags = stream_id, flags
        self._begin_continuation()

    def _begin_continuation(self) -> None:
        self._expected = FrameType.CONTINUATION
        self._frame_handlers[FrameType.CONTINUATION] = self._continuation

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != self._block_stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of another stream")
        if not payload and not flags & frames.END_HEADERS:
            self._spend(1, "empty CONTINUATIONs")
        self._block += payload
        if len(self._block) > _MAX_BLOCK_BYTES:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of more than {_MAX_BLOCK_BYTES} bytes"
            )
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), bytearray()
            self._expected = None
            self._frame_handlers[FrameType.CONTINUATION] = self._stray_continuation
            self._header_block(self._block_flags, stream_id, block)

    def _stray_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")

    def _header_block(self, flags: int, stream_id: int, block: bytes) -> None:
        fields = self._headers.decode(block)
        if stream_id <= self._last_id or not stream_id & 1:
            self._trailers(flags, stream_id)
            return
        self._last_id = stream_id
        if stream_id > self._refused_after or len(self._streams) >= self._config.max_concurrent_calls:
            self._spend(1, "refused calls")
            self._writer.reset(stream_id, ErrorCode.REFUSED_STREAM)
            self._remember_reset(stream_id)
            return
        self._open(flags, stream_id, fields)

    def _trailers(self, flags: int, stream_id: int) -> None:
        """Further headers of a stream: gRPC has none from clients, HTTP/2 allows them at its end."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.is_half_closed:
            self._on_closed_stream(stream_id, "HEADERS")
        elif not flags & frames.END_STREAM:
            self._reset(stream, ErrorCode.PROTOCOL_ERROR)
        else:
            self._half_closed(stream)

    def _open(self, flags: int, stream_id: int, fields: list[Field]) -> None:
        is_complete = bool(flags & frames.END_STREAM)
        problem: CallError | None = None
        try:
            head = read_request_head(fields, self._config.max_header_list_bytes)
        except MalformedRequestError as error:
            _log.debug("resetting stream %d of %s: %s", stream_id, self.peer, error)
            self._spend(1, "malformed requests")
            self._writer.reset(stream_id, ErrorCode.PROTOCOL_ERROR)
            self._remember_reset(stream_id)
            return
        except HttpStatusError as error:
            self._writer.refuse_http(stream_id, error.status, str(error))
            if not is_complete:
                self._writer.reset(stream_id, ErrorCode.NO_ERROR)
                self._remember_reset(stream_id)
            return
        except CallError as error:
            head, problem = RequestHead("", "", {}, None, IDENTITY), error
        handler = self._handlers.get(head.path)
        if problem is None and handler is None:
            problem = CallError(GrpcCode.UNIMPLEMENTED, f"{head.path[:256]} is not a method of this server")
        stream = Stream(
            stream_id,
            head,
            handler or _no_handler,
            self._writer,
            is_client_stream=head.path in self._client_streams,
            now=self._last_heard,
        )
        self._streams[stream_id] = stream
        if problem is not None:
            stream.is_half_closed = is_complete
            self._fail_call(stream, problem)
            return
        if stream.is_client_stream:
            self._run(stream)
            if not stream.is_over:
                # Some clients wait for the headers of the response before they send anything.
                self._writer.open(stream)
        if is_complete:
            self._half_closed(stream)

    # -- data --------------------------------------------------------------------------------

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._received_bytes += size
        if self._received_bytes >= _CONNECTION_UPDATE:
            if self._received_bytes > _CONNECTION_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
            self._writer.write(frames.encode_window_update(0, self._received_bytes))
            self._received_bytes = 0
        if flags & frames.PADDED:
            payload = frames.without_padding(payload)
        stream = self._streams.get(stream_id)
        if stream is None or stream.is_half_closed:
            self._on_closed_stream(stream_id, "DATA")
            return
        if (
            flags & frames.END_STREAM
            and stream.reader is None
            and not stream.is_client_stream
            and len(payload) >= PREFIX_BYTES
            and not payload[0]
            and int.from_bytes(payload[1:PREFIX_BYTES]) == len(payload) - PREFIX_BYTES
            and size + self._budget.used <= self._budget.limit
        ):
            # The usual case: the message of a unary call, whole.
            stream.is_half_closed = True
            stream.request = payload[PREFIX_BYTES:]
            stream.held_bytes = size
            self._budget.used += size
            self._run(stream)
            return
        self._data_in_pieces(stream, payload, size, is_last=bool(flags & frames.END_STREAM))

    def _data_in_pieces(self, stream: Stream, payload: bytes, size: int, *, is_last: bool) -> None:
        stream.received_bytes += size
        if stream.received_bytes > _STREAM_WINDOW:
            self._reset(stream, ErrorCode.FLOW_CONTROL_ERROR)
            return
        if not payload and not is_last:
            self._spend(1, "empty DATA frames")
        if stream.reader is None:
            stream.reader = MessageReader(self._config.max_message_bytes, stream.encoding)
        try:
            messages = stream.reader.feed(payload)
            self._hold(stream, messages)
            for message in messages:
                self._deliver(stream, message)
                if stream.is_over:
                    return
        except CallError as error:
            stream.is_half_closed = is_last
            self._fail_call(stream, error)
            return
        if is_last:
            self._half_closed(stream)
        elif stream.received_bytes >= _STREAM_UPDATE:
            self._writer.write(frames.encode_window_update(stream.id, stream.received_bytes))
            stream.received_bytes = 0

    def _hold(self, stream: Stream, messages: list[bytes]) -> None:
        """Count what a call keeps in memory: the start of a message, and the request of a unary call."""
        assert stream.reader is not None
        held = stream.reader.pending_bytes
        if not stream.is_client_stream:
            held += len(stream.request) + sum(map(len, messages))
        self._budget.used += held - stream.held_bytes
        stream.held_bytes = held
        if self._budget.used > self._budget.limit:
            raise CallError(
                GrpcCode.RESOURCE_EXHAUSTED,
                f"the requests of all connections exceed {self._budget.limit} bytes; try again later",
            )

    def _deliver(self, stream: Stream, message: bytes) -> None:
        if stream.is_client_stream:
            if stream.on_message is not None:
                self._call_back(stream, stream.on_message, message)
        elif stream.request_is_there:
            raise CallError(GrpcCode.INTERNAL, "a unary call has one request message, this one has more")
        else:
            stream.request = message
            stream.request_is_there = True

    def _half_closed(self, stream: Stream) -> None:
        """The peer has sent everything of the call."""
        stream.is_half_closed = True
        if stream.reader is not None and stream.reader.pending_bytes:
            self._fail_call(stream, CallError(GrpcCode.INTERNAL, "the request ends inside a message"))
        elif stream.is_client_stream:
            if stream.on_half_close is not None:
                self._call_back(stream, stream.on_half_close)
        elif not stream.request_is_there:
            self._fail_call(stream, CallError(GrpcCode.INTERNAL, "the call has no request message"))
        else:
            self._run(stream)

    def _on_closed_stream(self, stream_id: int, what: str) -> None:
        self._check_not_idle(stream_id, what)
        if stream_id in self._resets:
            return
        stream = self._streams.get(stream_id)
        self._spend(1, f"{what} frames of closed streams")
        if stream is not None:
            self._reset(stream, ErrorCode.STREAM_CLOSED)
        else:
            self._writer.reset(stream_id, ErrorCode.STREAM_CLOSED)
            self._remember_reset(stream_id)

    # -- calls -------------------------------------------------------------------------------

    def _run(self, stream: Stream) -> None:
        self._call_back(stream, stream.handler, stream)

    def _call_back(self, stream: Stream, function: Callable[..., None], *arguments: object) -> None:
        try:
            function(*arguments)
        except Exception:
            # A bug. It must cost this call only.
            _log.exception("%s of %s failed", stream.path, self.peer)
            on_end = stream.on_end
            stream.fail(GrpcCode.INTERNAL, "internal error; the server's log has the reason")
            if on_end is not None:
                on_end()

    def _fail_call(self, stream: Stream, error: CallError) -> None:
        """End a call for a fault of its request."""
        on_end = stream.on_end
        if not stream.is_over:
            fields = [literal(*ACCEPTED_ENCODINGS)] if error.code is GrpcCode.UNIMPLEMENTED else []
            self._writer.fail(stream, error.code, str(error), *fields)
            if on_end is not None:
                on_end()

    def _reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset a stream for a fault of the peer."""
        self._spend(1, "faults")
        self._writer.reset(stream.id, code)
        self._remember_reset(stream.id)
        self._streams.pop(stream.id, None)
        self._release(stream)
        stream.end_early()
        self._close_when_drained()

    def _remember_reset(self, stream_id: int) -> None:
        self._resets[stream_id] = None
        if len(self._resets) > _MAX_RESETS:
            del self._resets[next(iter(self._resets))]

    def _response_sent(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is None:
            return
        self._release(stream)
        self._last_call = self._last_heard
        if not stream.is_half_closed:
            # The rest of the request is of no use.
            self._writer.reset(stream.id, ErrorCode.NO_ERROR)
            self._remember_reset(stream.id)
        if self._is_draining:
            self._close_when_drained()

    def _release(self, stream: Stream) -> None:
        self._budget.used -= stream.held_bytes
        stream.held_bytes = 0
        if stream.queue:
            self._writer.forget(stream)

    # -- time --------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """End what has waited too long; `now` is on the loop's clock."""
        config = self._config
        if self._preface is not None or self._expected == FrameType.SETTINGS:
            if now - self._opened_at > config.preface_timeout_ms / 1000:
                self.abort("it has not sent the preface and SETTINGS of HTTP/2 in time")
            return
        stalled_before = now - config.stall_timeout_ms / 1000
        if self._writer.is_paused and self._paused_at < stalled_before:
            self.abort("it does not read its responses")
            return
        for stream in list(self._streams.values()):
            if stream.deadline_s is not None and stream.deadline_s <= now and not stream.is_over:
                on_end = stream.on_end
                stream.fail(GrpcCode.DEADLINE_EXCEEDED, "the deadline of the call has passed")
                if on_end is not None:
                    on_end()
        for stream in self._writer.stalled(stalled_before):
            _log.warning("ending %s of %s: it does not read the response", stream.path, self.peer)
            self._reset(stream, ErrorCode.CANCEL)
        if not self._streams and now - self._last_call > config.idle_timeout_ms / 1000:
            self.shut_down("idle")
        elif self._streams:
            self._watch_peer(now)

    def _watch_peer(self, now: float) -> None:
        """Disconnect a peer with open calls that is gone without a word."""
        config = self._config
        if self._pinged_at is not None:
            if now - self._pinged_at > config.ping_timeout_ms / 1000:
                self.abort("it does not answer a PING")
        elif now - self._last_heard > config.ping_after_ms / 1000:
            self._pinged_at = now
            self._writer.write(frames.encode_frame(FrameType.PING, 0, 0, bytes(_PING_BYTES)))

    # -- back-pressure -----------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._writer.is_paused = True
        self._paused_at = self._loop.time()
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writer.is_paused = False
        self._writer.pump_all()
        self._resume_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._writer.is_paused and not self._transport.is_closing():
            self._transport.resume_reading()


def _no_handler(call: object) -> None:
    raise AssertionError("a call without a handler has ended before")
