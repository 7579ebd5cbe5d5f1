"""RunningBroker: the parts of a broker around its open store, in the order in which they start. And its port,
the part in which the requests of all others come in, and are answered before it stops.

Not here: what each part is made of (wiring.py, send_wiring.py, pop_wiring.py), what they share (services.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from kourou.access.inner_keys import has_access_control, inner_keys, own_account
from kourou.broker import pop_wiring, send_wiring, wiring
from kourou.broker.connection_state import ConnectionState
from kourou.broker.fast_paths import FastPaths
from kourou.broker.filters.part import FiltersPart
from kourou.broker.part import BrokerPart, HandlersPart, processors_of
from kourou.broker.pop.assignment_processor import RequestModeFollower
from kourou.broker.registration.out_api import BrokerOuterApi
from kourou.broker.registration.registration import OutboundPart, Registration, RegistrationPart, identity_of
from kourou.broker.services import BrokerServices, BrokerSetup
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.flush_service import FlushService
from kourou.broker.storage.part import StoragePart, UpkeepPart, open_store
from kourou.errors import ConfigError
from kourou.protocol.signature import SigningKeys
from kourou.store.log.file_preparer import FilePreparer
from kourou.store.message_store import MessageStore
from kourou.store.replica.epochs import EpochFile
from kourou.transport.addresses import SocketName
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.from_config import client_settings, server_settings
from kourou.transport.request import RequestMeter
from kourou.transport.server import RemotingServer
from kourou.transport.settings import ClientAuth
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.access.gate import AccessGate
    from kourou.broker.admission import Admission
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.metrics.broker_metrics import BrokerMetrics
    from kourou.broker.pop.pop_polling import PopPolling
    from kourou.broker.pull.cold_pulls import ColdReadThrottle
    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.replication.slave_part import SlavePart
    from kourou.broker.storage.commit_cycle import CommitCycle
    from kourou.config.broker import BrokerConfig
    from kourou.transport.cycles import Cycles

_DRAIN_LOOK_S: Final = 0.002
_NO_LIMIT_S: Final = 3600.0
_log = logging.getLogger(__name__)


class ServingPart(BrokerPart):
    """Serves what `parts` handle, and owns the tasks that run meanwhile."""

    def __init__(
        self,
        parts: Sequence[BrokerPart],
        *,
        config: BrokerConfig,
        admission: Admission,
        bulk_handler: FastPaths | None,
        producers: ProducerManager,
        consumers: ConsumerManager,
        holds: PullRequestHoldService,
        pollings: Sequence[PopPolling],
        cycles: Cycles,
        commit_cycle: CommitCycle,
        cold_reads: ColdReadThrottle,
        tasks: TaskOwner,
        requests: TaskOwner,
        meter: RequestMeter | None,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._holds = holds
        self._pollings = pollings
        self._cycles = cycles
        self._commit_cycle = commit_cycle
        self._cold_reads = cold_reads
        self._fast_paths = bulk_handler
        self._tasks = tasks
        self._requests = requests
        self._is_stopping = False
        self._fast_port = 0 if config.is_slave else config.fast_listen_port
        fast_auth = config.tls_server_need_client_auth_fast
        self._fast_client_auth = None if fast_auth is None else ClientAuth(fast_auth)
        self._server = RemotingServer(
            processors_of(parts),
            server_settings(config),
            on_close=self._closed,
            cycles=cycles,
            bulk=bulk_handler,
            checks=admission.request_checks,
            new_state=ConnectionState,
            meter=meter,
        )

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._server.connections)

    def connect_local(self, client: asyncio.Protocol, client_name: SocketName) -> None:
        """Connect a client of this process, whose address is `client_name`."""
        self._server.connect_local(client, client_name)

    async def start(self, tasks: TaskOwner) -> None:
        await self._server.start()
        await self._serve_slaves_of_apache()

    async def _serve_slaves_of_apache(self) -> None:
        """Listen on RocketMQ's second port. If it is taken, only slaves of Apache's are affected."""
        if not self._fast_port:
            return
        try:
            await self._server.listen_also(self._fast_port, self._fast_client_auth)
        except ConfigError as error:
            _log.warning("slaves of Apache's get no topics from this broker (fastListenPort): %s", error)

    async def wait_failed(self) -> None:
        """Raise what a task of the server died of; return when it has stopped."""
        await self._server.wait_failed()

    def _closed(self, connection: Connection) -> None:
        self._producers.connection_closed(connection)
        for polling in self._pollings:
            polling.connection_closed(connection)
        if not self._is_stopping:  # the members of a broker that stops notice by themselves
            self._consumers.connection_closed(connection)

    async def stop(self, timeout_ms: int) -> None:
        self._is_stopping = True
        await self._server.stop(timeout_ms, self._drain)
        if self._fast_paths is not None:
            await self._fast_paths.pulls.stop()
        await self._requests.stop()
        await self._tasks.stop()
        self._cycles.close()

    async def _drain(self) -> None:
        """Answer pulls and pops that wait for messages or for time, and sends that wait for the disk."""
        self._holds.wake_all()
        for polling in self._pollings:
            polling.stop()
        self._cold_reads.hurry()
        if self._fast_paths is not None:
            await self._fast_paths.pulls.wait_idle()
        await self._requests.wait_idle(_NO_LIMIT_S)
        self._cycles.close()
        while self._commit_cycle.is_waiting:  # noqa: ASYNC110 (the store knows no events)
            await asyncio.sleep(_DRAIN_LOOK_S)


class RunningBroker:
    """A broker whose store is open; `disk` is its own from here on. Create it on the running loop."""

    def __init__(self, setup: BrokerSetup, store: MessageStore, disk: DiskThreads) -> None:
        def after_cycle() -> None:
            if store.log.prepared is None and not store.appender.is_fenced:
                preparer.request_nowait()

        services = self.services = BrokerServices.make(
            setup, store, disk, after_cycle=after_cycle, update_config=self.update_config
        )
        config = setup.config
        transactions = wiring.transactions(services)
        journal = send_wiring.atomic_journal(services)
        retention = wiring.retention(services, journal)
        kernel = setup.kernel.kernel
        sends, fast_sends = send_wiring.sends(services, transactions.recent, kernel)
        fast_paths = wiring.fast_paths(services, fast_sends, kernel)
        keys, own = inner_keys(config), None
        if keys is None and has_access_control(config):
            own = own_account()
            keys = SigningKeys(own.name, own.secret_key)
        self.own_keys = keys
        access = wiring.access_part(services, own)
        self._access = access
        delayed = wiring.delayed_delivery(services)
        orders = pop_wiring.order_part(services)
        self.in_flight = pop_wiring.in_flight_part(services, delayed.timer_service, orders.service)
        overflow = wiring.overflow_part(services)
        self.pops = pop_wiring.delivery(services, self.in_flight.in_flight, orders.service)
        handlers: tuple[BrokerPart, ...] = (
            *access,
            wiring.tables_part(services),
            overflow,
            wiring.transactions_part(services, transactions),
            delayed,
            FiltersPart(services.plugins),
            wiring.groups_part(services),
            wiring.stats_part(services),
            wiring.pull_part(services),
            orders,
            self.in_flight,
            self.pops.part,
            sends,
            send_wiring.producers_part(services),
            HandlersPart(wiring.config_processor(services, retention), *setup.handlers),
        )
        client = RemotingClient(
            client_settings(config, config.connect_timeout_millis),
            keys=keys,
            signs_for=None if own is None else services.address,
        )
        epochs = EpochFile(setup.files, store.config.root)
        membership = setup.membership
        self.master = master = wiring.master_part(services, epochs, membership)
        handlers = (*handlers, master)
        master_found: Callable[[str | None, str | None], None] | None = None
        self.slave: SlavePart | None = None
        if config.is_slave:
            also_follow = (
                *wiring.followed_access(access, client),
                orders.follow,
                RequestModeFollower(services.request_modes, client).follow,
            )
            self.slave = slave = wiring.slave_part(services, epochs, client, membership, also_follow)
            handlers = (*handlers, slave)
            # The master of a fail-over set is found in etcd.
            master_found = slave.master_found if membership is None else None
        out_api = self._out_api = BrokerOuterApi(
            client,
            identity_of(config, services.address),
            services.live_config.get,
            services.changed.soon,
        )
        handlers = (
            *handlers,
            send_wiring.atomic_part(services, journal, client, out_api),
            pop_wiring.assignment_part(services, client, out_api),
        )
        self.metrics: BrokerMetrics | None = None
        if setup.measures:
            from kourou.broker.metrics_wiring import make_metrics  # rarely used, and a start should be fast

            self.metrics = make_metrics(
                services,
                journal,
                overflow.service,
                self.in_flight.in_flight,
                transactions,
                master.server,
                fast_paths,
                self.pops.service,
                lambda: self._serving.connection_count,
            )
        self._serving = ServingPart(
            handlers,
            config=config,
            admission=services.admission,
            bulk_handler=fast_paths,
            producers=services.producers,
            consumers=services.consumers,
            holds=services.holds,
            pollings=(services.pop_polling, services.notice_polling),
            cycles=services.cycles,
            commit_cycle=services.commit_cycle,
            cold_reads=services.cold_reads,
            tasks=services.tasks,
            requests=services.requests,
            meter=None if self.metrics is None else self.metrics.meter,
        )
        registration = Registration(
            config=services.live_config,
            clock=services.clock,
            topics=services.topics,
            out_api=out_api,
            changed=services.changed,
            master_found=master_found,
            reign=membership.reign if membership else None,
        )
        # These have threads, so they are made when nothing can fail any more.
        preparer = FilePreparer(store.log)
        flush = FlushService(
            config=services.live_config,
            store=store,
            log=store.log,
            log_watch=store.watch,
            cycles=services.cycles,
            commit_cycle=services.commit_cycle,
            disk=disk,
            tasks=services.tasks,
            store_work=services.store_work,
            monotonic_ms=services.monotonic_ms,
        )
        self.parts: tuple[BrokerPart, ...] = (
            StoragePart(store, store.appender, disk, services.commit_cycle),
            *handlers,
            UpkeepPart(log_watch=store.watch, disk=disk, flush=flush, retention=retention, preparer=preparer),
            OutboundPart(client),
            self._serving,
            *_metrics_part(self.metrics),
            RegistrationPart(registration, out_api, services.changed, services.tasks),
        )

    @classmethod
    async def open(cls, setup: BrokerSetup) -> Self:
        """Open the store, recovered where it was not closed, and make the parts around it."""
        disk = DiskThreads()
        try:
            store = await open_store(setup.config, setup.files, setup.clock, setup.kernel, disk)
        except BaseException:
            disk.stop()
            raise
        try:
            return cls(setup, store, disk)
        except BaseException:
            store.abandon()
            disk.stop()
            raise

    def connect_local(self, client: asyncio.Protocol, client_name: SocketName) -> None:
        """Connect a client of this process, whose address is `client_name`."""
        self._serving.connect_local(client, client_name)

    @cached_property
    def access_gate(self) -> AccessGate | None:
        """What checks requests; None: there is no access control."""
        return wiring.gate_of(self._access)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover all parts, then start them, in order."""
        for part in self.parts:
            await self.services.disk.run(part.recover)
        for part in self.parts:
            await part.start(self.services.tasks)

    def update_config(self, properties: Mapping[str, str]) -> None:
        """Change keys while running and write them to the configuration file; ConfigError."""
        old = self.services.config
        new = old.updated(properties)
        new.persist(properties)
        self.services.live_config.current = new
        self.services.admission.invalidate()
        for part in self.parts:
            part.config_changed(old, new)

    async def wait_failed(self) -> None:
        """Raise what a part of the broker died of; return when the broker has stopped."""
        waits = [
            asyncio.ensure_future(self.services.tasks.wait_failed()),
            asyncio.ensure_future(self._serving.wait_failed()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self, timeout_ms: int) -> None:
        """Stop all parts, the last one first, also when one of them fails; the first failure is raised."""
        failures: list[BaseException] = []
        for part in reversed(self.parts):
            try:
                await part.stop(timeout_ms)
            except Exception as error:
                if failures:
                    _log.error("%s did not stop in order", type(part).__name__, exc_info=error)
                failures.append(error)
        if failures:
            raise failures[0]

    async def why_not_ready(self) -> str | None:
        """Why clients cannot send to this broker now, in one line; None: they can."""
        from kourou.broker.readiness import Readiness  # only where health checks are on

        services = self.services
        return await Readiness(
            config=services.live_config,
            admission=services.admission,
            appender=services.store.appender,
            commit_cycle=services.commit_cycle,
            writer=services.writer,
            out_api=self._out_api,
            replica_status=services.replica_status,
            now_ms=services.now_ms,
        ).why_not_ready()


def _metrics_part(metrics: BrokerMetrics | None) -> tuple[BrokerPart, ...]:
    if metrics is None:
        return ()
    from kourou.broker.metrics.part import MetricsPart

    return (MetricsPart(metrics),)
