"""One HTTP request: connect, GET, read the response to its end. Not here: what the response means."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from kourou.transport.addresses import parse_address

# A few thousand addresses of name servers; callers expect no more.
MAX_ANSWER_BYTES: Final = 64 * 1024


class HttpAnswer(NamedTuple):
    """Three digits of status, the status line, and the body; other protocols have another first line and
    no meaningful status."""

    status: str
    status_line: str
    body: str

    @property
    def first_line(self) -> str:
        """The first line of the body."""
        return self.body.strip().split("\n", 1)[0]


async def http_get(address: str, path: str, timeout_ms: int, max_bytes: int = MAX_ANSWER_BYTES) -> HttpAnswer:
    """GET `http://address/path`; `timeout_ms` covers connecting, requesting and reading. A response of more
    than `max_bytes` is cut.

    OSError if the server does not respond; TimeoutError if it is too late.
    """
    async with asyncio.timeout(timeout_ms / 1000):
        return _parse(await _get(address, path, max_bytes))


async def _get(address: str, path: str, max_bytes: int) -> bytes:
    host, port = parse_address(address)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        # Version 1.0 has no chunks and ends the response with the connection.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n".encode())
        answer = bytearray()
        while (chunk := await reader.read(MAX_ANSWER_BYTES)) and len(answer) <= max_bytes:
            answer += chunk
        return bytes(answer)
    finally:
        writer.transport.abort()


def _parse(answer: bytes) -> HttpAnswer:
    head, _, body = answer.replace(b"\r\n", b"\n").partition(b"\n\n")
    status_line = head.split(b"\n", 1)[0].decode(errors="replace")
    status = [*status_line.split(" "), ""][1]
    return HttpAnswer(status, status_line, body.decode(errors="replace"))
