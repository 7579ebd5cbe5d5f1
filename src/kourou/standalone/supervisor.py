"""Standalone with several brokers: the name server here, each broker a process of its own.

One process is one core; more brokers use the others. A broker that ends by itself stops all: half a cluster
that looks whole would lose messages from sight. Where masters have slaves, messages stay in sight: then it is
reported and started again at the same address, after a pause that grows while it does not stay up.

With fail-over there is an etcd too, a process that is kept running in the same way; which broker of a set is
its master is decided there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kourou.config.broker import SLAVE
from kourou.errors import KourouError
from kourou.failover.set_state import SetKeys
from kourou.namesrv.server import NameServer
from kourou.standalone.broker_process import BrokerProcess, describe_exit
from kourou.standalone.broker_sets import BrokerSets
from kourou.standalone.etcd_process import EtcdProcess, free_ports
from kourou.standalone.following import wait_followed
from kourou.standalone.grpc import start_grpc
from kourou.standalone.http import start_http
from kourou.standalone.one_process import start_namesrv
from kourou.standalone.options import (
    Replica,
    StandaloneOptions,
    broker_config,
    broker_overrides,
    namesrv_config,
)
from kourou.store.kernel import choose_kernel
from kourou.transport.addresses import join_address
from kourou.transport.tasks import wait_first_failed

if TYPE_CHECKING:
    from kourou.config import BrokerConfig
    from kourou.metrics.families import Family
    from kourou.proxy.assembly import Proxy
    from kourou.transport.http_server import HttpHandler, HttpServer

_log = logging.getLogger(__name__)

Child: TypeAlias = BrokerProcess | EtcdProcess

# A large store that was not closed has to be recovered first.
_START_TIMEOUT_S: Final = 600.0
# A slave that copies is connected within milliseconds; one that cannot says why in its log.
_FOLLOW_TIMEOUT_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
# A broker that has run for so long is not one that fails to start.
_STABLE_S: Final = 60.0


class RestartPauses:
    """How long to wait before a broker is started again: longer each time, unless it stayed up."""

    def __init__(self) -> None:
        self._next_s = _FIRST_PAUSE_S

    def next_s(self, lived_s: float) -> float:
        """The pause after a broker that has run for so long."""
        pause_s = _FIRST_PAUSE_S if lived_s >= _STABLE_S else self._next_s
        self._next_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return pause_s


class Supervisor:
    """A name server and the processes of its brokers. `start` and `stop` it once."""

    def __init__(self, options: StandaloneOptions) -> None:
        options.check()
        self._options = options
        self._namesrv: NameServer | None = None
        self._brokers: dict[Replica, BrokerProcess] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._etcd: EtcdProcess | None = None
        self._sets: BrokerSets | None = None
        self._masters: set[str] = set()
        self._http: HttpServer | None = None
        self._proxy: Proxy | None = None
        self._is_stopping = False
        # What the operator should know of the name server; each broker speaks for itself.
        self.notes: list[str] = []

    async def start(self) -> None:
        """On return every broker serves, and every slave follows its master. If a broker does not start, none
        is left."""
        config, self.notes = namesrv_config(self._options)
        for note in self.notes:
            _log.info("note: %s", note)
        try:
            self._http = await start_http(self._options, self.why_not_ready, self.metrics_routes)
            self._namesrv = await start_namesrv(NameServer(config, has_metrics=self._options.is_measured))
            if self._options.failover:
                await self._start_etcd()
            await self._start_brokers()
            self._proxy = await start_grpc(self._options, self._own_namesrv, self._configs, None)
        except BaseException:
            await self.stop()
            raise

    async def _start_etcd(self) -> None:
        ports = free_ports()
        self._etcd = await self._spawn_etcd(ports)
        if not await self._etcd.wait_booted_or_ended():
            raise KourouError(f"etcd did not start; its log says why: {self._etcd.log}")
        self._keep(self._keep_etcd(self._etcd, ports))

    async def _spawn_etcd(self, ports: tuple[int, int]) -> EtcdProcess:
        log = self._options.log_folder / "etcd.log"
        return await EtcdProcess.spawn(self._options.store / "etcd", log, ports)

    async def _start_brokers(self) -> None:
        for replica in self._options.replicas:
            self._brokers[replica] = await self._spawn(replica)
        async with asyncio.timeout(_START_TIMEOUT_S):
            await asyncio.gather(*(broker.wait_booted() for broker in self._brokers.values()))
        if self._etcd is not None:
            await self._wait_in_sync(self._etcd.address)
        elif self._options.slaves:
            await self._wait_followed()
        if self._options.slaves:
            for replica, broker in self._brokers.items():
                self._keep(self._keep_running(replica, broker.port))

    def _keep(self, keeper: Coroutine[Any, Any, None]) -> None:
        self._keepers.append(asyncio.create_task(keeper, name="keep-running"))

    async def _spawn(self, replica: Replica, *, port: int | None = None) -> BrokerProcess:
        keys = broker_overrides(self._options, replica, self._own_namesrv, self._etcd_address)
        return await BrokerProcess.spawn(self._options, replica, keys, port=port)

    @property
    def _own_namesrv(self) -> str:
        assert self._namesrv is not None
        return self._options.namesrv_address(self._namesrv.port)

    @property
    def _etcd_address(self) -> str | None:
        return None if self._etcd is None else self._etcd.address

    async def _wait_in_sync(self, etcd_address: str) -> None:
        """Wait until every set has a master with all of its slaves."""
        configs = {config.broker_name: config for config in self._configs}
        self._sets = BrokerSets(
            etcd_address,
            [
                SetKeys.of(config.failover_etcd_prefix, config.broker_cluster_name, name)
                for name, config in configs.items()
            ],
        )
        try:
            await self._sets.wait_in_sync(1 + self._options.slaves, _FOLLOW_TIMEOUT_S)
        except TimeoutError:
            _log.warning("not all brokers are in sync with their master yet; their logs say why")
        self._masters = await self._sets.masters()

    async def _wait_followed(self) -> None:
        """Wait until every master has its slaves; a send to a SYNC_MASTER needs one."""
        masters = {
            self._options.namesrv_address(broker.port): broker.name
            for replica, broker in self._brokers.items()
            if not replica.is_slave
        }
        accounts = self._options.accounts
        keys = None if accounts is None else accounts.inner
        for address in await wait_followed(masters, self._options.slaves, _FOLLOW_TIMEOUT_S, keys):
            _log.warning(
                "not all slaves of %s follow it yet; the logs of the slaves say why", masters[address]
            )

    async def _keep_running(self, replica: Replica, port: int) -> None:
        """Start a broker again whenever it has ended."""

        async def spawn() -> Child:
            self._brokers[replica] = restarted = await self._spawn(replica, port=port)
            return restarted

        await _restart_forever(self._brokers[replica], spawn)

    async def _keep_etcd(self, etcd: EtcdProcess, ports: tuple[int, int]) -> None:
        async def spawn() -> Child:
            self._etcd = restarted = await self._spawn_etcd(ports)
            return restarted

        await _restart_forever(etcd, spawn)

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """Stop the proxy, then the slaves together, then the masters, then the name server."""
        self._is_stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        try:
            await self._stop_servers(timeout_ms)
        finally:
            if self._http is not None:
                await self._http.stop()

    async def _stop_servers(self, timeout_ms: int) -> None:
        try:
            if self._proxy is not None:
                await self._proxy.stop(timeout_ms)
            masters = await self._present_masters()
            for is_master in (False, True):
                brokers = [each for each in self._brokers.values() if (each in masters) is is_master]
                await asyncio.gather(*(broker.stop() for broker in brokers))
            if self._etcd is not None:
                await self._etcd.stop()
        except asyncio.CancelledError:
            for child in (*self._brokers.values(), self._etcd):
                if child is not None:
                    child.kill()
            raise
        finally:
            if self._namesrv is not None:
                await self._namesrv.stop(timeout_ms)

    async def _present_masters(self) -> list[BrokerProcess]:
        if self._sets is None:
            return [broker for replica, broker in self._brokers.items() if not replica.is_slave]
        addresses = await self._sets.masters()
        return [broker for broker in self._brokers.values() if broker.booted_address in addresses]

    async def why_not_ready(self) -> str | None:
        """Why clients cannot work now, in one line; None: name server and every broker are ready."""
        if self._is_stopping:
            return "all brokers are stopping"
        if self._namesrv is None or len(self._brokers) < len(self._options.replicas):
            return "the brokers are starting"
        whys = [
            await self._namesrv.why_not_ready(),
            *await asyncio.gather(*(broker.why_not_ready() for broker in self._brokers.values())),
        ]
        if self._options.grpc_port is not None:
            whys.append(
                "the gRPC port is opened" if self._proxy is None else await self._proxy.why_not_ready()
            )
        return "; ".join(why for why in whys if why) or None

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._http is None else self._http.address

    def metrics_routes(self) -> dict[str, HttpHandler]:
        """Answers with the metrics of all, by path."""
        from kourou.transport.metrics_http import EXPORTER_METRICS, METRICS, merged_handler, metrics_handler

        async def own() -> list[Family]:
            parts = (self._namesrv, self._proxy)
            return [each for part in parts if part is not None for each in await part.metric_families()]

        async def none() -> list[Family]:
            return []

        def addresses() -> list[str]:
            return [broker.probe_address for broker in self._brokers.values() if broker.probe_address]

        return {
            METRICS: merged_handler(metrics_handler(own), addresses, METRICS),
            EXPORTER_METRICS: merged_handler(metrics_handler(none), addresses, EXPORTER_METRICS),
        }

    async def wait_failed(self) -> None:
        """Raise when a broker has ended that is not restarted, or what name server or proxy died of."""
        assert self._namesrv is not None, "standalone is not started"
        failed = asyncio.create_task(wait_first_failed(self._namesrv, self._proxy), name="wait-parts")
        try:
            if self._keepers:
                await asyncio.wait((*self._keepers, failed), return_when=asyncio.FIRST_COMPLETED)
                for keeper in self._keepers:
                    if keeper.done():
                        keeper.result()
            else:
                await self._wait_ended(failed)
            failed.result()
        finally:
            failed.cancel()
            await asyncio.gather(failed, return_exceptions=True)

    async def _wait_ended(self, failed: asyncio.Task[None]) -> None:
        """KourouError when a broker ends."""
        ends = [broker.ended for broker in self._brokers.values()]
        await asyncio.wait((*ends, failed), return_when=asyncio.FIRST_COMPLETED)
        for broker in self._brokers.values():
            if broker.ended.done():
                end = describe_exit(broker.ended.result())
                raise KourouError(f"{broker.name} ended by itself ({end}); stopping all")

    async def address_warning(self) -> str | None:
        """Each broker checks its own address, and warns on the shared stderr."""
        return None

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
    def broker_addresses(self) -> list[str]:
        """The advertised addresses of the brokers, each master followed by its slaves."""
        return [broker.address for broker in self._brokers.values()]

    @property
    def broker_texts(self) -> list[str]:
        """The advertised addresses; with slaves, each with its role."""
        if not self._options.slaves:
            return self.broker_addresses
        roles = [config.broker_role for config in self._configs]
        return [
            f"{address} {role if address in self._masters or not self._options.failover else SLAVE}"
            for address, role in zip(self.broker_addresses, roles, strict=True)
        ]

    @property
    def _configs(self) -> list[BrokerConfig]:
        """The configurations of the brokers, as they read them."""
        return [
            broker_config(self._options, replica, self.address, self._etcd_address)[0]
            for replica in self._brokers
        ]

    @property
    def kernel_lines(self) -> list[str]:
        """Whether the brokers use the compiled kernel: one line if it is the same for all."""
        # They choose by this environment and by their own keys, as here.
        lines = [str(choose_kernel(is_enabled=config.compiled_kernel_enable)) for config in self._configs]
        if len(set(lines)) == 1:
            return lines[:1]
        return [f"{broker.name}: {line}" for broker, line in zip(self._brokers.values(), lines, strict=True)]


async def _restart_forever(child: Child, spawn: Callable[[], Awaitable[Child]]) -> None:
    loop, pauses = asyncio.get_running_loop(), RestartPauses()
    while True:
        end = describe_exit(await asyncio.shield(child.ended))
        pause_s = pauses.next_s(loop.time() - child.started_s)
        _log.error("%s ended by itself (%s); restarting it in %g s", child.name, end, pause_s)
        await asyncio.sleep(pause_s)
        try:
            child = await spawn()
        except OSError as error:  # no memory, no process left; tried again
            _log.error("%s cannot be started: %s", child.name, error.strerror or error)
            continue
        if await child.wait_booted_or_ended():
            _log.info("%s serves again at %s", child.name, child.address)
