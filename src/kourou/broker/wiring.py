"""The parts of a broker, each made of the objects that it works with; those they share come from services.py.

Used by assembly.py alone, which says in which order the parts start.
Not here: sends, idempotent producers and atomic publishes (send_wiring.py), POP (pop_wiring.py), metrics
(metrics_wiring.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kourou.access.inner_keys import has_access_control, inner_keys
from kourou.broker.access.absent import NoAuthProcessor, NoPlainAclProcessor
from kourou.broker.admin.config_processor import ConfigProcessor
from kourou.broker.admin.runtime_info import RuntimeInfo
from kourou.broker.atomic.journal import Journal
from kourou.broker.delay.delayed_delivery import DelayedDelivery
from kourou.broker.delay.deliveries import DeliveryWriter
from kourou.broker.delay.schedule_service import ScheduleService
from kourou.broker.delay.timer_processor import TimerProcessor
from kourou.broker.delay.timer_service import TimerService
from kourou.broker.fast_paths import FastPaths
from kourou.broker.groups.client_manage_processor import ClientManageProcessor
from kourou.broker.groups.consumer_call_processor import ConsumerCallProcessor
from kourou.broker.groups.consumer_manage_processor import ConsumerManageProcessor
from kourou.broker.overflow.backlog_meter import BacklogMeter, UnitReads
from kourou.broker.overflow.drops import Drops
from kourou.broker.overflow.overflow_service import OverflowService
from kourou.broker.overflow.part import OverflowPart
from kourou.broker.part import BrokerPart, HandlersPart, Periodic
from kourou.broker.pull.fast_pull_path import FastPullPath
from kourou.broker.pull.query_message_processor import QueryMessageProcessor
from kourou.broker.replication.master_part import MasterPart
from kourou.broker.replication.membership import Membership
from kourou.broker.replication.replica_proof import ReplicaProofs
from kourou.broker.replication.slave_part import SlavePart
from kourou.broker.send.fast_send_path import FastSendPath
from kourou.broker.services import BrokerServices
from kourou.broker.stats.stats_processor import StatsProcessor
from kourou.broker.storage.retention_service import RetentionService
from kourou.broker.tables.group_processor import GroupProcessor
from kourou.broker.tables.offset_processor import OffsetProcessor
from kourou.broker.tables.part import ConfigWriter, TablesPart
from kourou.broker.tables.reset_offset import ResetOffsetProcessor
from kourou.broker.tables.topic_processor import TopicProcessor
from kourou.broker.transactions.end_transaction_processor import EndTransactionProcessor
from kourou.broker.transactions.transaction_check import TransactionCheck, TransactionsPart
from kourou.broker.transactions.transactions import Transactions
from kourou.store.kernel import Kernel
from kourou.store.replica.epochs import EpochFile
from kourou.transport.client import RemotingClient

if TYPE_CHECKING:
    from kourou.access.gate import AccessGate
    from kourou.access.model import Account
    from kourou.broker.access.part import AccessPart
    from kourou.broker.replication.metadata_sync import Follow


def access_part(services: BrokerServices, own_account: Account | None) -> tuple[BrokerPart, ...]:
    """Access control, where the configuration has it; else what refuses its admin requests. `own_account`
    signs what the broker sends to itself."""
    config = services.config
    if not (config.acl_enable or config.authentication_enabled):
        return (HandlersPart(NoPlainAclProcessor(), NoAuthProcessor()),)
    # A start without it should be short.
    from kourou.broker.access.accounts import AuthAccounts, PlainAccounts
    from kourou.broker.access.part import AccessPart

    accounts = (
        PlainAccounts(
            services.live_config,
            address=services.address,
            disk=services.disk,
            requests=services.requests,
            now_ms=services.now_ms,
            on_change=services.admission.invalidate,
        )
        if config.acl_enable
        else AuthAccounts(
            config,
            disk=services.disk,
            requests=services.requests,
            now_ms=services.now_ms,
            on_change=services.admission.invalidate,
        )
    )
    part = AccessPart(
        config=config,
        accounts=accounts,
        admission=services.admission,
        own_account=own_account,
        disk=services.disk,
        now_ms=services.now_ms,
        monotonic_ms=services.monotonic_ms,
    )
    services.pulls.charge = part.gate.pulled
    return (part,)


def gate_of(access: Sequence[BrokerPart]) -> AccessGate | None:
    """What checks requests, where there is access control."""
    return next((part.gate for part in _access_parts(access)), None)


def followed_access(access: Sequence[BrokerPart], client: RemotingClient) -> list[Follow]:
    """What a slave with access control copies from its master."""
    return [follow for part in _access_parts(access) for follow in part.follow_master(client)]


def _access_parts(parts: Sequence[BrokerPart]) -> Iterator[AccessPart]:
    from kourou.broker.access.part import AccessPart  # a start should be short

    return (part for part in parts if isinstance(part, AccessPart))


def tables_part(services: BrokerServices) -> TablesPart:
    """Topics, subscription groups and consumer offsets."""
    config, store, disk = services.live_config, services.store, services.disk
    topics, groups, offsets = services.topics, services.groups, services.offsets
    progress = (offsets, services.order_table)
    return TablesPart(
        queues=store.queues,
        disk=disk,
        topics=topics,
        tables=(
            topics,
            groups,
            offsets,
            services.order_table,
            services.request_modes,
            services.delay_offsets,
        ),
        writer=ConfigWriter(
            config=config,
            log_watch=store.watch,
            metadata=(topics, groups, services.request_modes),
            progress=progress,
            disk=disk,
            store_work=services.store_work,
        ),
        handlers=(
            TopicProcessor(
                config=config,
                store=store,
                topics=topics,
                offsets=offsets,
                consumers=services.consumers,
                stats=services.stats,
                disk=disk,
                requests=services.requests,
                store_work=services.store_work,
                progress=progress,
            ),
            GroupProcessor(
                config=config,
                groups=groups,
                offsets=offsets,
                consumers=services.consumers,
                stats=services.stats,
            ),
            OffsetProcessor(
                queues=store.queues,
                lookup=store.lookup,
                topics=topics,
                offsets=offsets,
                consumers=services.consumers,
                delay_offsets=services.delay_offsets,
                records=services.records,
            ),
            ResetOffsetProcessor(
                config=config,
                queues=store.queues,
                lookup=store.lookup,
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


def groups_part(services: BrokerServices) -> HandlersPart:
    """The part of connected producers and consumers."""
    config, topics, groups = services.live_config, services.topics, services.groups
    producers, consumers = services.producers, services.consumers
    clients = ClientManageProcessor(
        config=config,
        topics=topics,
        groups=groups,
        producers=producers,
        consumers=consumers,
        cycles=services.cycles,
        plugins=services.plugins,
        requests=services.requests,
        monotonic_ms=services.monotonic_ms,
    )
    return HandlersPart(
        clients,
        ConsumerManageProcessor(
            config=config,
            log=services.store.log,
            queues=services.store.queues,
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
            admission=services.admission,
        ),
        services.locks,
        periodic=(
            Periodic(15.0, services.notifier.send_held, "notify-members"),
            Periodic(10.0, clients.scan, "scan-clients"),
        ),
    )


def transactions(services: BrokerServices) -> Transactions:
    """The half messages of the broker."""
    return Transactions(
        store=services.store,
        log=services.store.log,
        queues=services.store.queues,
        appender=services.store.appender,
        cycles=services.cycles,
        writer=services.writer,
        topics=services.topics,
        offsets=services.offsets,
        store_host=services.store_host,
        now_ms=services.now_ms,
    )


def transactions_part(services: BrokerServices, transactions: Transactions) -> TransactionsPart:
    """The part that ends and checks transactions."""
    return TransactionsPart(
        config=services.live_config,
        transactions=transactions,
        ends=EndTransactionProcessor(
            transactions=transactions,
            config=services.live_config,
            admission=services.admission,
            clock_watch=services.clock_watch,
            cycles=services.cycles,
            log=services.store.log,
            records=services.records,
            requests=services.requests,
            writer=services.writer,
            events=services.stats.events,
        ),
        check=TransactionCheck(
            transactions=transactions,
            config=services.live_config,
            producers=services.producers,
            admission=services.admission,
            clock_watch=services.clock_watch,
            cycles=services.cycles,
            appender=services.store.appender,
            records=services.records,
            hooks=services.hooks,
            store_host=services.store_host,
            monotonic_ms=services.monotonic_ms,
        ),
    )


def delayed_delivery(services: BrokerServices) -> DelayedDelivery:
    """The parts of delay levels and timers."""
    config, store, timers = services.live_config, services.store, services.timers
    deliveries = DeliveryWriter(cycles=services.cycles, appender=store.appender, queues=store.queues)
    return DelayedDelivery(
        config=config,
        store=store,
        log=store.log,
        disk=services.disk,
        delay_offsets=services.delay_offsets,
        levels=ScheduleService(
            config=config,
            log=store.log,
            log_watch=store.watch,
            appender=store.appender,
            queues=store.queues,
            delay_levels=store.config.delay_levels,
            delay_offsets=services.delay_offsets,
            deliveries=deliveries,
            clock_watch=services.clock_watch,
            records=services.records,
            disk=services.disk,
            stats=services.stats,
            now_ms=services.now_ms,
        ),
        timers=timers,
        timer_service=None
        if timers is None
        else TimerService(
            timers=timers,
            config=config,
            log=store.log,
            log_watch=store.watch,
            appender=store.appender,
            queues=store.queues,
            lookup=store.lookup,
            topics=services.topics,
            deliveries=deliveries,
            clock_watch=services.clock_watch,
            records=services.records,
            disk=services.disk,
            store_work=services.store_work,
            now_ms=services.now_ms,
        ),
        processor=TimerProcessor(
            config=config,
            admission=services.admission,
            topics=services.topics,
            timers=timers,
            writer=services.writer,
            new_uniq_key=services.new_uniq_key,
            now_ms=services.now_ms,
        ),
    )


def stats_part(services: BrokerServices) -> HandlersPart:
    """Statistics, and the watch over the clock, which they depend on."""

    def tick() -> None:
        services.clock_watch.look()
        services.stats.tick(services.monotonic_ms(), wall_ms=services.now_ms())

    processor = StatsProcessor(
        config=services.live_config,
        address=services.address,
        queues=services.store.queues,
        lookup=services.store.lookup,
        topics=services.topics,
        groups=services.groups,
        offsets=services.offsets,
        producers=services.producers,
        consumers=services.consumers,
        stats=services.stats,
        records=services.records,
        lag=services.lag,
        requests=services.requests,
        now_ms=services.now_ms,
        monotonic_ms=services.monotonic_ms,
    )
    return HandlersPart(processor, periodic=(Periodic(1.0, tick, "statistics"),))


def pull_part(services: BrokerServices) -> HandlersPart:
    """The part of pulls and queries."""
    queries = QueryMessageProcessor(
        config=services.live_config,
        index=services.store.index,
        disk=services.disk,
        requests=services.requests,
        records=services.records,
        admission=services.admission,
    )
    check = Periodic(5.0, services.holds.check, "check-held-pulls")
    return HandlersPart(services.pulls, queries, periodic=(check,))


def fast_paths(
    services: BrokerServices, sends: FastSendPath | None, kernel: Kernel | None
) -> FastPaths | None:
    """What the compiled kernel handles; None without a kernel."""
    if sends is None or kernel is None:
        return None
    pulls = FastPullPath(
        kernel,
        status=services.kernel,
        config=services.live_config,
        admission=services.admission,
        hooks=services.hooks,
        processor=services.pulls,
        offsets=services.offsets,
        stats=services.stats,
        log=services.store.log,
        queues=services.store.queues,
        cold_reads=services.cold_reads,
        cycles=services.cycles,
        now_ms=services.now_ms,
        finish_sends=sends.finish,
    )
    return FastPaths(kernel, sends, pulls)


def retention(services: BrokerServices, journal: Journal) -> RetentionService:
    """The service that deletes old files."""
    return RetentionService(
        config=services.live_config,
        store=services.store,
        log=services.store.log,
        queues=services.store.queues,
        files=services.files,
        offsets=services.offsets,
        live_groups=services.live_groups,
        delay_offsets=services.delay_offsets,
        timers=services.timers,
        journal_phy_offset=lambda: journal.begin_phy_offset,
        clock_watch=services.clock_watch,
        disk=services.disk,
        store_work=services.store_work,
        now_ms=services.now_ms,
    )


def overflow_part(services: BrokerServices) -> OverflowPart:
    """The part of overflow policies."""
    store, disk, records, floors = services.store, services.disk, services.records, services.offsets.floors
    units = UnitReads(disk)

    def age_ms(store_time_ms: int, phy_offset: int) -> int:
        return services.clock_watch.file_age_ms(store_time_ms, phy_offset + 1)

    def new_meter(topic: str) -> BacklogMeter:
        return BacklogMeter(
            topic,
            queues=store.queues,
            offsets=services.offsets,
            units=units,
            records=records,
            age_ms=age_ms,
        )

    service = OverflowService(
        config=services.live_config,
        topics=services.topics,
        offsets=services.offsets,
        live_groups=services.live_groups,
        drops=Drops(
            floors=floors,
            units=units,
            records=records,
            consumers=services.consumers,
            writer=services.writer,
            topics=services.topics,
            events=services.stats.events,
            disk=disk,
            age_ms=age_ms,
        ),
        new_meter=new_meter,
        admission=services.admission,
        dispatcher=store.dispatcher,
        log=store.log,
        disk=disk,
        now_ms=services.now_ms,
        monotonic_ms=services.monotonic_ms,
    )
    return OverflowPart(service=service, floors=floors, log_watch=store.watch, disk=disk)


def config_processor(services: BrokerServices, retention: RetentionService) -> ConfigProcessor:
    """Administration of the broker itself."""
    store = services.store
    return ConfigProcessor(
        config=services.live_config,
        update_config=services.update_config,
        store=store,
        log=store.log,
        queues=store.queues,
        files=services.files,
        topics=services.topics,
        offsets=services.offsets,
        holds=services.holds,
        retention=retention,
        runtime=runtime_info(services),
        records=services.records,
        disk=services.disk,
        requests=services.requests,
        store_work=services.store_work,
        now_ms=services.now_ms,
    )


def runtime_info(services: BrokerServices) -> RuntimeInfo:
    """What the broker tells of its state."""
    store = services.store
    return RuntimeInfo(
        config=services.live_config,
        log=store.log,
        appender=store.appender,
        dispatcher=store.dispatcher,
        lookup=store.lookup,
        damages=store.damages,
        delay_offsets=services.delay_offsets,
        timers=services.timers,
        clock_watch=services.clock_watch,
        stats=services.stats,
        kernel=services.kernel,
        more_keys=services.runtime_keys,
    )


def master_part(services: BrokerServices, epochs: EpochFile, membership: Membership | None) -> MasterPart:
    """Slaves, and what senders wait for."""
    return MasterPart(
        config=services.live_config,
        log=services.store.log,
        epochs=epochs,
        offsets=services.offsets,
        queue_end=services.store.lookup.max_offset_in_queue,
        disk=services.disk,
        cycles=services.cycles,
        commit_cycle=services.commit_cycle,
        admission=services.admission,
        appender=services.store.appender,
        proofs=_replica_proofs(services),
        reign=membership.reign if membership else None,
        tasks=services.tasks,
    )


def slave_part(
    services: BrokerServices,
    epochs: EpochFile,
    client: RemotingClient,
    membership: Membership | None,
    also_follow: Sequence[Follow],
) -> SlavePart:
    """What a slave does to be like its master."""
    return SlavePart(
        config=services.live_config,
        store=services.store,
        log=services.store.log,
        appender=services.store.appender,
        dispatcher=services.store.dispatcher,
        epochs=epochs,
        cycles=services.cycles,
        client=client,
        topics=services.topics,
        groups=services.groups,
        offsets=services.offsets,
        delay_offsets=services.delay_offsets,
        admission=services.admission,
        disk=services.disk,
        store_work=services.store_work,
        register_soon=services.changed.soon,
        tasks=services.tasks,
        now_ms=services.now_ms,
        address=services.address,
        status=services.replica_status,
        proofs=_replica_proofs(services),
        membership=membership,
        also_follow=also_follow,
    )


def _replica_proofs(services: BrokerServices) -> ReplicaProofs:
    config = services.live_config.current
    return ReplicaProofs(
        inner_keys(config), config=services.live_config, is_required=has_access_control(config)
    )
