"""RunningBroker: the parts of a broker around its open store, in the order in which they start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kourou.broker.admin.part import AdminPart
from kourou.broker.admission import Admission, AdmissionCheck
from kourou.broker.clock_watch import ClockWatch
from kourou.broker.delay.delay_offsets import DelayOffsetManager
from kourou.broker.delay.delayed_delivery import DelayedDelivery
from kourou.broker.groups.client_manage_processor import ClientManageProcessor
from kourou.broker.groups.consumer_call_processor import ConsumerCallProcessor
from kourou.broker.groups.consumer_manage_processor import ConsumerManageProcessor
from kourou.broker.groups.consumers import ConsumerIdsNotifier, ConsumerManager
from kourou.broker.groups.part import GroupsPart
from kourou.broker.groups.producers import ProducerManager
from kourou.broker.groups.rebalance_lock import RebalanceLockManager
from kourou.broker.hooks import BrokerHooks
from kourou.broker.part import BrokerPart
from kourou.broker.pull.long_polling import PullRequestHoldService
from kourou.broker.pull.part import PullPart
from kourou.broker.pull.pull_message_processor import PullMessageProcessor
from kourou.broker.pull.pull_targets import PullTargets
from kourou.broker.pull.query_message_processor import QueryMessageProcessor
from kourou.broker.registration.part import OutboundPart, RegistrationPart
from kourou.broker.registration.registration import Registration
from kourou.broker.replication.master_part import MasterPart
from kourou.broker.replication.slave_part import SlavePart
from kourou.broker.send.part import SendPart
from kourou.broker.services import BrokerServices
from kourou.broker.serving import ServingPart
from kourou.broker.settings import LiveConfig, store_root
from kourou.broker.stats.broker_stats import BrokerStatsManager
from kourou.broker.stats.part import StatsPart, StoreStats
from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.flush_service import FlushService
from kourou.broker.storage.part import StoragePart, UpkeepPart
from kourou.broker.storage.record_reads import RecordReader
from kourou.broker.storage.retention_service import RetentionService
from kourou.broker.tables.config_writer import ConfigWriter
from kourou.broker.tables.group_processor import GroupProcessor
from kourou.broker.tables.offset_processor import OffsetProcessor
from kourou.broker.tables.offsets import ConsumerOffsetManager
from kourou.broker.tables.part import TablesPart
from kourou.broker.tables.reset_offset import ResetOffsetProcessor
from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
from kourou.broker.tables.topic_processor import TopicProcessor
from kourou.broker.tables.topics import TopicConfigManager
from kourou.broker.transactions.part import TransactionsPart
from kourou.broker.transactions.transactions import Transactions
from kourou.clock import Clock
from kourou.config.broker import BrokerConfig
from kourou.store.config_file import JsonConfigFile
from kourou.store.disk.files import Files
from kourou.store.kernel import KernelChoice
from kourou.store.log.file_preparer import FilePreparer
from kourou.store.message_store import MessageStore
from kourou.store.replica.epochs import EpochFile
from kourou.store.settings import FlushDiskType
from kourou.transport.addresses import join_address
from kourou.transport.client import RemotingClient
from kourou.transport.cycles import Cycles
from kourou.transport.from_config import client_settings
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSetup:
    """What a broker is made of beside its store."""

    config: BrokerConfig
    files: Files
    clock: Clock
    hooks: BrokerHooks
    checks: Iterable[AdmissionCheck]
    kernel: KernelChoice


class RunningBroker:
    """A broker whose store is open; `disk` is its own from here on. Create it on the running loop."""

    def __init__(self, setup: BrokerSetup, store: MessageStore, disk: DiskThreads) -> None:
        registration = Registration(setup.clock, lambda ha, remoting: self._master_found(ha, remoting))

        def after_cycle() -> None:
            if not store.appender.is_fenced:
                preparer.request_nowait()

        tasks = TaskOwner("broker")
        requests = TaskOwner("broker-requests", parent=tasks)
        live_config = LiveConfig(setup.config)
        notifier = ConsumerIdsNotifier(live_config.get)
        clock, config, now_ms = setup.clock, setup.config, setup.clock.wall_ms
        topics = TopicConfigManager(
            _table_file(setup, "topics.json"), live_config.get, now_ms, registration.soon
        )
        groups = SubscriptionGroupManager(
            _table_file(setup, "subscriptionGroup.json"), live_config.get, now_ms
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
        cycles = Cycles(begin=commit_cycle.begin, end=commit_cycle.end, after=after_cycle, failed=tasks.fail)
        address = join_address(config.broker_ip1, config.listen_port)
        admission = Admission(
            config=live_config.get,
            address=address,
            now_ms=now_ms,
            topics=topics,
            groups=groups,
            backlog=commit_cycle,
            before_send=setup.hooks.before_send,
            checks=setup.checks,
        )
        holds = PullRequestHoldService(store.queues.find, cycles.open, lambda pull: pulls.resume(pull))
        store.dispatcher.on_publish.append(StoreStats(stats, now_ms).published)
        store.dispatcher.on_arrival.append(holds.arrived)
        services = self.services = BrokerServices(
            live_config=live_config,
            files=setup.files,
            store=store,
            cycles=cycles,
            commit_cycle=commit_cycle,
            admission=admission,
            topics=topics,
            groups=groups,
            offsets=ConsumerOffsetManager(_table_file(setup, "consumerOffset.json"), live_config.get, now_ms),
            producers=ProducerManager(),
            consumers=ConsumerManager(clock.monotonic_ms, notifier),
            locks=RebalanceLockManager(clock.monotonic_ms),
            stats=stats,
            holds=holds,
            delay_offsets=DelayOffsetManager(
                setup.files,
                store.config.root,
                live_config.get,
                now_ms,
                lambda: store.log.max_phy_offset,
            ),
            timers=None,
            disk=disk,
            records=RecordReader(store.log, disk, requests),
            tasks=tasks,
            requests=requests,
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
            update_config=self.update_config,
            kernel=setup.kernel,
            hooks=setup.hooks,
        )
        transactions = Transactions(services)
        pulls = PullMessageProcessor(
            config=live_config,
            store=store,
            offsets=services.offsets,
            stats=stats,
            holds=holds,
            disk=disk,
            requests=requests,
            address=address,
            hooks=setup.hooks,
            targets=PullTargets(
                config=live_config,
                admission=admission,
                topics=topics,
                groups=groups,
                consumers=services.consumers,
            ),
        )
        retention = RetentionService(services)
        sends = SendPart(services, transactions.recent, setup.kernel.kernel)
        handlers: tuple[BrokerPart, ...] = (
            self._tables_part(services),
            TransactionsPart(services, transactions),
            DelayedDelivery(services),
            self._groups_part(services, notifier),
            StatsPart(services),
            PullPart(
                holds,
                (
                    pulls,
                    QueryMessageProcessor(
                        config=live_config,
                        store=store,
                        disk=disk,
                        requests=requests,
                        records=services.records,
                    ),
                ),
            ),
            sends,
            AdminPart(services, retention),
        )
        client = RemotingClient(client_settings(config, config.connect_timeout_millis))
        epochs = EpochFile(setup.files, store.config.root)
        self.replication = MasterPart(
            config=live_config,
            log=store.log,
            epochs=epochs,
            disk=disk,
            cycles=cycles,
            commit_cycle=commit_cycle,
            tasks=tasks,
        )
        replication: list[BrokerPart] = [self.replication]
        self._master_found: Callable[[str | None, str | None], None] = lambda ha, remoting: None
        if config.is_slave:
            slave = SlavePart(
                config=live_config,
                store=store,
                epochs=epochs,
                cycles=cycles,
                client=client,
                topics=topics,
                groups=groups,
                offsets=services.offsets,
                delay_offsets=services.delay_offsets,
                admission=admission,
                disk=disk,
                store_work=services.store_work,
                register_soon=registration.soon,
                tasks=tasks,
                now_ms=now_ms,
                address=address,
            )
            self._master_found = slave.master_found
            replication.append(slave)
        handlers = (*handlers, *replication)
        self.serving = ServingPart(services, handlers, sends.bulk_handler)
        self.registration = RegistrationPart(services, registration, client)
        # These have threads, so they are made when nothing can fail any more.
        preparer = FilePreparer(store.log)
        flush = FlushService(
            config=live_config,
            store=store,
            cycles=cycles,
            commit_cycle=commit_cycle,
            disk=disk,
            tasks=tasks,
            store_work=services.store_work,
            monotonic_ms=clock.monotonic_ms,
        )
        self.parts: tuple[BrokerPart, ...] = (
            StoragePart(store, disk, commit_cycle),
            *handlers,
            UpkeepPart(store=store, disk=disk, flush=flush, retention=retention, preparer=preparer),
            OutboundPart(client),
            self.serving,
            self.registration,
        )

    @staticmethod
    def _tables_part(services: BrokerServices) -> TablesPart:
        config, store, disk = services.live_config, services.store, services.disk
        topics, groups, offsets = services.topics, services.groups, services.offsets
        return TablesPart(
            store=store,
            disk=disk,
            topics=topics,
            tables=(topics, groups, offsets, services.delay_offsets),
            writer=ConfigWriter(
                config=config,
                store=store,
                topics=topics,
                groups=groups,
                offsets=offsets,
                disk=disk,
                store_work=services.store_work,
            ),
            handlers=(
                TopicProcessor(
                    config=config,
                    store=store,
                    topics=topics,
                    offsets=offsets,
                    stats=services.stats,
                    disk=disk,
                    requests=services.requests,
                    store_work=services.store_work,
                ),
                GroupProcessor(config=config, groups=groups, offsets=offsets, stats=services.stats),
                OffsetProcessor(
                    store=store,
                    topics=topics,
                    offsets=offsets,
                    consumers=services.consumers,
                    delay_offsets=services.delay_offsets,
                    records=services.records,
                ),
                ResetOffsetProcessor(
                    config=config,
                    store=store,
                    admission=services.admission,
                    topics=topics,
                    groups=groups,
                    offsets=offsets,
                    consumers=services.consumers,
                    holds=services.holds,
                    requests=services.requests,
                    records=services.records,
                ),
            ),
        )

    @staticmethod
    def _groups_part(services: BrokerServices, notifier: ConsumerIdsNotifier) -> GroupsPart:
        config, topics, groups = services.live_config, services.topics, services.groups
        producers, consumers = services.producers, services.consumers
        return GroupsPart(
            config=config,
            cycles=services.cycles,
            producers=producers,
            consumers=consumers,
            locks=services.locks,
            notifier=notifier,
            monotonic_ms=services.monotonic_ms,
            handlers=(
                ClientManageProcessor(
                    config=config,
                    topics=topics,
                    groups=groups,
                    producers=producers,
                    consumers=consumers,
                    monotonic_ms=services.monotonic_ms,
                ),
                ConsumerManageProcessor(
                    config=config,
                    store=services.store,
                    topics=topics,
                    groups=groups,
                    offsets=services.offsets,
                    consumers=consumers,
                ),
                ConsumerCallProcessor(
                    config=config,
                    topics=topics,
                    groups=groups,
                    consumers=consumers,
                    requests=services.requests,
                    records=services.records,
                ),
            ),
        )

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
            asyncio.ensure_future(self.serving.wait_failed()),
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


def _table_file(setup: BrokerSetup, name: str) -> JsonConfigFile:
    folder: Path = store_root(setup.config) / "config"
    return JsonConfigFile(setup.files, folder / name)
