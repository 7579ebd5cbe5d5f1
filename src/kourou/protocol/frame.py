"""Frames: the outermost layer of the remoting protocol, cut from a byte stream and put together.

    length  u32   bytes that follow this field = 4 + header length + body length
    mark    u32   high byte: serialize type of the header; low 24 bits: header length
    header        JSON or ROCKETMQ binary, see `header_json` and `header_binary`
    body          the rest, may be empty

Big-endian. Not here: what header and body mean (`command`).
"""

from __future__ import annotations

from typing import Final

from kourou.errors import FrameTooLargeError, ProtocolError
from kourou.protocol.codes import SerializeType
from kourou.protocol.layout import FRAME, MAX_HEADER_BYTES

RawFrame = tuple[int, bytes, bytes]
"""Serialize type, header bytes, body bytes."""

DEFAULT_MAX_FRAME_BYTES: Final = 16_777_216
"""RocketMQ's `com.rocketmq.remoting.frameMaxLength`: the whole frame, length field included."""

_LENGTH: Final = FRAME.part("length")
_PREFIX: Final = FRAME.struct()
_unpack_prefix: Final = _PREFIX.unpack_from
_LENGTH_BYTES: Final = FRAME.end("length")
_PREFIX_BYTES: Final = FRAME.size
_LARGE_BYTES: Final = 16 * 1024
_MAX_MARK: Final = max(SerializeType) << 24 | MAX_HEADER_BYTES
_SERIALIZE_TYPES: Final = frozenset(int(kind) for kind in SerializeType)

# What people point at a RocketMQ port by mistake; each of these is far above any sane limit as a length.
_HTTP_2: Final = "HTTP/2"
_FOREIGN_STARTS: Final = {
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN"), "HTTP"),
    b"PRI ": _HTTP_2,
    b"PROX": "the PROXY protocol",
    b"\r\n\r\n": "the PROXY protocol",
    b"SSH-": "SSH",
}
_TLS_HANDSHAKE: Final = 0x16


