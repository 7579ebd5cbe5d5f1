"""HttpServer: a small HTTP listener for GET requests of a few fixed paths.

A path that is not in the table is 404, another method 405, what is no request 400, 408 or 431. One request a
connection, no TLS. Peers that are slow or many cannot harm: a head has 3 seconds and 8 KiB, a body is written
as fast as the peer reads and has 30 seconds, and the oldest of too many connections makes room for the
newest, so that a health check comes through.

Not here: what the paths return (http_probe.py for health checks, metrics_http.py for metrics).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from kourou.errors import ConfigError
from kourou.transport.addresses import join_address
from kourou.transport.listener import bind_problem
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8 * 1024
MAX_CONNECTIONS: Final = 16
HEAD_TIMEOUT_S: Final = 3.0
# Prometheus gives up after 10 seconds by default.
_BODY_TIMEOUT_S: Final = 30.0
# Until the peer has closed. Closing first, with unread bytes, could discard the response.
_LINGER_S: Final = 0.5
TEXT_TYPE: Final = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """The relevant parts of a request."""

    method: str
    path: str


class HttpResponse(NamedTuple):
    """A response: its body in pieces, which are written one after the other."""

    status: HTTPStatus
    body: Sequence[bytes]
    content_type: str = TEXT_TYPE

    @classmethod
    def line(cls, status: HTTPStatus, text: str) -> HttpResponse:
        """A response of one line of text."""
        return cls(status, (f"{' '.join(text.split())}\n".encode(),))

    def head(self) -> bytes:
        """Status and header lines, up to the empty one."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {sum(map(len, self.body))}",
            "Cache-Control: no-store",
            "Connection: close",
            *(["Allow: GET"] if self.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode()


HttpHandler: TypeAlias = Callable[[], Awaitable[HttpResponse]]
"""Answers GET of one path."""


class _NoRequestError(Exception):
    """The input is not a request."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpServer:
    """Serves the paths of `routes` on one port. Create it on the running loop, `start` and `stop` it."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, HttpHandler],
        *,
        port_key: str = "httpPort",
        host_key: str = "httpBindAddress",
        head_timeout_s: float = HEAD_TIMEOUT_S,
    ) -> None:
        self._host = host
        self._port = port
        self._routes = routes
        self._port_key = port_key
        self._host_key = host_key
        self._head_timeout_s = head_timeout_s
        self._server: asyncio.Server | None = None
        # In the order of arrival.
        self._connections: dict[StreamWriter, None] = {}
        # Logged only: a server must not stop because a request could not be answered.
        self._tasks = TaskOwner("http", is_logged=True)

    @property
    def address(self) -> str:
        """`host:port` as configured, with the actual port; a wildcard is kept."""
        return join_address(self._host or "0.0.0.0", self._port)

    async def start(self) -> None:
        """Bind and serve. ConfigError if it cannot listen at the address."""
        try:
            self._server = await asyncio.start_server(
                self._accepted, self._host or None, self._port, limit=MAX_HEAD_BYTES, backlog=MAX_CONNECTIONS
            )
        except OSError as error:
            problem = bind_problem(
                self._host, self._port, error, port_key=self._port_key, host_key=self._host_key
            )
            raise ConfigError(problem) from error
        self._port = self._server.sockets[0].getsockname()[1]
        _log.info("HTTP is served at http://%s: %s", self.address, " ".join(self._routes))

    async def stop(self) -> None:
        """Stop accepting, and abort open connections."""
        if self._server is not None:
            self._server.close()
        await self._tasks.stop()

    # -- one connection --------------------------------------------------------------------------

    def _accepted(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()  # its task sees the end
        self._connections[writer] = None
        self._tasks.start(self._serve(reader, writer), "http-request")

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError) as error:
            _log.debug("an HTTP peer is gone: %s", error)
        except Exception:
            _log.exception("an HTTP request could not be answered")
        finally:
            self._connections.pop(writer, None)
            writer.close()

    async def _converse(self, reader: StreamReader, writer: StreamWriter) -> None:
        is_head = False
        try:
            request = await self._read(reader)
            if request is None:
                return
            is_head = request.method == "HEAD"
            response = await self._respond(request)
        except _NoRequestError as error:
            response = HttpResponse.line(error.status, error.status.phrase)
        if not writer.is_closing():
            await _write(writer, response, is_head=is_head)
            await _linger(reader)

    async def _read(self, reader: StreamReader) -> Request | None:
        """The request; None if the peer closed without one."""
        try:
            async with asyncio.timeout(self._head_timeout_s):
                head = await _read_head(reader)
        except TimeoutError:
            raise _NoRequestError(HTTPStatus.REQUEST_TIMEOUT) from None
        return parse_head(head) if head else None

    async def _respond(self, request: Request) -> HttpResponse:
        handler = self._routes.get(request.path)
        if handler is None:
            *others, last = self._routes
            return HttpResponse.line(HTTPStatus.NOT_FOUND, f"available: {', '.join(others)} and {last}")
        if request.method != "GET":
            return HttpResponse.line(HTTPStatus.METHOD_NOT_ALLOWED, "GET only")
        try:
            return await handler()
        except Exception as error:
            _log.exception("GET %s failed", request.path)
            return HttpResponse.line(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error!r}; see the log")


class HttpListeners:
    """The HTTP ports of one server: that of health checks and metrics, and one more for metrics."""

    def __init__(self, http: HttpServer | None, metrics: HttpServer | None) -> None:
        self._http = http
        self._metrics = metrics

    @property
    def address(self) -> str | None:
        """Where health checks are answered; None: nowhere."""
        return None if self._http is None else self._http.address

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served: at their own port if there is one."""
        return self.address if self._metrics is None else self._metrics.address

    async def start(self) -> None:
        """Bind and serve. ConfigError: none listens."""
        try:
            for server in (self._http, self._metrics):
                if server is not None:
                    await server.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all."""
        for server in (self._http, self._metrics):
            if server is not None:
                await server.stop()


async def _write(writer: StreamWriter, response: HttpResponse, *, is_head: bool) -> None:
    """Write a response, as fast as the peer reads it."""
    async with asyncio.timeout(_BODY_TIMEOUT_S):
        writer.write(response.head())
        for piece in () if is_head else response.body:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def _read_head(reader: StreamReader) -> bytes:
    """The head up to its final empty line; empty if the peer closed before it."""
    head = bytearray()
    while not _is_whole(head):
        if len(head) >= MAX_HEAD_BYTES:
            raise _NoRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        chunk = await reader.read(MAX_HEAD_BYTES - len(head))
        if not chunk:
            return b""
        head += chunk
    return bytes(head)


def _is_whole(head: bytearray) -> bool:
    # Methods begin with a letter. TLS and RocketMQ's protocol are rejected at once.
    is_other = bool(head) and not head[:1].isalpha()
    return is_other or b"\r\n\r\n" in head or b"\n\n" in head


def parse_head(head: bytes) -> Request:
    """Method and path, without a query; other header lines are ignored."""
    words = head.split(b"\n", 1)[0].rstrip(b"\r").split(b" ")
    if len(words) != 3 or not words[0].isalpha() or not words[2].startswith(b"HTTP/1."):
        raise _NoRequestError(HTTPStatus.BAD_REQUEST)
    return Request(words[0].decode(), words[1].partition(b"?")[0].decode(errors="replace"))


async def _linger(reader: StreamReader) -> None:
    """Wait until the peer has closed, or for a moment; input is dropped."""
    try:
        async with asyncio.timeout(_LINGER_S):
            while await reader.read(MAX_HEAD_BYTES):
                pass
    except TimeoutError:
        return
