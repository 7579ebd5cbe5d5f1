"""Connector: opens outgoing connections, plain or with TLS, with the errors of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kourou.errors import ConnectError
from kourou.transport.addresses import parse_address
from kourou.transport.connect_problem import connect_problem
from kourou.transport.connection import Connection
from kourou.transport.settings import RemotingClientConfig
from kourou.transport.tls import follow_client


class Connector:
    """Connects by one configuration, whose TLS files it follows. Create it on the running loop."""

    def __init__(self, config: RemotingClientConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._tls = follow_client(config.tls)

    async def connect(self, address: str, factory: Callable[[], Connection]) -> Connection:
        """A new connection to `address`. ConnectError, TlsError."""
        host, port = parse_address(address)
        # Before connecting rather than periodically: connections are rare.
        await self._tls.look_when_due(self._loop.time(), self._config.tls.look_every_s)
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                _, connection = await self._loop.create_connection(factory, host, port, ssl=self._tls.context)
        except TimeoutError:
            raise ConnectError(
                address, f"no connection within {self._config.connect_timeout_ms} ms"
            ) from None
        except (OSError, EOFError) as error:
            raise connect_problem(address, error, is_tls=self._tls.context is not None) from error
        return connection
