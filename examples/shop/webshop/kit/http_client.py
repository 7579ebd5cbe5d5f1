"""HttpClient: HTTP/1.1 to the services of the shop, over connections that are kept open.

A request between services is one write and one read. With httpx it takes ten times as much processor time
(3 ms), more than all else that an order needs; so h11, which speaks the protocol in httpx and uvicorn too, is
used directly.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import h11

_CHUNK_BYTES: Final = 65_536
_MAX_IDLE: Final = 64
"""Connections to one server that are kept."""


class HttpError(Exception):
    """No response: the server cannot be reached, has closed the connection, or is too slow."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a server answered."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body; ValueError if it is no JSON."""
        return json.loads(self.body)


class HttpClient:
    """Requests to any servers; each server's idle connections are used again."""

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[str, int], list[_Connection]] = defaultdict(list)

    async def request(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> HttpResponse:
        """Send a request, and wait for the response; HttpError if there is none in time."""
        parts = urlsplit(url)
        address = parts.hostname or "", parts.port or 80
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        given = {"Host": parts.netloc, "Content-Type": "application/json", **(headers or {})}
        request = h11.Request(
            method=method, target=target, headers=[*given.items(), ("Content-Length", str(len(body)))]
        )
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._kept(address) or await _Connection.open(*address)
                try:
                    response = await connection.exchange(request, body)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise HttpError(f"{parts.netloc} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise HttpError(f"{parts.netloc}: {error}") from error
        except h11.RemoteProtocolError as error:
            raise HttpError(f"{parts.netloc} has closed the connection, or does not speak HTTP") from error
        self._keep(address, connection)
        return response

    def _kept(self, address: tuple[str, int]) -> _Connection | None:
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    def _keep(self, address: tuple[str, int], connection: _Connection) -> None:
        if connection.is_usable and len(self._idle[address]) < _MAX_IDLE:
            self._idle[address].append(connection)
        else:
            connection.close()

    async def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


class _Connection:
    """One connection: a request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, host: str, port: int) -> _Connection:
        return cls(*await asyncio.open_connection(host, port))

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent: the server has not closed it."""
        return self._protocol.our_state is h11.IDLE and not self._reader.at_eof()

    async def exchange(self, request: h11.Request, body: bytes) -> HttpResponse:
        protocol = self._protocol
        parts = [protocol.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]
        self._writer.write(b"".join(part for part in parts if part))
        status, chunks = 0, []
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await self._reader.read(_CHUNK_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                chunks.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                break
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
        return HttpResponse(status, b"".join(chunks))

    def close(self) -> None:
        self._writer.close()
