"""A client's side of HTTP/2 in memory: frames in, frames out; the connection under test is the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from kourou.proxy.http2 import frames
from kourou.proxy.http2.call import Handler
from kourou.proxy.http2.connection import Http2Connection
from kourou.proxy.http2.frames import ErrorCode, Frame, FrameType, Setting
from kourou.proxy.http2.hpack import HeaderDecoder
from kourou.proxy.http2.settings import ByteBudget, GrpcServerConfig
from kourou.transport.cycles import Cycles

UNARY = "/test.Service/Unary"
SERVER_STREAM = "/test.Service/ServerStream"
CLIENT_STREAM = "/test.Service/ClientStream"


class MemoryTransport(asyncio.Transport):
    """What is written, until it is read; `is_stuck`: the peer does not read its socket."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self.written = bytearray()
        self.writes = 0
        self.has_written = asyncio.Event()
        self.is_closed = False
        self.is_reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.writes += 1
        self.has_written.set()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self.written)


def field(name: str, value: str) -> bytes:
    """A literal without indexing, names and values below 127 bytes."""
    assert len(name) < 127 and len(value) < 127
    return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode("latin-1")


def block(path: str = UNARY, extra: Mapping[str, str] | None = None, **changed: str | None) -> bytes:
    """The header block of a call. A pseudo header that is given as None is left out."""
    pseudo = {"method": "POST", "scheme": "http", "path": path, "authority": "broker:8081", **changed}
    fields = [field(f":{name}", value) for name, value in pseudo.items() if value is not None]
    others = {"content-type": "application/grpc", "te": "trailers", **(extra or {})}
    return b"".join(fields + [field(name, value) for name, value in others.items()])


def message(content: bytes, flag: int = 0) -> bytes:
    """A message as DATA carries it."""
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


def headers(stream_id: int, fields: bytes | None = None, flags: int = frames.END_HEADERS) -> bytes:
    """A HEADERS frame."""
    return frames.encode_frame(FrameType.HEADERS, flags, stream_id, block() if fields is None else fields)


def data(stream_id: int, payload: bytes, *, is_last: bool = True) -> bytes:
    """A DATA frame."""
    return frames.encode_frame(FrameType.DATA, frames.END_STREAM if is_last else 0, stream_id, payload)


def call(stream_id: int, content: bytes = b"ping", path: str = UNARY) -> bytes:
    """A whole unary call."""
    return headers(stream_id, block(path)) + data(stream_id, message(content))


class Peer:
    """A connection whose preface and SETTINGS are exchanged, unless `begin` is false."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        config: GrpcServerConfig | None = None,
        *,
        budget: ByteBudget | None = None,
        unsent: ByteBudget | None = None,
        settings: Mapping[int, int] | None = None,
        begin: bool = True,
    ) -> None:
        config = config or GrpcServerConfig()
        self.budget = budget or ByteBudget(config.max_inbound_bytes)
        self.unsent = unsent or ByteBudget(config.max_unsent_total_bytes)
        self.transport = MemoryTransport()
        self.cycles = Cycles()
        self.open: set[Http2Connection] = set()
        self.connection = Http2Connection(
            handlers,
            frozenset({CLIENT_STREAM}),
            config,
            self.budget,
            self.unsent,
            self.cycles,
            on_open=self.open.add,
            on_close=self.open.discard,
        )
        self._decoder = frames.FrameDecoder()
        self.headers = HeaderDecoder()
        self.connection.connection_made(self.transport)
        if begin:
            self.send(frames.PREFACE, frames.encode_settings(dict(settings or {})))
            assert [frame.type for frame in self.received()] == [
                FrameType.SETTINGS,
                FrameType.WINDOW_UPDATE,
                FrameType.SETTINGS,
            ]

    def send(self, *pieces: bytes) -> None:
        """The server reads these bytes, and the cycle ends."""
        self.connection.data_received(b"".join(pieces))
        self.cycles.close()

    def received(self, only: FrameType | None = None) -> list[Frame]:
        """The frames that were written since the last call."""
        self.cycles.close()
        written = bytes(self.transport.written)
        self.transport.written.clear()
        return [frame for frame in self._decoder.feed(written) if only is None or frame.type == only]

    def responses(self) -> dict[int, list[object]]:
        """What each stream got: header fields as dicts, content of DATA joined, error codes of resets."""
        found: dict[int, list[object]] = {}
        for frame in self.received():
            parts = found.setdefault(frame.stream_id, [])
            if frame.type == FrameType.HEADERS:
                parts.append(dict(self.headers.decode(frame.payload)))
            elif frame.type == FrameType.DATA:
                if parts and isinstance(parts[-1], bytes):
                    parts[-1] += frame.payload
                else:
                    parts.append(frame.payload)
            elif frame.type == FrameType.RST_STREAM:
                parts.append(ErrorCode(int.from_bytes(frame.payload, "big")))
        return found

    def status(self, stream_id: int) -> tuple[int, str]:
        """Code and text of a call that has just ended."""
        for part in self.responses()[stream_id]:
            if isinstance(part, dict) and "grpc-status" in part:
                return int(part["grpc-status"]), cast(str, part.get("grpc-message", ""))
        raise AssertionError("the call has no status")

    def goaway(self) -> tuple[ErrorCode, str] | None:
        """Code and text of the GOAWAY, if there is one."""
        for frame in self.received(FrameType.GOAWAY):
            return ErrorCode(int.from_bytes(frame.payload[4:8], "big")), frame.payload[8:].decode()
        return None

    def lose(self) -> None:
        """The connection is lost."""
        self.connection.connection_lost(None)


OPENED = {":status": "200", "content-type": "application/grpc"}
OK = {"grpc-status": "0"}
SMALL_TABLE = {int(Setting.HEADER_TABLE_SIZE): 0}
