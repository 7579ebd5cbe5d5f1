"""The metrics of a broker, made of the objects that they are read from; imported where they are measured.

Used by assembly.py alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.broker.metrics.broker_metrics import BrokerMetrics
from kourou.broker.metrics.exporter import BrokerExporter
from kourou.broker.metrics.part import DeliveryLatency, FastSends
from kourou.broker.wiring import runtime_info
from kourou.metrics.process import LoopLag
from kourou.transport.request_latency import RequestLatency

if TYPE_CHECKING:
    from kourou.broker.atomic.journal import Journal
    from kourou.broker.fast_paths import FastPaths
    from kourou.broker.overflow.overflow_service import OverflowService
    from kourou.broker.pop.in_flight import MessagesInFlight
    from kourou.broker.pop.pop_service import PopService
    from kourou.broker.replication.replica_server import ReplicaServer
    from kourou.broker.services import BrokerServices
    from kourou.broker.transactions.transactions import Transactions


def make_metrics(
    services: BrokerServices,
    journal: Journal,
    overflow: OverflowService,
    in_flight: MessagesInFlight,
    transactions: Transactions,
    replicas: ReplicaServer,
    fast_paths: FastPaths | None,
    pops: PopService,
    connection_count: Callable[[], int],
) -> BrokerMetrics:
    """The metrics of the broker; from here on they are measured."""
    loop, store = asyncio.get_running_loop(), services.store
    requests = RequestLatency(loop.time)
    deliveries = DeliveryLatency(services.now_ms)
    services.pulls.on_delivery = pops.on_delivery = deliveries.delivered
    if fast_paths is not None:
        fast_paths.sends.on_stored = FastSends(requests, services.now_ms).stored
        fast_paths.pulls.notes.on_answered = requests.pulls
        fast_paths.pulls.notes.on_delivered = deliveries.delivered_at_age
    return BrokerMetrics(
        config=services.live_config,
        admission=services.admission,
        files=services.files,
        log=store.log,
        queues=store.queues,
        lookup=store.lookup,
        dispatcher=store.dispatcher,
        appender=store.appender,
        damages=store.damages,
        sequences=store.producers.table,
        atomics=journal,
        overflow=overflow,
        in_flight=in_flight,
        queue_folder=store.config.queue_folder,
        stats=services.stats,
        commit_cycle=services.commit_cycle,
        topics=services.topics,
        groups=services.groups,
        producers=services.producers,
        consumers=services.consumers,
        plugins=services.plugins,
        holds=services.holds,
        transactions=transactions,
        timers=services.timers,
        replicas=replicas,
        clock_watch=services.clock_watch,
        kernel=services.kernel,
        records=services.records,
        disk=services.disk,
        requests=requests,
        deliveries=deliveries,
        loop_lag=LoopLag(),
        lag=services.lag,
        exporter=BrokerExporter(
            config=services.live_config,
            address=services.address,
            files=services.files,
            log=store.log,
            queues=store.queues,
            queue_folder=store.config.queue_folder,
            topics=services.topics,
            producers=services.producers,
            consumers=services.consumers,
            stats=services.stats,
            runtime=runtime_info(services),
            lag=services.lag,
            records=services.records,
            disk=services.disk,
            now_ms=services.now_ms,
            monotonic_ms=services.monotonic_ms,
        ),
        connection_count=connection_count,
        now_ms=services.now_ms,
        loop_time_s=loop.time,
    )
