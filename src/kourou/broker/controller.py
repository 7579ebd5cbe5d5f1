"""BrokerController: a broker's life, in order.

start: answer HTTP requests, where a port is configured; open the store, which recovers it; recover and start
the parts one after the other (assembly.py). stop: stop the parts in reverse.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from kourou.broker.admission import Admission, AdmissionCheck
from kourou.broker.assembly import RunningBroker
from kourou.broker.hooks import BrokerHooks
from kourou.broker.part import Handler
from kourou.broker.replication.membership import Membership
from kourou.broker.services import BrokerServices, BrokerSetup
from kourou.clock import Clock
from kourou.config.broker import BrokerConfig
from kourou.store.disk.files import Files
from kourou.store.kernel import KernelChoice, choose_kernel
from kourou.transport.addresses import SocketName
from kourou.transport.from_config import start_http

if TYPE_CHECKING:
    from kourou.access.gate import AccessGate
    from kourou.broker.metrics.broker_metrics import BrokerMetrics
    from kourou.metrics.families import Family
    from kourou.protocol.signature import SigningKeys
    from kourou.transport.http_server import HttpHandler, HttpListeners

_log = logging.getLogger(__name__)

_STARTING = "the broker is starting: its store is opened, and recovered where it was not closed"


@dataclass(frozen=True, slots=True)
class _Closed:
    """The store is not open: before the start, or during it, or the start has failed."""

    http: HttpListeners | None = None
    why_not_ready = _STARTING


@dataclass(frozen=True, slots=True)
class _Open:
    """There is a broker around an open store; `why_not_ready` None: its parts have started and run."""

    running: RunningBroker
    http: HttpListeners | None
    why_not_ready: str | None = _STARTING


@dataclass(frozen=True, slots=True)
class _Stopping(_Open):
    """It stops, or has stopped: `done`."""

    done: asyncio.Future[None] = field(kw_only=True)


class BrokerController:
    """One broker. Create it anywhere, `start` and `stop` it once, on the same loop; or use `async with`.

    `checks` decide which requests are admitted, from the first one on (admission.py). `membership`: its part
    in a fail-over set. `has_metrics`: metrics are measured although no port of the configuration serves
    them. `handlers` serve further requests, `runtime_keys` are added to the runtime information.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        hooks: BrokerHooks | None = None,
        checks: Iterable[AdmissionCheck] = (),
        membership: Membership | None = None,
        has_metrics: bool = False,
        handlers: Sequence[Handler] = (),
        runtime_keys: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._setup = BrokerSetup(
            config=config,
            files=files or Files(),
            clock=clock or Clock(),
            hooks=hooks or BrokerHooks(),
            checks=tuple(checks),
            kernel=choose_kernel(is_enabled=config.compiled_kernel_enable),
            membership=membership,
            has_metrics=has_metrics,
            handlers=handlers,
            runtime_keys=runtime_keys,
        )
        self._state: _Closed | _Open = _Closed()

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """On return the broker serves, and every name server that answers knows it.

        StoreLockedError, StoreFormatError, StorageError: the store cannot be opened. ConfigError: the
        port cannot be had, or a file cannot be read.
        """
        self._setup = self._setup.checked()
        config = self._setup.config
        if self.kernel.is_fault:
            _log.warning("%s", self.kernel)
        # Before anything that may take long: until then it reports that it is not ready.
        http = await start_http(
            config,
            self._http_routes,
            metrics_port=config.served_metrics_port,
            metrics_host=config.metrics_prom_exporter_host,
        )
        self._state = _Closed(http)
        try:
            running = await RunningBroker.open(self._setup)
        except BaseException:
            if http is not None:
                await http.stop()
            raise
        self._state = _Open(running, http)
        try:
            await running.start()
        except BaseException:
            await self.stop()
            raise
        if not isinstance(self._state, _Stopping):
            self._state = _Open(running, http, why_not_ready=None)
        names = config.broker_name, config.broker_cluster_name, self.address
        _log.info(
            "broker %s of cluster %s serves at %s, store %s, %s",
            *names,
            config.store_path_root_dir,
            self.kernel,
        )

    # -- stop ------------------------------------------------------------------------------------

    async def wait_failed(self) -> None:
        """Raise what a part of the broker died of; return when the broker has stopped."""
        await self._open.running.wait_failed()

    async def stop(self, timeout_ms: int = 5_000) -> None:
        """Stop in order: no new clients, answers to what is under way, everything on disk. Every call
        returns when that is done."""
        state = self._state
        if isinstance(state, _Closed):
            return
        if not isinstance(state, _Stopping):
            done = asyncio.ensure_future(self._stop(state, timeout_ms))
            state = _Stopping(state.running, state.http, "the broker is stopping", done=done)
            self._state = state
        await asyncio.shield(state.done)

    async def _stop(self, state: _Open, timeout_ms: int) -> None:
        try:
            await state.running.stop(timeout_ms)
        finally:
            if state.http is not None:
                await state.http.stop()
        _log.info("broker %s has stopped", self._setup.config.broker_name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- looking in ------------------------------------------------------------------------------

    @property
    def _open(self) -> _Open:
        assert isinstance(self._state, _Open), "the broker is not started"
        return self._state

    @property
    def services(self) -> BrokerServices:
        """What the parts share, for programs that embed a broker and look inside."""
        return self._open.running.services

    @property
    def running(self) -> RunningBroker:
        """The broker around its open store."""
        return self._open.running

    @property
    def admission(self) -> Admission:
        """The gate for requests: checks may be added and removed while the broker runs."""
        return self.services.admission

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it is now."""
        return self.services.config if isinstance(self._state, _Open) else self._setup.config

    @property
    def port(self) -> int:
        """The port listened on, also when 0 was configured."""
        return self._setup.config.listen_port

    @property
    def address(self) -> str:
        """`host:port` as clients see it in routes."""
        return self.services.address

    @property
    def kernel(self) -> KernelChoice:
        """Whether it uses the compiled kernel."""
        return self._setup.kernel

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._state.http is None else self._state.http.address

    @property
    def metrics_address(self) -> str | None:
        """`host:port` where metrics are served; None: nowhere."""
        return None if self._state.http is None else self._state.http.metrics_address

    # -- for a proxy of the same process ---------------------------------------------------------

    def connect_local(self, client: asyncio.Protocol, client_name: SocketName) -> None:
        """Connect a client of this process in memory; the broker sees it at `client_name`."""
        self.running.connect_local(client, client_name)

    @property
    def access_gate(self) -> AccessGate | None:
        """What checks requests; None: there is no access control."""
        return self.running.access_gate

    @property
    def own_keys(self) -> SigningKeys | None:
        """The keys that sign what the broker sends to itself; None: it is not signed."""
        return self.running.own_keys

    # -- metrics ---------------------------------------------------------------------------------

    async def metric_families(self) -> list[Family]:
        """The metrics of this moment; none unless the broker runs and they are measured."""
        metrics = self._metrics
        return [] if metrics is None else await metrics.families()

    async def exporter_families(self) -> list[Family]:
        """The same under the names of rocketmq-exporter."""
        metrics = self._metrics
        return [] if metrics is None else await metrics.exporter.families()

    @property
    def _metrics(self) -> BrokerMetrics | None:
        state = self._state
        if not isinstance(state, _Open) or isinstance(state, _Stopping):
            return None
        return state.running.metrics

    def _http_routes(self) -> dict[str, HttpHandler]:
        from kourou.broker.metrics.labels import broker_scope
        from kourou.transport.http_probe import probe_routes
        from kourou.transport.metrics_http import EXPORTER_METRICS, METRICS, metrics_handler

        def max_series() -> int:
            return self.config.metrics_otel_cardinality_limit

        return {
            **probe_routes(self.why_not_ready),
            METRICS: metrics_handler(self.metric_families, max_series, broker_scope(self.config)),
            EXPORTER_METRICS: metrics_handler(self.exporter_families, max_series, broker_scope(self.config)),
        }

    async def why_not_ready(self) -> str | None:
        """Why clients cannot send to this broker now, in one line; None: they can (readiness.py)."""
        state = self._state
        if isinstance(state, _Closed) or state.why_not_ready is not None:
            return state.why_not_ready
        return await state.running.why_not_ready()
