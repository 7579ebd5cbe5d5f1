"""HttpConnection: JSON requests over one kept connection, and responses that arrive line by line.

Only what etcd's gateway needs: POST, bodies with a length or in chunks. Not here: which member to ask, and
what an answer means (client.py).
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple, Self

from kourou.errors import ConnectionLostError
from kourou.transport.addresses import parse_address
from kourou.transport.connect_problem import connect_problem
from kourou.transport.tls import describe_failure

_MAX_LINE_BYTES: Final = 64 * 1024
# etcd refuses requests above 1.5 MiB; a range of many keys may be larger.
_MAX_BODY_BYTES: Final = 32 * 1024 * 1024


class HttpReply(NamedTuple):
    """A whole response."""

    status: int
    body: bytes


class _Head(NamedTuple):
    status: int
    headers: Mapping[str, str]

    @property
    def is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def is_kept(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class HttpConnection:
    """One connection; one request at a time. Callers set the time limits."""

    def __init__(self, address: str, reader: StreamReader, writer: StreamWriter, *, is_tls: bool) -> None:
        self.address = address
        self._is_tls = is_tls
        self._reader = reader
        self._writer = writer
        self._is_usable = True

    @classmethod
    async def open(cls, address: str, tls: ssl.SSLContext | None) -> Self:
        """Connect. ConnectError or TlsError says why that is impossible."""
        host, port = parse_address(address)
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_MAX_LINE_BYTES)
        except (OSError, EOFError) as error:
            raise connect_problem(address, error, is_tls=tls is not None) from error
        return cls(address, reader, writer, is_tls=tls is not None)

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._is_usable and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """End the connection at once."""
        self._is_usable = False
        self._writer.transport.abort()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """Send a request and read its response; ConnectionLostError if the connection ends before."""
        is_complete = False
        try:
            head = await self._request(path, body, headers)
            parts = [part async for part in self._body(head)]
            is_complete = True
            self._is_usable = head.is_kept
            return HttpReply(head.status, b"".join(parts))
        finally:
            if not is_complete:  # failed or cancelled: the rest of the response would be taken for the next
                self.close()

    async def stream(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Send a request; yields the status and each line of the response as it arrives. The connection is
        closed at the end."""
        try:
            head = await self._request(path, body, headers)
            rest = b""
            async for part in self._body(head, is_endless=True):
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > _MAX_BODY_BYTES:
                    raise ConnectionLostError(self.address, f"a line of more than {_MAX_BODY_BYTES} bytes")
                for line in lines:
                    if line:
                        yield head.status, line
            if rest:
                yield head.status, rest
        finally:
            self.close()

    async def _request(self, path: str, body: bytes, headers: Mapping[str, str]) -> _Head:
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {self.address}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        try:
            self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await self._writer.drain()
            status_line = (await self._line()).split(b" ", 2)
            if (
                len(status_line) < 2
                or not status_line[0].startswith(b"HTTP/1.")
                or not status_line[1].isdigit()
            ):
                raise ConnectionLostError(
                    self.address, "the response is not HTTP; is this a client port of etcd?"
                )
            fields = {}
            while line := await self._line():
                name, _, value = line.partition(b":")
                fields[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
        except (OSError, asyncio.IncompleteReadError) as error:
            raise self._lost(error) from error
        return _Head(int(status_line[1]), fields)

    async def _line(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\n")).rstrip(b"\r\n")
        except asyncio.LimitOverrunError as error:
            raise ConnectionLostError(self.address, "a line of the response has no end") from error

    async def _body(self, head: _Head, *, is_endless: bool = False) -> AsyncIterator[bytes]:
        """The parts of a body, as they arrive."""
        total = 0
        try:
            if not head.is_chunked:
                length = self._number(head.headers.get("content-length", "0"), 10)
                if length:
                    yield await self._reader.readexactly(length)
                return
            while size := self._number((await self._line()).split(b";")[0].decode("latin-1"), 16):
                total += size
                if total > _MAX_BODY_BYTES and not is_endless:
                    raise ConnectionLostError(
                        self.address, f"a response of more than {_MAX_BODY_BYTES} bytes"
                    )
                yield await self._reader.readexactly(size)
                await self._line()
            while await self._line():  # trailers
                pass
        except (OSError, asyncio.IncompleteReadError) as error:
            raise self._lost(error) from error

    def _number(self, text: str, base: int) -> int:
        try:
            number = int(text, base)
        except ValueError:
            raise ConnectionLostError(self.address, f"{text!r} is no length of a response") from None
        if not 0 <= number <= _MAX_BODY_BYTES:
            raise ConnectionLostError(self.address, f"a part of {number} bytes is above {_MAX_BODY_BYTES}")
        return number

    def _lost(self, error: Exception) -> ConnectionLostError:
        if not isinstance(error, EOFError):
            return ConnectionLostError(self.address, describe_failure(error))
        hint = "" if self._is_tls else "; if it speaks TLS, write https:// before the endpoints"
        return ConnectionLostError(self.address, f"closed by the peer{hint}")
