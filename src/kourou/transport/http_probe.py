"""HttpProbes: a small HTTP listener for health checks.

    GET /livez     200: the event loop runs. Checks nothing else: a recovery is no reason for a restart
    GET /readyz    200 `ready`, or 503 and one line that says why clients cannot work now

Anything else is 404, another method 405, what is no request 400, 408 or 431. One request a connection,
plain text, no TLS. Peers that are slow or many cannot harm: a head has 3 seconds and 8 KiB, and the oldest
of too many connections makes room for the newest, so that a check comes through.

Not here: what ready means (broker/readiness.py, namesrv/server.py).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from kourou.errors import ConfigError
from kourou.transport.addresses import join_address
from kourou.transport.http_get import http_get
from kourou.transport.listener import bind_problem
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

READYZ: Final = "/readyz"
LIVEZ: Final = "/livez"
READY: Final = "ready"

WhyNotReady = Callable[[], Awaitable[str | None]]
"""Returns in one line why clients cannot work now; None if they can."""

MAX_HEAD_BYTES: Final = 8 * 1024
MAX_CONNECTIONS: Final = 16
HEAD_TIMEOUT_S: Final = 3.0
# For the check itself. Health probes wait for 1 to 10 seconds.
_CHECK_TIMEOUT_S: Final = 3.0
# Until the peer has closed. Closing first, with unread bytes, could discard the response.
_LINGER_S: Final = 0.5
# Maximum length of another server's response that is passed on.
_MAX_REASON: Final = 1_000


class Request(NamedTuple):
    """The relevant parts of a request."""

    method: str
    path: str


class _Answer(NamedTuple):
    status: HTTPStatus
    text: str

    def encode(self, *, is_head: bool) -> bytes:
        body = f"{' '.join(self.text.split())}\n".encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *(["Allow: GET"] if self.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else body)


class _NoRequestError(Exception):
    """The input is not a request."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpProbes:
    """Responds to health checks on one port. Create it on the running loop, `start` and `stop` it."""

    def __init__(
        self,
        host: str,
        port: int,
        why_not_ready: WhyNotReady,
        *,
        host_key: str = "httpBindAddress",
        head_timeout_s: float = HEAD_TIMEOUT_S,
        check_timeout_s: float = _CHECK_TIMEOUT_S,
    ) -> None:
        self._host = host
        self._port = port
        self._why_not_ready = why_not_ready
        self._host_key = host_key
        self._head_timeout_s = head_timeout_s
        self._check_timeout_s = check_timeout_s
        self._server: asyncio.Server | None = None
        # In the order of arrival.
        self._connections: dict[StreamWriter, None] = {}
        # Logged only: a server must not stop because a check could not be answered.
        self._tasks = TaskOwner("http-probes", is_logged=True)

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
                self._host, self._port, error, port_key="httpPort", host_key=self._host_key
            )
            raise ConfigError(problem) from error
        self._port = self._server.sockets[0].getsockname()[1]
        _log.info("health checks are answered at http://%s%s", self.address, READYZ)

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
        self._tasks.start(self._serve(reader, writer), "probe")

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except OSError as error:
            _log.debug("a health check went away: %s", error)
        except Exception:
            _log.exception("a health check could not be answered")
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
            answer = await self._answer(request)
        except _NoRequestError as error:
            answer = _Answer(error.status, error.status.phrase)
        if not writer.is_closing():
            writer.write(answer.encode(is_head=is_head))
            writer.write_eof()
            await _linger(reader)

    async def _read(self, reader: StreamReader) -> Request | None:
        """The request; None if the peer closed without one."""
        try:
            async with asyncio.timeout(self._head_timeout_s):
                head = await _read_head(reader)
        except TimeoutError:
            raise _NoRequestError(HTTPStatus.REQUEST_TIMEOUT) from None
        return parse_head(head) if head else None

    async def _answer(self, request: Request) -> _Answer:
        if request.path not in (READYZ, LIVEZ):
            return _Answer(HTTPStatus.NOT_FOUND, f"available: {READYZ} and {LIVEZ}")
        if request.method != "GET":
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, "GET only")
        if request.path == LIVEZ:
            return _Answer(HTTPStatus.OK, "alive")
        why_not = await self._check()
        if why_not is None:
            return _Answer(HTTPStatus.OK, READY)
        return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, why_not)

    async def _check(self) -> str | None:
        try:
            async with asyncio.timeout(self._check_timeout_s):
                return await self._why_not_ready()
        except TimeoutError:
            return f"could not determine within {self._check_timeout_s:g} s whether it is ready"
        except Exception as error:
            # The probe gets a response even if readiness cannot be determined.
            _log.exception("cannot determine whether the server is ready")
            return f"cannot determine whether it is ready: {error!r}; see the log"


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


async def ask_readyz(address: str, timeout_ms: int) -> str | None:
    """Why the server with a listener at `address` is not ready, in its words or ours; None if it is."""
    try:
        answer = await http_get(address, READYZ, timeout_ms)
    except TimeoutError:
        return f"no answer within {timeout_ms} ms"
    except ConnectionRefusedError:
        return "cannot connect: connection refused; is the server running there, with --http-port?"
    except OSError as error:
        return f"no answer: {error.strerror or error}"
    if answer.status == str(HTTPStatus.OK.value):
        return None
    return answer.first_line[:_MAX_REASON] or f"it answered {answer.status_line[:_MAX_REASON]!r}"
