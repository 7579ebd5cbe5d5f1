"""AddressService: a web server that knows the name servers.

It answers `GET /rocketmq/<sub group>` with `host:port;host:port` in its first line.
"""

from __future__ import annotations

from typing import Final

from kourou.errors import ConfigError, ConnectError, ProtocolError
from kourou.transport.addresses import parse_addresses
from kourou.transport.http_get import http_get

DEFAULT_PORT: Final = 8080
# Connecting, requesting and reading together, as in Apache's clients.
TIMEOUT_MS: Final = 3_000
_OK: Final = "200"


class AddressService:
    """A web server with the addresses of the name servers."""

    def __init__(self, domain: str, sub_group: str) -> None:
        self.address = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
        self.path = f"/rocketmq/{sub_group}"

    @property
    def url(self) -> str:
        """The address from which name servers are fetched."""
        return f"http://{self.address}{self.path}"

    async def fetch(self, timeout_ms: int = TIMEOUT_MS) -> list[str]:
        """The current addresses. RemotingError or ProtocolError if there are none."""
        try:
            answer = await http_get(self.address, self.path, timeout_ms)
        except TimeoutError:
            raise ConnectError(self.address, f"{self.url} did not answer within {timeout_ms} ms") from None
        except OSError as error:
            raise ConnectError(self.address, f"{self.url}: {error}") from error
        if answer.status != _OK:
            raise ProtocolError(f"{self.url} answered {answer.status_line[:60]!r}, not 200")
        return self._parse(answer.first_line)

    def _parse(self, first_line: str) -> list[str]:
        try:
            found = parse_addresses(first_line)
        except ConfigError:
            found = []
        if not found:
            raise ProtocolError(f"{self.url} answered {first_line[:60]!r}, not host:port;host:port")
        return found
