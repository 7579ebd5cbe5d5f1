"""Standalone in one process: a name server and a broker on one event loop."""

from __future__ import annotations

import asyncio
import logging

from kourou.broker.advertised_address import reach_warning
from kourou.broker.controller import BrokerController
from kourou.errors import ConfigError
from kourou.namesrv.server import NameServer
from kourou.standalone.options import StandaloneOptions, broker_config, namesrv_config
from kourou.transport.addresses import join_address

_log = logging.getLogger(__name__)


class Standalone:
    """A name server and a broker. `start` and `stop` it once, on the same loop; or use `async with`."""

    def __init__(self, options: StandaloneOptions) -> None:
        options.check()
        self._options = options
        self._namesrv: NameServer | None = None
        self._broker: BrokerController | None = None

    async def start(self) -> None:
        """On return clients can send and consume. Errors say which port or store cannot be had."""
        config, notes = namesrv_config(self._options)
        self._namesrv = await start_namesrv(NameServer(config))
        try:
            notes += await self._start_broker(self._options.namesrv_address(self._namesrv.port))
        except BaseException:
            await self.stop()
            raise
        for note in notes:
            _log.info("note: %s", note)

    async def _start_broker(self, namesrv_addr: str) -> list[str]:
        config, notes = broker_config(self._options, 0, namesrv_addr)
        broker = BrokerController(config)
        await broker.start()
        self._broker = broker
        return notes

    async def address_warning(self) -> str | None:
        """What is wrong with the address that clients are told, as far as it can be seen from here."""
        config = self.broker.config
        return await reach_warning(config.bind_address, config.broker_ip1, self.broker.port)

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """The broker first: its clients are told that it goes."""
        if self._broker is not None:
            await self._broker.stop(timeout_ms)
        if self._namesrv is not None:
            await self._namesrv.stop(timeout_ms)

    async def wait_failed(self) -> None:
        """Raise what a part died of."""
        assert self._broker is not None and self._namesrv is not None, "standalone is not started"
        waits = [
            asyncio.create_task(part.wait_failed(), name="wait-failed")
            for part in (self._broker, self._namesrv)
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def __aenter__(self) -> Standalone:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """The name server as clients write it, `namesrvAddr`."""
        assert self._namesrv is not None, "standalone is not started"
        return join_address(self._options.advertised, self._namesrv.port)

    @property
    def broker_addresses(self) -> list[str]:
        """The broker, as clients are told."""
        assert self._broker is not None, "standalone is not started"
        return [self._broker.address]

    @property
    def broker(self) -> BrokerController:
        """The broker, for those who look inside."""
        assert self._broker is not None, "standalone is not started"
        return self._broker


async def start_namesrv(server: NameServer) -> NameServer:
    """Start the name server of a standalone; a port that cannot be had is named with its option."""
    try:
        await server.start()
    except ConfigError as error:
        raise ConfigError(f"{error} (--namesrv-port)") from error
    return server
