"""BrokerController: a broker's life, in order.

start: answer health checks, where they are asked for; open the store, which recovers it; load the
tables; listen; register with the name servers; begin what repeats. stop: unregister, answer what is under
way, write everything, close the store. What the parts do is in their own files.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kourou.broker.admission import Admission, AdmissionCheck
from kourou.broker.clock_watch import ClockWatch
from kourou.broker.connection_state import ConnectionState
from kourou.broker.delay.delay_offsets import DelayOffsetManager
from kourou.broker.delay.delayed_delivery import DelayedDelivery
from kourou.broker.groups.consumer_ids_notifier import ConsumerIdsNotifier
from kourou.broker.groups.consumers import ConsumerManager
from kourou.broker.groups.producers import ProducerManager
from kourou.broker.groups.rebalance_lock import RebalanceLockManager
from kourou.broker.hooks import BrokerHooks
from kourou.broker.processors import broker_processors
from kourou.broker.pull.long_polling import Pull, PullRequestHoldService
from kourou.broker.pull.pull_message_processor import PullMessageProcessor
from kourou.broker.registration.out_api import BrokerIdentity, BrokerOuterApi
from kourou.broker.registration.registration import Registration
from kourou.broker.send.send_message_processor import SendMessageProcessor
from kourou.broker.services import BrokerServices
from kourou.broker.settings import store_config, store_host, store_root
from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.store_stats import StoreStats
from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.flush_service import FlushService
from kourou.broker.storage.retention_service import RetentionService
from kourou.broker.tables.config_writer import ConfigWriter
from kourou.broker.tables.offsets import ConsumerOffsetManager
from kourou.broker.tables.orphan_queues import adopt_orphans
from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
from kourou.broker.tables.topics import TopicConfigManager
from kourou.broker.transactions import end_transaction_processor
from kourou.broker.transactions.transaction_check import TransactionCheck
from kourou.broker.transactions.transaction_recovery import recover as recover_transactions
from kourou.broker.transactions.transactions import Transactions
from kourou.clock import Clock
from kourou.config.broker import SLAVE, BrokerConfig
from kourou.config.store_without_effect import NO_SLAVES
from kourou.errors import ConfigError
from kourou.store.config_file import JsonConfigFile
from kourou.store.disk.files import Files
from kourou.store.kernel import KernelChoice, choose_kernel
from kourou.store.log.file_preparer import FilePreparer
from kourou.store.message_store import MessageStore
from kourou.store.settings import FlushDiskType
from kourou.store.steps import run_steps
from kourou.transport.addresses import join_address
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.cycles import Cycles
from kourou.transport.from_config import client_settings, server_settings, start_probes
from kourou.transport.server import RemotingServer
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.transport.http_probe import HttpProbes

_log = logging.getLogger(__name__)

_SCAN_CLIENTS_S: Final = 10.0
_CHECK_HOLDS_S: Final = 5.0
_NOTIFY_HELD_S: Final = 15.0
_TICK_S: Final = 1.0
_DRAIN_LOOK_S: Final = 0.002
_NO_LIMIT_S: Final = 3600.0
_SLOW_OPEN_S: Final = 2.0


class BrokerController:
    """One broker. Create it anywhere, `start` and `stop` it once, on the same loop; or use `async with`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        hooks: BrokerHooks | None = None,
        checks: Iterable[AdmissionCheck] = (),
    ) -> None:
        self._config = config
        self._files = files or Files()
        self._clock = clock or Clock()
        self._hooks = hooks or BrokerHooks()
        self._checks = tuple(checks)
        self._kernel = choose_kernel(is_enabled=config.compiled_kernel_enable)
        self._services: BrokerServices | None = None
        self._server: RemotingServer | None = None
        self._client: RemotingClient | None = None
        self._out_api: BrokerOuterApi | None = None
        self._flush: FlushService | None = None
        self._preparer: FilePreparer | None = None
        self._retention: RetentionService | None = None
        self._delays: DelayedDelivery | None = None
        self._notifier = ConsumerIdsNotifier(self._current_config)
        self._probes: HttpProbes | None = None
        self._is_serving = False
        self._stopping: asyncio.Future[None] | None = None

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """On return the broker serves, and every name server that answers knows it.

        StoreLockedError, StoreFormatError, StorageError: the store cannot be opened. ConfigError: the
        port cannot be had, a file cannot be read, or the broker is to be a slave.
        """
        if self._config.is_slave:
            raise ConfigError(f"brokerRole={SLAVE}: {NO_SLAVES}")
        if self._config.listen_port == 0:
            self._config = replace(self._config, listen_port=_free_port(self._config.bind_address))
        # Before anything that may take long: who asks meanwhile is told that it is not ready.
        self._probes = await start_probes(self._config, self.why_not_ready)
        try:
            await self._start()
        except BaseException:
            await self._stop_probes()
            raise
        self._is_serving = True

    async def _stop_probes(self) -> None:
        if self._probes is not None:
            await self._probes.stop()

    async def _start(self) -> None:
        if self._kernel.is_fault:
            _log.warning("%s", self._kernel)
        self._disk = DiskThreads()
        try:
            store = await self._opened_store()
        except BaseException:
            self._disk.stop()
            raise
        try:
            await self._serve(store)
        except BaseException:
            if self._services is None:
                store.abandon()
                self._disk.stop()
            await self.stop()
            raise

    async def _opened_store(self) -> MessageStore:
        opening = asyncio.ensure_future(self._disk.run(self._open_store))
        slow = asyncio.get_running_loop().call_later(_SLOW_OPEN_S, self._say_slow_open)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Recovery cannot be stopped half-way; what it has done so far is kept.
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().close()
            raise
        finally:
            slow.cancel()

    def _say_slow_open(self) -> None:
        # A warning, so that whoever waits at the terminal hears it too.
        _log.warning(
            "the store %s is still being opened: after a sudden stop it is recovered first; "
            "clients can connect when that is done",
            self._config.store_path_root_dir,
        )

    def _open_store(self) -> MessageStore:
        config = store_config(self._config, store_host(self._config))
        return MessageStore.open(config, self._files, self._clock.wall_ms, self._kernel.kernel)

    async def _serve(self, store: MessageStore) -> None:
        registration = Registration(self._clock)
        services = self._services = self._make_services(store, registration)
        await services.in_disk_thread(self._load_tables)
        adopt_orphans(store.queues, services.topics)
        self._transactions = Transactions(services)
        # First of all that may store something: what a killed broker left undone comes right behind it.
        await services.in_disk_thread(recover_transactions, services, self._transactions)
        self._delays = DelayedDelivery(services)
        await services.in_disk_thread(self._delays.recover)
        self._flush = FlushService(services)
        self._preparer = FilePreparer(store.log)
        self._retention = RetentionService(services)
        self._pulls = PullMessageProcessor(services)
        sends = SendMessageProcessor(services, self._transactions.recent)
        processors = {
            **broker_processors(services, self._retention),
            **sends.processors(),
            **self._pulls.processors(),
            **end_transaction_processor.processors(services, self._transactions),
        }
        self._server = RemotingServer(
            processors,
            server_settings(self._config),
            on_close=self._closed,
            cycles=services.cycles,
            bulk=sends.bulk_handler(self._kernel.kernel),
            checks=services.admission.request_checks,
            new_state=ConnectionState,
        )
        await self._server.start()
        self._client = RemotingClient(client_settings(self._config, self._config.connect_timeout_millis))
        self._out_api = BrokerOuterApi(
            self._client, self._identity(), lambda: services.config, registration.soon
        )
        self._start_timers(services)
        await registration.begin(services, self._out_api)
        _log.info(
            "broker %s of cluster %s serves at %s, store %s, %s",
            self._config.broker_name,
            self._config.broker_cluster_name,
            services.address,
            store.config.root,
            self._kernel,
        )

    def _make_services(self, store: MessageStore, registration: Registration) -> BrokerServices:
        config, clock = self._config, self._clock
        now_ms = clock.wall_ms
        folder = store_root(config) / "config"
        tasks = TaskOwner("broker")
        topics = TopicConfigManager(
            self._table_file(folder, "topics.json"), self._current_config, now_ms, registration.soon
        )
        groups = SubscriptionGroupManager(
            self._table_file(folder, "subscriptionGroup.json"), self._current_config, now_ms
        )
        stats = BrokerStatsManager(
            config.broker_cluster_name, clock.monotonic_ms(), topics.is_system, wall_ms=now_ms()
        )
        commit_cycle = CommitCycle(
            store,
            sync_flush_timeout_ms=config.sync_flush_timeout,
            waits_for_flush=store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            count_failed=stats.put_failed,
            monotonic_ms=clock.monotonic_ms,
        )
        address = join_address(config.broker_ip1, config.listen_port)
        admission = Admission(
            config=self._current_config,
            address=address,
            now_ms=now_ms,
            topics=topics,
            groups=groups,
            backlog=commit_cycle,
            before_send=self._hooks.before_send,
            checks=self._checks,
        )
        cycles = Cycles(begin=commit_cycle.begin, end=commit_cycle.end, after=self._passed, failed=tasks.fail)
        holds = PullRequestHoldService(store.queues.find, cycles.open, self._resume)
        store.dispatcher.on_publish.append(StoreStats(stats, now_ms).published)
        store.dispatcher.on_arrival.append(holds.arrived)
        return BrokerServices(
            config=config,
            files=self._files,
            store=store,
            cycles=cycles,
            commit_cycle=commit_cycle,
            topics=topics,
            groups=groups,
            admission=admission,
            offsets=ConsumerOffsetManager(
                self._table_file(folder, "consumerOffset.json"), self._current_config, now_ms
            ),
            producers=ProducerManager(),
            consumers=ConsumerManager(clock.monotonic_ms, self._notifier),
            locks=RebalanceLockManager(clock.monotonic_ms),
            stats=stats,
            holds=holds,
            delay_offsets=DelayOffsetManager(
                self._files, store.config.root, self._current_config, now_ms, lambda: store.log.max_phy_offset
            ),
            timers=None,
            disk=self._disk,
            tasks=tasks,
            requests=TaskOwner("broker-requests", parent=tasks),
            store_work=asyncio.Lock(),
            now_ms=now_ms,
            monotonic_ms=clock.monotonic_ms,
            clock_watch=ClockWatch(
                clock, lambda: store.log.max_phy_offset, store.checkpoint.physic_msg_timestamp
            ),
            start_ms=now_ms(),
            address=address,
            store_host=store.config.store_host,
            register_soon=registration.soon,
            update_config=self._update_config,
            kernel=self._kernel,
            hooks=self._hooks,
        )

    def _table_file(self, folder: Path, name: str) -> JsonConfigFile:
        return JsonConfigFile(self._files, folder / name)

    def _load_tables(self) -> None:
        services = self.services
        for table in (services.topics, services.groups, services.offsets, services.delay_offsets):
            table.load()

    def _identity(self) -> BrokerIdentity:
        config = self._config
        return BrokerIdentity(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            broker_addr=self.services.address,
            ha_server_addr=join_address(config.broker_ip2, config.ha_listen_port or self.port + 1),
        )

    def _start_timers(self, services: BrokerServices) -> None:
        assert self._flush is not None and self._retention is not None and self._delays is not None
        self._flush.start()
        self._retention.start()
        self._delays.start()
        TransactionCheck(services, self._transactions).start()
        self._writer = ConfigWriter(services)
        self._writer.start()
        services.start_task(_every(_CHECK_HOLDS_S, services.holds.check), "check-held-pulls")
        services.start_task(_every(_NOTIFY_HELD_S, self._notifier.send_held), "notify-members")
        services.start_task(_every(_SCAN_CLIENTS_S, self._scan_clients), "scan-clients")
        services.start_task(_every(_TICK_S, self._tick), "statistics")

    # -- running ---------------------------------------------------------------------------------

    def _passed(self) -> None:
        if self._preparer is not None and not self.services.store.appender.is_fenced:
            self._preparer.request_nowait()

    def _resume(self, pull: Pull) -> None:
        self._pulls.resume(pull)

    def _closed(self, connection: Connection) -> None:
        services = self.services
        services.producers.connection_closed(connection)
        if self._stopping is None:
            services.consumers.connection_closed(connection)

    def _tick(self) -> None:
        self.services.clock_watch.look()
        self.services.stats.tick(self._clock.monotonic_ms(), wall_ms=self._clock.wall_ms())

    def _scan_clients(self) -> None:
        services = self.services
        services.cycles.open()
        expired_ms, now_ms = services.config.channel_expired_timeout, self._clock.monotonic_ms()
        services.producers.scan(now_ms, expired_ms)
        services.consumers.scan(now_ms, expired_ms)

    def _current_config(self) -> BrokerConfig:
        return self._services.config if self._services is not None else self._config

    def _update_config(self, properties: Mapping[str, str]) -> None:
        services = self.services
        before = services.config
        config = before.updated(properties)
        config.persist(properties)
        services.config = config
        services.admission.invalidate()
        services.store.appender.max_message_bytes = config.max_message_size
        services.commit_cycle.waits_for_flush = config.flush_disk_type == FlushDiskType.SYNC_FLUSH.value
        services.commit_cycle.sync_flush_timeout_ms = config.sync_flush_timeout
        if services.config.broker_permission != before.broker_permission:
            services.register_soon(None)
        if services.config.namesrv_addr != before.namesrv_addr and self._out_api is not None:
            services.start_task(self._out_api.namesrvs.refresh(), "name-servers-changed")

    async def wait_failed(self) -> None:
        """Raise what a part of the broker died of; return when the broker has stopped."""
        assert self._server is not None, "the broker is not started"
        waits = [
            asyncio.ensure_future(self.services.tasks.wait_failed()),
            asyncio.ensure_future(self._server.wait_failed()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self, timeout_ms: int = 5_000) -> None:
        """Stop in order: no new clients, answers to what is under way, everything on disk. Whoever
        calls it, and however often, returns when that is done."""
        if self._services is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(self._services, timeout_ms))
        await asyncio.shield(self._stopping)

    async def _stop(self, services: BrokerServices, timeout_ms: int) -> None:
        try:
            await self._stop_serving(services, timeout_ms)
        finally:
            if self._flush is not None:
                self._flush.stop()
                await asyncio.sleep(0)  # what its thread has left for the loop
            if self._preparer is not None:
                self._preparer.stop()
            try:
                await services.in_disk_thread(self._close_store)
            finally:
                self._disk.stop()
                await self._stop_probes()
        _log.info("broker %s has stopped", self._config.broker_name)

    async def _stop_serving(self, services: BrokerServices, timeout_ms: int) -> None:
        if self._out_api is not None:
            await self._out_api.unregister_all()
        if self._server is not None:
            await self._server.stop(timeout_ms, self._drain)
        await services.requests.stop()
        await services.tasks.stop()
        if self._client is not None:
            await self._client.stop()
        services.cycles.close()

    async def _drain(self) -> None:
        """Answer the pulls that wait for messages, and the senders that wait for the disk."""
        services = self.services
        services.holds.wake_all()
        await services.requests.wait_idle(_NO_LIMIT_S)
        services.cycles.close()
        while services.commit_cycle.is_waiting:  # noqa: ASYNC110 (the store knows no events)
            await asyncio.sleep(_DRAIN_LOOK_S)

    def _close_store(self) -> None:
        # Before anything is written by name: the store's folder may have become another one.
        run_steps(self.services.store.watch.look_steps())
        ConfigWriter(self.services).write_all()
        if self._delays is not None:
            self._delays.save_at_stop()
        self.services.store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- looking in ------------------------------------------------------------------------------

    @property
    def services(self) -> BrokerServices:
        """The parts, for those who embed a broker and look inside."""
        assert self._services is not None, "the broker is not started"
        return self._services

    @property
    def admission(self) -> Admission:
        """The gate for requests: checks may be added and removed while the broker runs."""
        return self.services.admission

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it is now."""
        return self._current_config()

    @property
    def port(self) -> int:
        """The port listened on, also when 0 was asked for."""
        return self._config.listen_port

    @property
    def address(self) -> str:
        """`host:port` that clients are told."""
        return self.services.address

    @property
    def kernel(self) -> KernelChoice:
        """Whether it uses the compiled kernel."""
        return self._kernel

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._probes is None else self._probes.address

    async def why_not_ready(self) -> str | None:
        """Why clients cannot send to this broker now, in one line; None: they can (readiness.py)."""
        if self._stopping is not None:
            return "the broker is stopping"
        if not self._is_serving or self._out_api is None:
            return "the broker is starting: its store is opened, and recovered where it was not closed"
        from kourou.broker.readiness import why_not_ready

        return await why_not_ready(self.services, self._out_api)


async def _every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        work()


def _free_port(host: str) -> int:
    """A port that nobody listens on. Records and ids carry it: it has to be known before the store opens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise ConfigError(f"bindAddress={host}: cannot listen there: {error.strerror}") from error
        port: int = probe.getsockname()[1]
        return port
