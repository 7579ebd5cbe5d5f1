"""Frames of HTTP/2 (RFC 9113): layouts, constants, and splitting a stream of bytes.

Frame, big-endian: length u24, type u8, flags u8, stream id u32 (the highest bit is reserved), payload.
Not here: what a frame means (connection.py), header blocks (hpack.py).
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from kourou.errors import ProtocolError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD: Final = struct.Struct(">IBI")  # length << 8 | type, flags, stream id
HEAD_BYTES: Final = FRAME_HEAD.size
MAX_FRAME_BYTES: Final = 16_384  # the smallest allowed SETTINGS_MAX_FRAME_SIZE; we announce no other
MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_TABLE_BYTES: Final = 4_096
STREAM_ID: Final = 0x7FFF_FFFF

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

_SETTING: Final = struct.Struct(">HI")
_U32: Final = struct.Struct(">I")
_GOAWAY: Final = struct.Struct(">II")


class FrameType(enum.IntEnum):
    """Types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(enum.IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Setting(enum.IntEnum):
    """Parameters of SETTINGS."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2Error(ProtocolError):
    """The peer broke HTTP/2, or strains the server: the connection ends with GOAWAY and this code."""

    def __init__(self, error_code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error_code = error_code


class Frame(NamedTuple):
    """One frame."""

    type: int
    flags: int
    stream_id: int
    payload: bytes


class FrameDecoder:
    """Splits the stream into frames, for any split of the input.

    A frame that is too large ends the stream: `failure` is set then, and the frames before it are returned.
    """

    __slots__ = ("_rest", "failure")

    def __init__(self) -> None:
        self._rest = b""
        self.failure: Http2Error | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of the incomplete frame at the end."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with `data`."""
        if self._rest:
            data = self._rest + data
        frames: list[Frame] = []
        position, end, unpack = 0, len(data), FRAME_HEAD.unpack_from
        while end - position >= HEAD_BYTES:
            length_type, flags, stream_id = unpack(data, position)
            length = length_type >> 8
            if length > MAX_FRAME_BYTES:
                self.failure = Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are allowed",
                )
                break
            begin = position + HEAD_BYTES
            following = begin + length
            if following > end:
                break
            frames.append(Frame(length_type & 0xFF, flags, stream_id & STREAM_ID, data[begin:following]))
            position = following
        self._rest = data[position:] if position else data
        return frames


def encode_frame(frame_type: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """The bytes of one frame."""
    return FRAME_HEAD.pack(len(payload) << 8 | frame_type, flags, stream_id) + payload


def encode_settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return encode_frame(FrameType.SETTINGS, 0, 0, b"".join([_SETTING.pack(*item) for item in values.items()]))


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """The parameters of a SETTINGS frame, in order; raises Http2Error."""
    if len(payload) % _SETTING.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a SETTINGS frame of {len(payload)} bytes")
    return list(_SETTING.iter_unpack(payload))


def encode_window_update(stream_id: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return encode_frame(FrameType.WINDOW_UPDATE, 0, stream_id, _U32.pack(increment))


def encode_reset(stream_id: int, code: ErrorCode) -> bytes:
    """A RST_STREAM frame."""
    return encode_frame(FrameType.RST_STREAM, 0, stream_id, _U32.pack(code))


def encode_goaway(last_stream_id: int, code: ErrorCode, text: str = "") -> bytes:
    """A GOAWAY frame; `text` is for the peer's log."""
    return encode_frame(FrameType.GOAWAY, 0, 0, _GOAWAY.pack(last_stream_id, code) + text.encode()[:256])


def decode_u32(payload: bytes, what: str) -> int:
    """The payload of RST_STREAM or WINDOW_UPDATE; raises Http2Error."""
    if len(payload) != _U32.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a {what} frame of {len(payload)} bytes; it has 4")
    value: int = _U32.unpack(payload)[0]
    return value


def without_padding(payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame with the flag PADDED; raises Http2Error."""
    if not payload or payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
