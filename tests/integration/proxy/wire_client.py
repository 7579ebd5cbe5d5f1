"""A gRPC client for tests: messages of rocketmq.v2 over a socket, one connection, no package but our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kourou.proxy.http2 import frames
from kourou.proxy.http2.frames import FrameDecoder, FrameType, Setting
from kourou.proxy.http2.hpack import HeaderDecoder
from kourou.proxy.wire.rocketmq_v2 import METHODS, TelemetryCommand
from tests.unit.proxy.http2.peer_kit import block, data, headers, message

_PATHS = {method.name: path for path, method in METHODS.items()}
_WINDOW = 2**31 - 1
_TIMEOUT_S = 30.0


class Stream:
    """One call: the messages that have come, and its status."""

    def __init__(self, client: WireClient, stream_id: int, method: str) -> None:
        self._client = client
        self._id = stream_id
        self._response = METHODS[_PATHS[method]].response
        self._received = bytearray()
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self.trailers: dict[str, str] = {}

    def feed(self, frame_type: int, payload: bytes, fields: Mapping[str, str], is_end: bool) -> None:
        """A frame of this call."""
        self.trailers.update(fields)
        if frame_type == FrameType.DATA:
            self._received += payload
            while len(self._received) >= 5:
                end = 5 + int.from_bytes(self._received[1:5], "big")
                if len(self._received) < end:
                    break
                self._messages.put_nowait(self._response.FromString(bytes(self._received[5:end])))
                del self._received[:end]
        if is_end:
            self._messages.put_nowait(None)

    async def next(self) -> Any:
        """The next message; None at the end of the call."""
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._messages.get()

    def write(self, request: Any) -> None:
        """A message of a client stream."""
        self._client.write(data(self._id, message(request.SerializeToString()), is_last=False))


class WireClient:
    """One client: `client_id` is in its metadata, beside `metadata`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **metadata: str) -> None:
        self._reader, self._writer = reader, writer
        self.metadata = {name.replace("_", "-"): value for name, value in metadata.items()}
        self._decoder, self._headers = FrameDecoder(), HeaderDecoder()
        self._streams: dict[int, Stream] = {}
        self._next_id = 1
        self.write(
            frames.PREFACE
            + frames.encode_settings({Setting.INITIAL_WINDOW_SIZE: _WINDOW})
            + frames.encode_window_update(0, _WINDOW - 65_535)
        )
        self._reading = asyncio.create_task(self._read())

    def write(self, content: bytes) -> None:
        """Send frames."""
        self._writer.write(content)

    def open(self, method: str, **metadata: str) -> Stream:
        """Begin a call, with metadata beside the client's."""
        stream = self._streams[self._next_id] = Stream(self, self._next_id, method)
        own = {name.replace("_", "-"): value for name, value in metadata.items()}
        self.write(headers(self._next_id, block(_PATHS[method], self.metadata | own)))
        self._next_id += 2
        return stream

    def start(self, method: str, request: Any) -> Stream:
        """Begin a call with one request."""
        stream_id = self._next_id
        stream = self.open(method)
        self.write(data(stream_id, message(request.SerializeToString())))
        return stream

    async def unary(self, method: str, request: Any) -> Any:
        """The response to a request."""
        stream = self.start(method, request)
        response = await stream.next()
        assert response is not None, stream.trailers
        assert await stream.next() is None
        return response

    async def telemetry(self, settings: Any) -> Stream:
        """An open Telemetry stream whose settings are answered."""
        stream, _ = await self.exchange_settings(settings)
        return stream

    async def exchange_settings(self, settings: Any, **metadata: str) -> tuple[Stream, Any]:
        """An open Telemetry stream, and the settings of the answer."""
        stream = self.open("Telemetry", **metadata)
        stream.write(TelemetryCommand(settings=settings))
        answer = await stream.next()
        assert answer is not None and answer.HasField("settings"), stream.trailers
        return stream, answer.settings

    async def _received(self) -> bytes:
        try:
            return await self._reader.read(1 << 18)
        except OSError:  # reset by a server that was killed
            return b""

    async def _read(self) -> None:
        while received := await self._received():
            for frame in self._decoder.feed(received):
                fields: Mapping[str, str] = {}
                if frame.type == FrameType.HEADERS:
                    # In the order of arrival: the table of fields is the connection's.
                    fields = dict(self._headers.decode(frame.payload))
                stream = self._streams.get(frame.stream_id)
                if stream is not None:
                    is_reset = frame.type == FrameType.RST_STREAM
                    is_end = bool(frame.flags & frames.END_STREAM) or is_reset
                    if frame.type in (FrameType.DATA, FrameType.HEADERS) or is_reset:
                        stream.feed(frame.type, frame.payload, fields, is_end)
        for stream in self._streams.values():  # the connection has ended, and all calls with it
            stream.feed(FrameType.RST_STREAM, b"", {}, is_end=True)

    async def close(self) -> None:
        """End the connection."""
        self._writer.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def connected(port: int, client_id: str = "client-1", **metadata: str) -> AsyncIterator[WireClient]:
    """A client of the proxy at this port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = WireClient(reader, writer, **{"x_mq_client_id": client_id}, **metadata)
    try:
        yield client
    finally:
        await client.close()
