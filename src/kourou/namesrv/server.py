"""NameServer: a running name server: its processors, its port, its scan for dead brokers, start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kourou.access.inner_keys import has_access_control, inner_keys
from kourou.clock import monotonic_ms
from kourou.config import NamesrvConfig
from kourou.errors import KourouError
from kourou.metrics.process import LoopLag
from kourou.namesrv.broker_processor import BrokerProcessor
from kourou.namesrv.config_processor import ConfigProcessor, KvConfigProcessor
from kourou.namesrv.disk_worker import DiskWorker
from kourou.namesrv.kv_config import KvConfig, load_kv_config
from kourou.namesrv.min_broker_id import MinBrokerIdChange
from kourou.namesrv.route_processor import RouteProcessor
from kourou.namesrv.state import Clock, NamesrvState
from kourou.namesrv.topic_processor import TopicProcessor
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.dispatcher import run_request
from kourou.transport.from_config import client_settings, server_settings, start_http
from kourou.transport.request import Processor, Request
from kourou.transport.request_latency import RequestLatency
from kourou.transport.server import RemotingServer
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.metrics.families import Family
    from kourou.namesrv.access import NamesrvAccess
    from kourou.transport.http_server import HttpHandler, HttpListeners

_log = logging.getLogger(__name__)

# Concurrent notifications. Beyond this they are dropped: brokers also poll.
MAX_NOTIFICATIONS = 1_000


class NameServer:
    """One name server. It keeps nothing but the KV configuration; brokers bring the rest again.

    Create it anywhere, `start` and `stop` it once, on the same loop; or use `async with`. `has_metrics`:
    metrics are measured although no port of the configuration serves them.
    """

    def __init__(
        self, config: NamesrvConfig, clock: Clock = monotonic_ms, *, has_metrics: bool = False
    ) -> None:
        self._config = config
        self._has_metrics = has_metrics
        self._clock = clock
        self._state: NamesrvState | None = None
        self._server: RemotingServer | None = None
        self._client: RemotingClient | None = None
        self._disk: DiskWorker | None = None
        self._tasks: TaskOwner | None = None
        self._access: NamesrvAccess | None = None
        self._http: HttpListeners | None = None
        self._requests: RequestLatency | None = None
        self._loop_lag = LoopLag()
        self._notifications = 0
        self._is_serving = False
        self._stopping = False

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the KV configuration, bind, serve. On return connections are accepted.

        ConfigError for an invalid file, key or address.
        """
        try:
            self._http = await start_http(
                self._config, self._http_routes, metrics_port=self._config.metrics_port
            )
            await self._start()
        except BaseException:
            await self.stop()
            raise
        self._is_serving = True
        _log.info("name server listens on %s", self.address)

    async def _start(self) -> None:
        kv_config = await asyncio.to_thread(_load, self._config)
        self._access = access = await self._load_access()
        self._disk = DiskWorker(self._start_request)
        self._client = RemotingClient(client_settings(self._config), keys=inner_keys(self._config))
        self._state = NamesrvState(
            self._config,
            kv_config,
            clock=self._clock,
            disk=self._disk,
            on_min_broker_id_changed=self._notify,
        )
        processors = namesrv_processors(self._state)
        if self._http is not None or self._has_metrics:
            self._requests = RequestLatency(asyncio.get_running_loop().time)
            self._loop_lag.start()
        self._server = RemotingServer(
            processors,
            server_settings(self._config),
            on_close=self._closed,
            checks=() if access is None else (access.check,),
            meter=self._requests,
        )
        self._tasks = TaskOwner("namesrv", parent=self._server.tasks)
        await self._server.start()
        self._start_task(self._scan_forever(), "scan-dead-brokers")
        if access is not None:
            self._start_task(access.follow_files(), "access-files")
            self._start_task(access.write_audit_log(), "access-audit-log")

    async def _load_access(self) -> NamesrvAccess | None:
        """Access control, if it is configured. ConfigError for accounts that cannot be read."""
        if not has_access_control(self._config):
            return None
        from kourou.namesrv.access import NamesrvAccess  # a start should be short

        access = NamesrvAccess(self._config, monotonic_ms=self._clock)
        await asyncio.to_thread(access.load)
        return access

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """Stop in order, within one deadline: requests in flight are answered first."""
        self._stopping = True
        try:
            await self._stop_serving(timeout_ms)
        finally:
            self._loop_lag.stop()
            if self._http is not None:
                await self._http.stop()

    async def _stop_serving(self, timeout_ms: int) -> None:
        if self._server is not None:
            await self._server.stop(timeout_ms)
        if self._tasks is not None:
            await self._tasks.stop()
        if self._access is not None:
            await self._access.stop()
        if self._client is not None:
            await self._client.stop()
        if self._disk is not None:
            self._disk.stop()

    async def wait_failed(self) -> None:
        """Raise what a part of the server died of; return when the server has stopped."""
        await self._running_server.wait_failed()

    async def __aenter__(self) -> NameServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port listened on, also if 0 was requested."""
        return self._running_server.port

    @property
    def address(self) -> str:
        """`host:port` as configured; a wildcard host stays as it is."""
        return self._running_server.address

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._http is None else self._http.address

    @property
    def metrics_address(self) -> str | None:
        """`host:port` where metrics are served; None: nowhere."""
        return None if self._http is None else self._http.metrics_address

    async def metric_families(self, *, with_process: bool = True) -> list[Family]:
        """The metrics of this moment; none unless it serves and they are measured. Without those of the
        process where a broker in it has them."""
        from kourou.namesrv.metrics import namesrv_families

        if self._requests is None or not self._is_serving or self._stopping:
            return []
        scope = (("node_type", "namesrv"), ("node_id", self.address))
        connections = len(self._running_server.connections)
        families = namesrv_families(
            self.state,
            self._requests,
            self._loop_lag,
            connections,
            scope,
            access=None if self._access is None else self._access.gate,
            with_process=with_process,
        )
        return list(families)

    def _http_routes(self) -> dict[str, HttpHandler]:
        from kourou.transport.http_probe import probe_routes
        from kourou.transport.metrics_http import METRICS, metrics_handler

        return {**probe_routes(self.why_not_ready), METRICS: metrics_handler(self.metric_families)}

    async def why_not_ready(self) -> str | None:
        """Why this name server is not ready, in one line; None if it is.

        Ready means that it answers, including routes: registered brokers are not required, as brokers wait
        for name servers, not the reverse.
        """
        if self._stopping:
            return "the name server is stopping"
        if not self._is_serving:
            return "the name server is starting"
        if self.state.holds_routes_back:
            seconds = self.state.config.wait_seconds_for_service
            return f"needWaitForService: routes are given {seconds} s after the start"
        return None

    @property
    def state(self) -> NamesrvState:
        """Tables and configuration, for those who embed a name server and look inside."""
        assert self._state is not None, "the name server is not started"
        return self._state

    @property
    def _running_server(self) -> RemotingServer:
        assert self._server is not None, "the name server is not started"
        return self._server

    # -- tasks ------------------------------------------------------------------------------

    def _start_request(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        # As a task of the server, so that its stop lets the request be answered.
        run_request(self._running_server.tasks, request, work)

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        assert self._tasks is not None
        self._tasks.start(work, name)

    # -- brokers that go --------------------------------------------------------------------

    def _closed(self, connection: Connection) -> None:
        # On a stop, brokers lose the name server, not each other: no notifications are sent.
        if not self._stopping:
            self.state.routes.connection_closed(connection)

    async def _scan_forever(self) -> None:
        while True:
            # Read in each round, as the interval may change at run time.
            await asyncio.sleep(self.state.config.scan_not_active_broker_interval / 1000)
            self.scan_dead_brokers()

    def scan_dead_brokers(self) -> None:
        """Remove brokers that were silent for too long, and the connections only they used."""
        routes = self.state.routes
        for broker in routes.scan_dead(self._clock()):
            connection = broker.connection
            if isinstance(connection, Connection) and not routes.has_brokers(connection):
                connection.close(f"broker {broker.group.name} was silent for {broker.timeout_ms} ms")

    # -- notifications ----------------------------------------------------------------------

    def _notify(self, change: MinBrokerIdChange) -> None:
        for broker_addr in change.broker_addrs:
            if self._notifications >= MAX_NOTIFICATIONS:
                _log.warning(
                    "cannot notify %s of the lowest id of %s", broker_addr, change.header.broker_name
                )
                continue
            self._notifications += 1
            self._start_task(self._notify_one(broker_addr, change), f"notify-{broker_addr}")

    async def _notify_one(self, broker_addr: str, change: MinBrokerIdChange) -> None:
        assert self._client is not None
        command = RemotingCommand.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, change.header)
        try:
            await self._client.send_oneway(broker_addr, command)
        except (KourouError, OSError, ValueError) as error:  # the address is whatever a broker said
            _log.warning(
                "cannot notify a broker of the lowest id of %s: %s", change.header.broker_name, error
            )
        finally:
            self._notifications -= 1


def _load(config: NamesrvConfig) -> KvConfig:
    return load_kv_config(Path(config.kv_config_path)) if config.kv_config_path else KvConfig()


def namesrv_processors(state: NamesrvState) -> dict[int, Processor]:
    """Request code to the function that handles it."""
    return {
        **RouteProcessor(state).processors(),
        **BrokerProcessor(state).processors(),
        **TopicProcessor(state).processors(),
        **KvConfigProcessor(state).processors(),
        **ConfigProcessor(state).processors(),
    }
