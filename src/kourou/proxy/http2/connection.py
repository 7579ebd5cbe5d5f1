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
from kourou.proxy.http2.call import Handler
from kourou.proxy.http2.calls import CONNECTION_WINDOW, STREAM_WINDOW, Calls
from kourou.proxy.http2.control_allowance import ControlAllowance
from kourou.proxy.http2.frames import ErrorCode, FrameType, Http2Error, Setting
from kourou.proxy.http2.hpack import HeaderDecoder
from kourou.proxy.http2.response_writer import ResponseWriter
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from kourou.transport.addresses import format_address
from kourou.transport.cycles import Cycles
from kourou.transport.tls import describe_failure

_log = logging.getLogger(__name__)

_MAX_BLOCK_BYTES: Final = 64 * 1024
_PRIORITY_BYTES: Final = 5
_PING_BYTES: Final = 8
_GOAWAY_BYTES: Final = 8
_SETTINGS_COST: Final = 5
# A closing connection whose peer does not read the last frames is aborted after this time.
_CLOSE_GRACE_S: Final = 3.0
# A read of this size means that more is waiting; other connections get their turn first.
_TURN_BYTES: Final = 128 * 1024
_HTTP_1: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"TRAC")
_TLS: Final = b"\x16\x03"
_TLS_HINT: Final = (
    "; it looks like TLS, and this port serves plaintext only: set tlsCertPath and tlsKeyPath, or "
    "tlsTestModeEnable=true, or switch TLS off in the client"
)
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
        unsent: ByteBudget,
        cycles: Cycles,
        *,
        on_open: Callable[[Http2Connection], None],
        on_close: Callable[[Http2Connection], None],
    ) -> None:
        self._config = config
        self._cycles = cycles
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._calls = Calls(handlers, streams, config, budget, spend=self._spend, emptied=self._close_soon)
        self._writer = ResponseWriter(cycles, config, unsent, done=self._calls.sent, abort=self.abort)
        self._calls.attach(self._writer)
        self._decoder = frames.FrameDecoder()
        self._headers = HeaderDecoder()
        self._preface: bytes | None = b""  # None: it is complete
        self._block = bytearray()  # a header block until its last CONTINUATION
        self._block_stream = self._block_flags = 0
        self._allowance = ControlAllowance(config.control_burst, config.control_per_s)
        self._close_reason = ""
        now = self._loop.time()
        self._opened_at = self._last_heard = self._last_call = now
        self._paused_at = now
        self._pinged_at: float | None = None
        self._frame_handlers: dict[int, _FrameHandler] = {
            FrameType.DATA: self._calls.data,
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
        return len(self._calls)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer.attach(
            self._transport,
            format_address(transport.get_extra_info("peername")),
            is_tls=transport.get_extra_info("ssl_object") is not None,
        )
        self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._writer.close()
        reason = self._close_reason or (describe_failure(exc) if exc is not None else "closed by the peer")
        self._calls.drop_all()
        self._on_close(self)
        _log.debug("connection with %s ended: %s", self.peer, reason)

    def eof_received(self) -> bool:
        return False

    def shut_down(self, text: str) -> None:
        """Accept no new calls; close once the open ones have ended."""
        if self._calls.is_draining or self._writer.is_closed:
            return
        self._calls.is_draining = True
        self._writer.write(frames.encode_goaway(self._calls.last_id, ErrorCode.NO_ERROR, text))
        if not self._calls:
            self._close_soon()

    def _close_soon(self) -> None:
        # After the responses of this cycle.
        self._loop.call_soon(self.close, "no calls are open any more")

    def fail_calls(self, text: str, *, only_client_streams: bool = False) -> None:
        """End open calls with UNAVAILABLE, or those with a client stream."""
        self._calls.fail_all(text, only_client_streams=only_client_streams)

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
        self._calls.drop_all()

    def abort(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        if self._writer.is_closed or self._transport is None:
            return
        _log.warning("closing %s: %s", self.peer, reason)
        self._close_reason = reason
        self._writer.close()
        self._transport.abort()
        self._calls.drop_all()

    def _fail(self, error: Http2Error) -> None:
        """End the connection for a fault of the peer."""
        if self._writer.is_closed:
            return
        _log.warning("closing %s: %s (%s)", self.peer, error, error.error_code.name)
        self._writer.write(frames.encode_goaway(self._calls.last_id, error.error_code, str(error)))
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
                hint = _TLS_HINT if received.startswith(_TLS) else ""
                self._fail(Http2Error(ErrorCode.PROTOCOL_ERROR, f"this is not the preface of HTTP/2{hint}"))
            return None
        if len(received) < len(frames.PREFACE):
            self._preface = received
            return None
        self._preface = None
        self._announce()
        return received[len(frames.PREFACE) :]

    def _announce(self) -> None:
        """Our SETTINGS. After the preface, so that a client of another protocol gets a legible answer."""
        self._writer.write(
            frames.encode_settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: self._config.max_concurrent_calls,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_HEADER_LIST_SIZE: self._config.max_header_list_bytes,
                }
            )
        )
        self._writer.write(frames.encode_window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW))

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
            for stream in self._calls.streams():
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
            self._writer.write_later(frames.encode_frame(FrameType.PING, frames.ACK, 0, payload))

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
        stream = self._calls.get(stream_id)
        if stream is None:
            self._calls.check_not_idle(stream_id, "WINDOW_UPDATE")
        elif not increment:
            self._calls.reset(stream, ErrorCode.PROTOCOL_ERROR)
        elif stream.send_window + increment > frames.MAX_WINDOW:
            self._calls.reset(stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            stream.send_window += increment
            writer.pump_stream(stream)

    def _reset_by_peer(self, flags: int, stream_id: int, payload: bytes) -> None:
        frames.decode_u32(payload, "RST_STREAM")
        self._spend(1, "RST_STREAMs")
        self._calls.reset_by_peer(stream_id)

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
        if not stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "HEADERS without a stream")
        self._calls.headers(flags, stream_id, self._headers.decode(block), self._last_heard)

    # -- time --------------------------------------------------------------------------------

    def end_late_calls(self, now: float) -> None:
        """End the calls whose deadline has passed; `now` is on the loop's clock."""
        self._calls.end_late(now)

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
        self._calls.end_late(now)
        for stream in self._writer.stalled(stalled_before):
            _log.warning("ending %s of %s: it does not read the response", stream.path, self.peer)
            self._calls.cancel(stream)
        if incomplete := self._calls.incomplete(stalled_before):
            _log.warning("ending %d calls of %s: it does not send their requests", len(incomplete), self.peer)
            for stream in incomplete:
                self._calls.cancel(stream)
        if self._calls:
            self._last_call = now
            self._watch_peer(now)
        elif now - self._last_call > config.idle_timeout_ms / 1000:
            self.shut_down("idle")

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
