"""ResponseWriter: what one connection sends: responses, within the peer's windows, and control frames.

Everything is collected and written once, at the end of the cycle (transport/cycles.py). Messages for which a
window has no room, and those for a peer that does not read its socket, wait in their streams; trailers wait
behind them. Not here: frames of the peer (connection.py).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Final

from kourou.protocol.layout import Buffer
from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import GrpcCode
from kourou.proxy.http2.frames import FrameType
from kourou.proxy.http2.messages import PREFIX, PREFIX_BYTES
from kourou.proxy.http2.response_headers import ResponseHeaders, encode_status, http_status
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from kourou.proxy.http2.stream import Stream
from kourou.transport.cycles import Cycles

_log = logging.getLogger(__name__)

# HEADERS with the short opening, the head of DATA, the prefix of the message.
_UNARY: Final = struct.Struct(">IBI2sIBIBI")
_UNARY_HEADERS: Final = 2 << 8 | FrameType.HEADERS
_TRAILERS: Final = struct.Struct(">IBI1s")
_TRAILERS_HEAD: Final = 1 << 8 | FrameType.HEADERS
_LAST: Final = frames.END_HEADERS | frames.END_STREAM
# Above this average size, joining pieces costs more than passing them to the transport one by one.
_JOIN_BELOW_BYTES: Final = 16 * 1024
# Some clients send a PING with nearly every call: the acknowledgement waits so long for a response, to leave
# with it.
_LATER_S: Final = 0.002
# One stream sends so much before the next one has its turn.
_TURN_BYTES: Final = 64 * 1024


class ResponseWriter:
    """The sending side of one connection. `done` gets each stream whose response has been sent."""

    __slots__ = (
        "_abort",
        "_blocked",
        "_config",
        "_cycles",
        "_done",
        "_headers",
        "_late_timer",
        "_later",
        "_loop",
        "_out",
        "_out_bytes",
        "_total",
        "_transport",
        "data_frames",
        "initial_window",
        "is_closed",
        "is_paused",
        "is_tls",
        "max_frame",
        "peer",
        "queued_bytes",
        "window",
    )

    def __init__(
        self,
        cycles: Cycles,
        config: GrpcServerConfig,
        total: ByteBudget,
        *,
        done: Callable[[Stream], None],
        abort: Callable[[str], None],
    ) -> None:
        self._cycles = cycles
        self._config = config
        self._total = total
        self._done = done
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._headers = ResponseHeaders()
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._later: list[Buffer] = []
        self._late_timer: asyncio.TimerHandle | None = None
        self._blocked: dict[int, Stream] = {}
        self.peer = "unknown"
        self.is_tls = False
        self.is_closed = False
        self.is_paused = False  # the peer does not read its socket
        self.window = frames.DEFAULT_WINDOW
        self.initial_window = frames.DEFAULT_WINDOW
        self.max_frame = frames.MAX_FRAME_BYTES
        self.queued_bytes = 0
        self.data_frames = 0

    # -- responses ---------------------------------------------------------------------------

    def reply(self, stream: Stream, message: bytes) -> None:
        """The response of a unary call."""
        size = len(message) + PREFIX_BYTES
        if (
            not self._headers.is_indexed
            or size > self.window
            or size > stream.send_window
            or size > self.max_frame
            or self.is_paused
            or stream.has_response
        ):
            self.send(stream, message)
            self.finish(stream)
            return
        self.window -= size
        self.data_frames += 1
        stream_id = stream.id
        self.write(
            _UNARY.pack(
                _UNARY_HEADERS,
                frames.END_HEADERS,
                stream_id,
                ResponseHeaders.OPENING,
                size << 8,
                0,
                stream_id,
                0,
                size - PREFIX_BYTES,
            )
        )
        self.write(message)
        self.write(_TRAILERS.pack(_TRAILERS_HEAD, _LAST, stream_id, ResponseHeaders.TRAILERS))
        stream.is_over = stream.has_response = True
        stream.drop_callbacks()
        self._done(stream)

    def open(self, stream: Stream) -> None:
        """Send the header block of a response, unless it is sent."""
        if stream.has_response or self.is_closed:
            return
        stream.has_response = True
        self._write_headers(stream.id, self._headers.take_opening(), frames.END_HEADERS)

    def send(self, stream: Stream, message: bytes) -> None:
        """One message of a response."""
        if self.is_closed:
            return
        self.open(stream)
        size = len(message) + PREFIX_BYTES
        prefix = PREFIX.pack(0, len(message))
        if size <= self.max_frame:
            stream.queue.append(prefix + message)
        else:
            stream.queue += (prefix, message)
        stream.queued_bytes += size
        self.queued_bytes += size
        self._total.used += size
        if stream.id not in self._blocked:
            self._pump(stream)
        if self.queued_bytes > self._config.max_unsent_bytes:
            self._abort(f"it left {self.queued_bytes} bytes of responses unread")
        elif self._total.used > self._total.limit:
            self._abort(f"responses of all connections that are unread exceed {self._total.limit} bytes")

    def finish(self, stream: Stream) -> None:
        """End the response with status OK."""
        self.open(stream)
        self._end(stream, b"")

    def fail(self, stream: Stream, code: GrpcCode, text: str, *fields: bytes) -> None:
        """End the response with another status."""
        self._end(stream, encode_status(code, text) + b"".join(fields))

    def refuse_http(self, stream_id: int, status: int, text: str) -> None:
        """Answer a request that is not gRPC's."""
        self._write_headers(stream_id, self._headers.take_other(http_status(status, text)), _LAST)

    def _end(self, stream: Stream, ending: bytes) -> None:
        stream.is_over = True
        stream.drop_callbacks()
        stream.ending = ending
        if not stream.queue:
            self._send_ending(stream)

    def _send_ending(self, stream: Stream) -> None:
        fields = stream.ending
        assert fields is not None
        if fields:
            block = self._headers.take_failure(fields, is_open=stream.has_response)
        else:
            block = self._headers.take_trailers()
        stream.has_response = True
        stream.on_unsent = None
        self._write_headers(stream.id, block, _LAST)
        self._done(stream)

    def _write_headers(self, stream_id: int, block: bytes, flags: int) -> None:
        self.write(frames.encode_frame(FrameType.HEADERS, flags, stream_id, block))

    # -- windows -----------------------------------------------------------------------------

    def _pump(self, stream: Stream, limit: int = frames.MAX_WINDOW) -> bool:
        """Send what waits in a stream, as far as it may; returns whether anything was sent."""
        queue, sent = stream.queue, 0
        while queue and sent < limit:
            room = min(self.window, stream.send_window, self.max_frame)
            if room <= 0 or self.is_paused:
                break
            piece = queue[0]
            if len(piece) > room:
                view = memoryview(piece)
                piece, queue[0] = view[:room], view[room:]
            else:
                queue.popleft()
            size = len(piece)
            self.write(frames.FRAME_HEAD.pack(size << 8, 0, stream.id))
            self.write(piece)
            self.window -= size
            stream.send_window -= size
            sent += size
            self.data_frames += 1
        stream.queued_bytes -= sent
        self.queued_bytes -= sent
        self._total.used -= sent
        if queue:
            if stream.id not in self._blocked:
                self._blocked[stream.id] = stream
                stream.progressed_at = self._loop.time()
            elif sent:
                stream.progressed_at = self._loop.time()
            return sent > 0
        self._blocked.pop(stream.id, None)
        if stream.ending is not None:
            self._send_ending(stream)
        return sent > 0

    def pump_all(self) -> None:
        """Send what waits in all streams, in turns."""
        while self._blocked and self.window > 0 and not self.is_paused:
            if not any([self._pump(stream, _TURN_BYTES) for stream in list(self._blocked.values())]):
                return

    def pump_stream(self, stream: Stream) -> None:
        """Send what waits in a stream whose window has grown."""
        if stream.id in self._blocked:
            self._pump(stream)

    def forget(self, stream: Stream) -> None:
        """Send nothing more of a stream."""
        self._blocked.pop(stream.id, None)
        self.queued_bytes -= stream.queued_bytes
        self._total.used -= stream.queued_bytes
        stream.queued_bytes = 0
        stream.queue.clear()

    def stalled(self, before: float) -> list[Stream]:
        """Streams whose response has made no progress since then."""
        if not self._blocked:
            return []
        return [stream for stream in self._blocked.values() if stream.progressed_at < before]

    def use_no_table(self) -> None:
        """The peer has a smaller header table than the default."""
        self._headers.use_no_table()

    # -- the socket --------------------------------------------------------------------------

    def attach(self, transport: asyncio.Transport, peer: str, *, is_tls: bool) -> None:
        """Write to this transport."""
        transport.set_write_buffer_limits(high=self._config.write_high_bytes)
        self._transport = transport
        self.peer = peer
        self.is_tls = is_tls

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the socket has not taken, if the peer does not read; else 0."""
        if not self.is_paused or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    def write(self, data: Buffer) -> None:
        """Collect bytes for the write at the end of the cycle."""
        if self.is_closed:
            return
        if not self._out:
            self._cycles.mark_dirty(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= self._config.write_high_bytes:
            self.flush()

    def write_later(self, data: Buffer) -> None:
        """Collect bytes for the next write, or for one of their own if there is none soon."""
        if self.is_closed:
            return
        self._later.append(data)
        if self._late_timer is None:
            self._late_timer = self._loop.call_later(_LATER_S, self._write_late)

    def _write_late(self) -> None:
        self._late_timer = None
        if self._later:
            late, self._later = self._later, []
            self.write(b"".join(late))

    def flush(self) -> None:
        """Pass the collected bytes to the transport. Never raises."""
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        if self._later and out:
            out, self._later = self._later + out, []
        transport = self._transport
        if not out or transport is None or transport.is_closing():
            return
        try:
            if self.is_tls or size < len(out) * _JOIN_BELOW_BYTES:
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
        except (OSError, RuntimeError) as error:  # uvloop raises on a closed handle
            self._abort(f"write failed: {error}")
            return
        if self.is_paused and transport.get_write_buffer_size() > self._config.max_unsent_bytes:
            self._abort(f"it left {transport.get_write_buffer_size()} bytes of responses unread")

    def close(self) -> None:
        """Drop what is collected; nothing is sent any more. Streams are to be forgotten one by one."""
        self.is_closed = True
        self._out.clear()
        self._later.clear()
        if self._late_timer is not None:
            self._late_timer.cancel()
        self._blocked.clear()