class FrameDecoder:
    """Cuts a byte stream into frames, however the stream is split.

    Holds at most one unfinished frame, so never more than `max_frame_bytes`. A stream that is not
    made of frames cannot be resynchronised: after the first error every `feed` raises it again.

    To be read only: `pending_bytes` are held of a frame that is not complete yet; `failure` is why the stream
    ended, set as soon as it is known, when `feed` may still have returned frames.
    """

    __slots__ = ("_max_frame_bytes", "_rest", "_wanted_bytes", "failure", "pending_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        # Large pieces are kept as they came and put together once. Small ones are gathered: a peer that
        # sends a large frame byte by byte must not make us hold one object per byte.
        self._rest: list[bytes | bytearray] = []
        self.pending_bytes = 0
        self._wanted_bytes = _LENGTH_BYTES
        self.failure: ProtocolError | None = None

    def feed(self, data: bytes) -> list[RawFrame]:
        """Take the next bytes of the stream, return the frames that are now complete.

        Frames in front of a bad one are returned, and the error is in `failure` and raised by the
        next call; an error with no frame in front of it is raised at once.
        """
        self._check_alive()
        frames: list[RawFrame] = []
        position = 0
        try:
            if self._rest:
                position = self._fill(data)
                if self._is_filled:
                    frames.append(self._put_together())
                    self._forget()
            self._cut_whole(data, position, frames)
        except ProtocolError as failure:
            self._end(failure)
            if not frames:
                raise
        return frames

    def complete(self, data: bytes) -> tuple[bytes, int]:
        """Complete the frame that is pending: all its bytes, none while some are missing, and how many of
        `data` are part of it. For callers that cut frames by other means; errors are as with `feed`."""
        self._check_alive()
        try:
            position = self._fill(data)
        except ProtocolError as failure:
            self._end(failure)
            raise
        if not self._is_filled:
            return b"", position
        whole = b"".join(self._rest)
        self._forget()
        return whole, position

    def give_back(self) -> bytes:
        """All that is held of a frame that is not complete; it is forgotten here."""
        rest = b"".join(self._rest)
        self._forget()
        return rest

    def _check_alive(self) -> None:
        if self.failure is not None:
            # A traceback grows with every raise and holds on to what was fed before.
            raise self.failure.with_traceback(None)

    def _end(self, failure: ProtocolError) -> None:
        self.failure = failure.with_traceback(None)
        self._forget()

    def _forget(self) -> None:
        self._rest, self.pending_bytes = [], 0
        self._wanted_bytes = _LENGTH_BYTES

    @property
    def _is_filled(self) -> bool:
        """Whether all of the pending frame is there: its length is never wanted alone then."""
        return self.pending_bytes == self._wanted_bytes

    def _fill(self, data: bytes) -> int:
        """Add to the unfinished frame what `data` has of it; return how many bytes that are."""
        taken = 0
        while (missing := self._wanted_bytes - self.pending_bytes) > 0:
            piece = data[taken : taken + missing]
            self._hold(piece)
            taken += len(piece)
            if len(piece) < missing:
                return taken
            if self.pending_bytes == _LENGTH_BYTES:
                self._wanted_bytes = self._frame_bytes(self._first(_LENGTH_BYTES), 0)
        return taken

    def _hold(self, piece: bytes) -> None:
        rest = self._rest
        self.pending_bytes += len(piece)
        if len(piece) >= _LARGE_BYTES:
            rest.append(piece)
        elif rest and isinstance(rest[-1], bytearray):
            rest[-1] += piece
        else:
            rest.append(bytearray(piece))

    def _first(self, wanted_bytes: int) -> bytes | bytearray:
        """So many bytes of what is held, or more."""
        rest = self._rest
        return rest[0] if len(rest[0]) >= wanted_bytes else b"".join(rest)

    def _put_together(self) -> RawFrame:
        frame_bytes = self.pending_bytes
        prefix = self._first(_PREFIX_BYTES)
        serialize_type, body_at = _body_start(prefix, 0, frame_bytes)
        rest: list[bytes | bytearray] = self._rest
        if len(rest[0]) < body_at:
            rest = [b"".join(rest)]
        header = bytes(rest[0][_PREFIX_BYTES:body_at])
        return serialize_type, header, b"".join((memoryview(rest[0])[body_at:], *rest[1:]))

    def _cut_whole(self, data: bytes, position: int, frames: list[RawFrame]) -> None:
        """Cut the frames that lie whole in `data` from `position` on; keep what is left."""
        end = len(data)
        last_start = end - _PREFIX_BYTES
        max_length = self._max_frame_bytes - _LENGTH_BYTES
        # Every frame comes through here: one unpack and no call for a good one. The reason
        # why another one ends the loop is found by `_keep`.
        while position <= last_start:
            length, mark = _unpack_prefix(data, position)
            frame_end = position + _LENGTH_BYTES + length
            if frame_end > end or length > max_length:
                break
            body_at = position + _PREFIX_BYTES + (mark & MAX_HEADER_BYTES)
            if body_at > frame_end or mark > _MAX_MARK:
                _body_start(data, position, self._frame_bytes(data, position))  # raises, with the reason
            frames.append((mark >> 24, data[position + _PREFIX_BYTES : body_at], data[body_at:frame_end]))
            position = frame_end
        if position < end:
            self._keep(data, position)

    def _keep(self, data: bytes, position: int) -> None:
        """Hold the beginning of a frame until the rest of it comes."""
        if len(data) - position >= _LENGTH_BYTES:
            self._wanted_bytes = self._frame_bytes(data, position)
        self._hold(data[position:])

    def _frame_bytes(self, data: bytes | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(data, position)[0]
        frame_bytes = length + _LENGTH_BYTES
        if frame_bytes > self._max_frame_bytes:
            hint = _foreign_hint(bytes(data[position : position + _LENGTH_BYTES]))
            raise FrameTooLargeError(frame_bytes, self._max_frame_bytes, hint)
        if frame_bytes < _PREFIX_BYTES:
            raise ProtocolError(f"frame of {frame_bytes} bytes has no room for its header length")
        return frame_bytes


def encode_frame(serialize_type: int, header: bytes, body: bytes = b"") -> bytes:
    """The whole frame around a header and a body."""
    if serialize_type not in _SERIALIZE_TYPES:
        raise ProtocolError(f"unknown serialize type {serialize_type}")
    header_bytes = len(header)
    if header_bytes > MAX_HEADER_BYTES:
        raise ProtocolError(f"header of {header_bytes} bytes does not fit its 24-bit length")
    length = _LENGTH_BYTES + header_bytes + len(body)
    return b"".join((_PREFIX.pack(length, serialize_type << 24 | header_bytes), header, body))


def _body_start(data: bytes | bytearray, position: int, frame_bytes: int) -> tuple[int, int]:
    """Serialize type, and where in `data` the body of the frame at `position` begins."""
    mark: int = _PREFIX.unpack_from(data, position)[1]
    serialize_type = mark >> 24
    if serialize_type not in _SERIALIZE_TYPES:
        raise ProtocolError(f"unknown serialize type {serialize_type} in a frame of {frame_bytes} bytes")
    header_bytes = mark & MAX_HEADER_BYTES
    if _PREFIX_BYTES + header_bytes > frame_bytes:
        raise ProtocolError(f"header of {header_bytes} bytes does not fit its frame of {frame_bytes} bytes")
    return serialize_type, position + _PREFIX_BYTES + header_bytes


def _foreign_hint(start: bytes) -> str:
    if start[0] == _TLS_HANDSHAKE:
        return "; it looks like TLS on a port that expects plain text"
    name = _FOREIGN_STARTS.get(start)
    advice = " (gRPC clients connect to the proxy, --grpc-port)" if name == _HTTP_2 else ""
    return f"; it looks like {name}{advice}" if name else ""
