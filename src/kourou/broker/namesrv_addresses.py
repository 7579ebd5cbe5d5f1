"""NamesrvAddresses: which name servers a broker registers with, and the HTTP service that may know them.

The list comes from `namesrvAddr`, or from an address service: a web server that answers
`GET /rocketmq/<sub group>` with `host:port;host:port` in its first line. It may change while the
broker runs. Not here: what is told to name servers (out_api.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from kourou.config.broker import BrokerConfig
from kourou.config.checks import addresses, split_addresses
from kourou.errors import ConnectError, ProtocolError, RemotingError
from kourou.transport.addresses import parse_address

_log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 8080
# Connecting, asking and reading together, as Apache's clients wait.
TIMEOUT_MS: Final = 3_000
# Some thousand addresses; more is no list of name servers.
_MAX_ANSWER_BYTES: Final = 64 * 1024
_OK: Final = b"200"


class AddressService:
    """A web server that knows the name servers."""

    def __init__(self, domain: str, sub_group: str) -> None:
        self.address = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
        self.path = f"/rocketmq/{sub_group}"

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://{self.address}{self.path}"

    async def fetch(self, timeout_ms: int = TIMEOUT_MS) -> list[str]:
        """The addresses it knows now. RemotingError or ProtocolError says why there are none."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._get()
        except TimeoutError:
            raise ConnectError(self.address, f"{self.url} did not answer within {timeout_ms} ms") from None
        except (OSError, EOFError) as error:
            raise ConnectError(self.address, f"{self.url}: {error}") from error
        return self._parse(answer)

    async def _get(self) -> bytes:
        host, port = parse_address(self.address)
        reader, writer = await asyncio.open_connection(host, port)
        try:
            # Version 1.0 has no chunks and ends the answer with the connection.
            request = f"GET {self.path} HTTP/1.0\r\nHost: {self.address}\r\nAccept: text/plain\r\n\r\n"
            writer.write(request.encode())
            answer = bytearray()
            while (chunk := await reader.read(_MAX_ANSWER_BYTES)) and len(answer) <= _MAX_ANSWER_BYTES:
                answer += chunk
            return bytes(answer)
        finally:
            writer.transport.abort()

    def _parse(self, answer: bytes) -> list[str]:
        head, _, body = answer.replace(b"\r\n", b"\n").partition(b"\n\n")
        status = head.split(b"\n", 1)[0].split(b" ")
        if len(status) < 2 or status[1] != _OK:
            raise ProtocolError(f"{self.url} answered {head[:60].decode(errors='replace')!r}, not 200")
        first_line = body.decode(errors="replace").strip().split("\n", 1)[0]
        found = split_addresses(first_line)
        if not found or addresses(first_line) is not None:
            raise ProtocolError(f"{self.url} answered {first_line[:60]!r}, not host:port;host:port")
        return found


def address_service(config: BrokerConfig) -> AddressService | None:
    """The service that is to be asked: one is configured, and `namesrvAddr` is not."""
    if config.namesrv_addr or not config.rmq_address_server_domain:
        return None
    return AddressService(config.rmq_address_server_domain, config.rmq_address_server_sub_group)


class NamesrvAddresses:
    """The name servers as they are known now. `on_change` hears which came and which went."""

    def __init__(
        self, config: Callable[[], BrokerConfig], on_change: Callable[[list[str], list[str]], None]
    ) -> None:
        self._config = config
        self._on_change = on_change
        self._current: tuple[str, ...] = ()

    @property
    def current(self) -> tuple[str, ...]:
        """The addresses, in the order they were given."""
        return self._current

    def update(self, new: Iterable[str]) -> None:
        """Use these from now on."""
        before, self._current = self._current, tuple(dict.fromkeys(new))
        added = [address for address in self._current if address not in before]
        removed = [address for address in before if address not in self._current]
        if added or removed:
            _log.info("name servers: %s", ";".join(self._current) or "none")
            self._on_change(added, removed)

    async def refresh(self) -> None:
        """Take the list from the configuration, or ask the address service. If that fails, the
        list stays as it is."""
        config = self._config()
        service = address_service(config)
        if service is None:
            self.update(split_addresses(config.namesrv_addr or ""))
            return
        try:
            self.update(await service.fetch())
        except (RemotingError, ProtocolError) as error:
            _log.warning("name servers stay as they are: %s", error)
