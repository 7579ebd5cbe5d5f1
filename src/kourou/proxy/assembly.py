"""Proxy: the gRPC port, the services behind it, and their ways to brokers, from start to stop."""

from __future__ import annotations

import logging
import time
from typing import Final, Protocol, Self

from kourou.access.gate import AccessGate
from kourou.client.core.credentials import Credentials
from kourou.client.core.settings import ClientSettings
from kourou.metrics.families import Family
from kourou.protocol.signature import SigningKeys
from kourou.proxy.access.followed_accounts import FollowedAccounts
from kourou.proxy.access.grpc_login import GatedAccess
from kourou.proxy.call_latency import CallLatency
from kourou.proxy.http2.server import GrpcServer
from kourou.proxy.links.cluster import Cluster, LocalBroker
from kourou.proxy.links.cluster_watch import ClusterWatch
from kourou.proxy.metrics import proxy_families
from kourou.proxy.services import STREAMS, Services
from kourou.proxy.settings import ProxySettings, tls_words
from kourou.transport.addresses import join_address
from kourou.transport.cycles import Cycles
from kourou.transport.tasks import TaskOwner, wait_first_failed

_log = logging.getLogger(__name__)

# Sends and acks end within milliseconds; a receive may wait for messages for 20 s, and is repeated elsewhere.
_LAST_CALLS_MS: Final = 1_000


class HostBroker(LocalBroker, Protocol):
    """A broker of the same process, which decides who may call."""

    @property
    def access_gate(self) -> AccessGate | None:
        """What checks requests; None: there is no access control."""
        ...

    @property
    def own_keys(self) -> SigningKeys | None:
        """The keys that sign what the broker sends to itself; None: it is not signed."""
        ...


class Proxy:
    """One proxy. Create it anywhere, `start` and `stop` it once, on the same loop; or use `async with`.

    `broker` is reached in memory, all others by TCP.
    """

    def __init__(self, settings: ProxySettings, *, broker: HostBroker | None = None) -> None:
        self._settings = settings
        self._broker = broker
        self._tasks: TaskOwner | None = None
        self._cluster: Cluster | None = None
        self._services: Services | None = None
        self._server: GrpcServer | None = None
        self._is_stopped = False
        self._latency: CallLatency | None = None
        self._followed: FollowedAccounts | None = None
        self._watch: ClusterWatch | None = None

    async def start(self) -> None:
        """On return clients can connect. ConfigError: the port cannot be had, or a file of TLS cannot be
        used; NameServerNotGivenError."""
        tasks = self._tasks = TaskOwner("proxy", title="the proxy")
        # Shared, so that requests and responses of one iteration of the loop leave together.
        cycles = Cycles(failed=tasks.fail)
        broker = self._broker
        cluster = self._cluster = Cluster(
            self._client_settings(),
            local=() if broker is None else (broker,),
            own_keys=self._settings.own_keys if broker is None else broker.own_keys,
            tasks=tasks,
            cycles=cycles,
        )
        followed: FollowedAccounts | None = None
        if broker is None and self._settings.follows_users:
            followed = FollowedAccounts(self._settings.access, cluster, tasks)
        self._followed = followed
        access = GatedAccess(self._gate)
        settings = self._settings
        if settings.has_metrics:
            self._latency = CallLatency(time.monotonic)
        services = self._services = Services(
            cluster,
            access,
            tasks,
            policy=settings.clients,
            limits=settings.messages,
            client_expiry_s=settings.client_expiry_s,
            meter=self._latency,
        )
        server = self._server = GrpcServer(services.handlers, STREAMS, settings.grpc, cycles=cycles)
        try:
            await cluster.start()
            if followed is not None:
                await followed.start()
            services.start()
            await server.start()
            if broker is None:  # a broker says itself what it does not reach
                self._watch = ClusterWatch(cluster, tasks, is_signing=followed is not None)
                await self._watch.start()
        except BaseException:
            await self.stop(0)
            raise
        _log.info("gRPC clients are served at %s, %s", self.address, self.tls_words)

    def _client_settings(self) -> ClientSettings:
        keys = self._settings.own_keys
        return ClientSettings(
            namesrv=self._settings.namesrv,
            tls=self._settings.tls,
            credentials=None if keys is None else Credentials(keys.access_key, keys.secret_key),
        )

    def _gate(self) -> AccessGate | None:
        if self._broker is not None:
            return self._broker.access_gate
        return None if self._followed is None else self._followed.gate

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """Stop in order: no new calls, an end to what is under way, then links and tasks. May be called
        twice."""
        if self._is_stopped:
            return
        self._is_stopped = True
        try:
            if self._server is not None:
                await self._server.stop(min(timeout_ms, _LAST_CALLS_MS))
            if self._services is not None:
                await self._services.stop()
            if self._cluster is not None:
                await self._cluster.stop()
            if self._followed is not None:
                await self._followed.stop()
        finally:
            if self._tasks is not None:
                await self._tasks.stop()

    async def wait_failed(self) -> None:
        """Raise what a part of the proxy died of; return when it has stopped."""
        assert self._server is not None and self._tasks is not None, "the proxy is not started"
        await wait_first_failed(self._server, self._tasks)

    async def why_not_ready(self) -> str | None:
        """Why clients cannot work now, in one line; None: they can."""
        if self._cluster is None or self._server is None or not self._server.port:
            return "the proxy is starting"
        if self._followed is not None and self._followed.problem:
            return self._followed.problem
        return await self._cluster.why_not_ready()

    @property
    def problem(self) -> str:
        """What keeps clients from being served, as far as it is known without a look; empty: nothing."""
        return "" if self._watch is None else self._watch.problem

    async def metric_families(self) -> list[Family]:
        """The metrics of this moment; none unless it runs and they are measured."""
        if self._latency is None or self._server is None or self._services is None:
            return []
        return proxy_families(self._server, self._services, self._latency)

    @property
    def port(self) -> int:
        """The port listened on, also when 0 was configured."""
        assert self._server is not None, "the proxy is not started"
        return self._server.port

    @property
    def address(self) -> str:
        """`host:port` as configured; a wildcard host is kept."""
        return join_address(self._settings.grpc.host or "0.0.0.0", self.port)

    @property
    def tls_words(self) -> str:
        """How clients may connect: by TLS, by plaintext, or both."""
        return tls_words(self._settings.grpc.tls)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
