"""Standalone in one process: a name server and a broker on one event loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kourou.broker.controller import BrokerController
from kourou.broker.registration.advertised_address import reach_warning
from kourou.config.option_names import naming_options
from kourou.namesrv.server import NameServer
from kourou.standalone.grpc import start_grpc
from kourou.standalone.http import start_http
from kourou.standalone.options import (
    BROKER_OPTIONS,
    NAMESRV_OPTIONS,
    StandaloneOptions,
    broker_config,
    namesrv_config,
)
from kourou.transport.addresses import join_address
from kourou.transport.tasks import wait_first_failed

if TYPE_CHECKING:
    from kourou.metrics.families import Family
    from kourou.proxy.assembly import Proxy
    from kourou.transport.http_server import HttpHandler, HttpServer

_log = logging.getLogger(__name__)


class Standalone:
    """A name server and a broker. `start` and `stop` it once, on the same loop; or use `async with`."""

    def __init__(self, options: StandaloneOptions) -> None:
        options.check()
        self._options = options
        self._namesrv: NameServer | None = None
        self._broker: BrokerController | None = None
        self._http: HttpServer | None = None
        self._proxy: Proxy | None = None
        # What the operator should know of the configuration, once started.
        self.notes: list[str] = []

    async def start(self) -> None:
        """On return clients can send and consume. Errors say which port or store cannot be had."""
        config, self.notes = namesrv_config(self._options)
        try:
            self._http = await start_http(self._options, self.why_not_ready, self.metrics_routes)
            self._namesrv = await start_namesrv(NameServer(config, has_metrics=self._options.is_measured))
            namesrv_addr = self._options.namesrv_address(self._namesrv.port)
            await self._start_broker(namesrv_addr)
            self._proxy = await start_grpc(self._options, namesrv_addr, [self.broker.config], self._broker)
        except BaseException:
            await self.stop()
            raise
        for note in self.notes:
            _log.info("note: %s", note)

    async def _start_broker(self, namesrv_addr: str) -> None:
        (master,) = self._options.replicas
        config, notes = broker_config(self._options, master, namesrv_addr)
        self.notes += notes
        broker = BrokerController(config, has_metrics=self._options.is_measured)
        with naming_options(BROKER_OPTIONS, BROKER_OPTIONS):
            await broker.start()
        self._broker = broker

    async def address_warning(self) -> str | None:
        """The problem with the advertised address, as far as it can be detected here."""
        config = self.broker.config
        return await reach_warning(config.bind_address, config.broker_ip1, self.broker.port)

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """The broker first, so that its clients are notified; before it the proxy, which is one."""
        try:
            if self._proxy is not None:
                await self._proxy.stop(timeout_ms)
            if self._broker is not None:
                await self._broker.stop(timeout_ms)
            if self._namesrv is not None:
                await self._namesrv.stop(timeout_ms)
        finally:
            if self._http is not None:
                await self._http.stop()

    async def why_not_ready(self) -> str | None:
        """Why clients cannot work now, in one line; None: name server and broker are ready."""
        if self._namesrv is None or self._broker is None:
            return "the broker is starting: its store is opened, and recovered where it was not closed"
        why_not = await self._namesrv.why_not_ready() or await self._broker.why_not_ready()
        if why_not is None and self._options.grpc_port is not None:
            return "the gRPC port is opened" if self._proxy is None else await self._proxy.why_not_ready()
        return why_not

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._http is None else self._http.address

    async def metric_families(self) -> list[Family]:
        """The metrics of broker, name server and proxy; none before they serve."""
        if self._namesrv is None or self._broker is None:
            return []
        own = await self._namesrv.metric_families(with_process=False)
        proxy = [] if self._proxy is None else await self._proxy.metric_families()
        return [*await self._broker.metric_families(), *own, *proxy]

    async def exporter_families(self) -> list[Family]:
        """The metrics of the broker under the names of rocketmq-exporter."""
        return [] if self._broker is None else await self._broker.exporter_families()

    def metrics_routes(self) -> dict[str, HttpHandler]:
        """Answers with the metrics of all, by path."""
        from kourou.transport.metrics_http import EXPORTER_METRICS, METRICS, metrics_handler

        return {
            METRICS: metrics_handler(self.metric_families),
            EXPORTER_METRICS: metrics_handler(self.exporter_families),
        }

    async def wait_failed(self) -> None:
        """Raise what a part died of."""
        assert self._broker is not None and self._namesrv is not None, "standalone is not started"
        await wait_first_failed(self._broker, self._namesrv, self._proxy)

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
    def grpc_address(self) -> str | None:
        """The address of clients of RocketMQ 5; None: there is none."""
        return None if self._proxy is None else join_address(self._options.advertised, self._proxy.port)

    @property
    def grpc_tls_words(self) -> str:
        """How those may connect."""
        return "" if self._proxy is None else self._proxy.tls_words

    @property
    def broker_texts(self) -> list[str]:
        """The advertised address of the broker."""
        assert self._broker is not None, "standalone is not started"
        return [self._broker.address]

    @property
    def kernel_lines(self) -> list[str]:
        """Whether the broker uses the compiled kernel."""
        return [str(self.broker.kernel)]

    @property
    def broker(self) -> BrokerController:
        """The broker, for those who look inside."""
        assert self._broker is not None, "standalone is not started"
        return self._broker


async def start_namesrv(server: NameServer) -> NameServer:
    """Start the name server of a standalone; what cannot be had is named with its option."""
    with naming_options(NAMESRV_OPTIONS, NAMESRV_OPTIONS):
        await server.start()
    return server
