"""The parts of POP, each made of the objects that it works with. Used by assembly.py alone, as wiring.py."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kourou.broker.delay.timer_service import TimerService
from kourou.broker.part import HandlersPart
from kourou.broker.pop.ack_processor import AckProcessor
from kourou.broker.pop.assignment_processor import AssignmentPart, AssignmentProcessor
from kourou.broker.pop.check_points import CheckPointTable
from kourou.broker.pop.in_flight import MessagesInFlight, PopCounts
from kourou.broker.pop.notices import PopNotices
from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.order_journal import OrderJournal
from kourou.broker.pop.order_part import OrderPart
from kourou.broker.pop.orders import OrderService
from kourou.broker.pop.part import InFlightPart
from kourou.broker.pop.peeks import PopPeeks
from kourou.broker.pop.pop_marks import RevivePopMarks
from kourou.broker.pop.pop_offsets import PopOffsets
from kourou.broker.pop.pop_plan import QueuePlans
from kourou.broker.pop.pop_processor import PopProcessor
from kourou.broker.pop.pop_read import PopReader
from kourou.broker.pop.pop_recovery import PopRecovery
from kourou.broker.pop.pop_service import PopService
from kourou.broker.pop.revive_log import ReviveLog
from kourou.broker.pop.revive_reader import ReviveReader
from kourou.broker.pop.revive_service import ReviveService
from kourou.broker.pop.revived_runs import RevivedRuns
from kourou.broker.registration.out_api import BrokerOuterApi
from kourou.broker.registration.topic_routes import TopicRoutes
from kourou.broker.services import BrokerServices
from kourou.protocol.pop.retry_topics import revive_topic
from kourou.transport.client import RemotingClient


def order_part(services: BrokerServices) -> OrderPart:
    """Orderly POP: its table, its journal, and the service that pops and acks use."""
    store, offsets = services.store, services.offsets
    journal = OrderJournal(
        table=services.order_table,
        offsets=offsets,
        store=store,
        queues=store.queues,
        appender=store.appender,
        cycles=services.cycles,
        commit_cycle=services.commit_cycle,
        store_host=services.store_host,
        now_ms=services.now_ms,
    )
    service = OrderService(
        journal=journal,
        offsets=offsets,
        topics=services.topics,
        groups=services.groups,
        config=services.live_config,
        now_ms=services.now_ms,
        monotonic_ms=services.monotonic_ms,
    )
    services.topics.on_delete.append(service.forget_topic)
    return OrderPart(config=services.live_config, journal=journal, service=service, disk=services.disk)


def assignment_part(
    services: BrokerServices, client: RemotingClient, out_api: BrokerOuterApi
) -> AssignmentPart:
    """Queues that the broker assigns to clients."""
    routes = TopicRoutes(
        config=services.live_config,
        client=client,
        namesrvs=lambda: out_api.namesrvs.current,
        tasks=services.tasks,
        monotonic_ms=services.monotonic_ms,
    )
    processor = AssignmentProcessor(
        config=services.live_config,
        modes=services.request_modes,
        routes=routes,
        topics=services.topics,
        groups=services.groups,
        consumers=services.consumers,
        requests=services.requests,
    )
    return AssignmentPart(processor, routes)


def in_flight_part(
    services: BrokerServices, timers: TimerService | None, orders: OrderService
) -> InFlightPart:
    """Messages in flight: their table, what keeps it on disk, and what revives them. `timers`: None where
    they are off."""
    config, store, offsets = services.config, services.store, services.offsets
    topic, counts = revive_topic(config.broker_cluster_name), PopCounts()
    table = CheckPointTable(config.broker_name)
    log = ReviveLog(
        topic=topic,
        table=table,
        writer=services.writer,
        delayed=services.delayed,
        cycles=services.cycles,
        before_write=services.commit_cycle.before_write,
        store_host=services.store_host,
        now_ms=services.now_ms,
        counts=counts,
        on_put=services.cold_reads.ignore_next,
    )
    in_flight = MessagesInFlight(
        table=table,
        log=log,
        config=services.live_config,
        has_timers=timers is not None,
        counts=counts,
        now_ms=services.now_ms,
        monotonic_ms=services.monotonic_ms,
    )
    reader = ReviveReader(
        topic=topic,
        table=table,
        own_broker=config.broker_name,
        offsets=offsets,
        queues=store.queues,
        commit_log=store.log,
        records=services.records,
        disk=services.disk,
        now_ms=services.now_ms,
        monotonic_ms=services.monotonic_ms,
    )
    services.topics.on_delete.append(table.drop_topic)
    if timers is not None:
        timers.settled = table
        store.dispatcher.on_arrival_in[topic] = reader.arrived
    offsets.pop_marks = RevivePopMarks(
        topic=topic, store=store, log=store.log, queues=store.queues, counts=counts
    )
    return InFlightPart(
        config=services.live_config,
        in_flight=in_flight,
        recovery=PopRecovery(
            topic=topic,
            table=table,
            own_broker=config.broker_name,
            timers=timers,
            topics=services.topics,
            groups=services.groups,
            offsets=offsets,
            queues=store.queues,
            commit_log=store.log,
            now_ms=services.now_ms,
            monotonic_ms=services.monotonic_ms,
        ),
        reader=reader,
        revive=ReviveService(
            table=table,
            log=log,
            counts=counts,
            config=services.live_config,
            topics=services.topics,
            groups=services.groups,
            offsets=offsets,
            queues=store.queues,
            commit_log=store.log,
            appender=store.appender,
            records=services.records,
            writer=services.writer,
            runs=RevivedRuns(
                cycles=services.cycles,
                appender=store.appender,
                queues=store.queues,
                kernel=services.kernel,
                store_host=services.store_host,
            ),
            events=services.stats.events,
            monotonic_ms=services.monotonic_ms,
        ),
        acks=AckProcessor(
            in_flight=in_flight,
            orders=orders,
            config=services.live_config,
            admission=services.admission,
            topics=services.topics,
            offsets=offsets,
            queues=store.queues,
            before_write=services.commit_cycle.before_write,
            now_ms=services.now_ms,
        ),
        has_timers=timers is not None,
    )


@dataclass(frozen=True, slots=True)
class PopDelivery:
    """What gives messages to consumers that pop."""

    part: HandlersPart
    service: PopService
    processor: PopProcessor


def delivery(services: BrokerServices, in_flight: MessagesInFlight, orders: OrderService) -> PopDelivery:
    """Pops, peeks, notices and what tools ask about them."""

    def wake(key: OrderKey) -> None:
        services.pop_polling.wake(*key)
        services.notice_polling.wake(*key)

    orders.wake = wake
    store, config = services.store, services.live_config
    reader = PopReader(
        config=config,
        queues=store.queues,
        reader=store.reader,
        matchers=services.matchers,
        disk=services.disk,
        turns=services.cold_reads,
        stats=services.stats,
    )
    offsets = PopOffsets(
        config=config,
        log=store.log,
        offsets=services.offsets,
        orders=orders,
        memory_bytes=reader.memory_bytes,
    )
    plans = QueuePlans(
        config=config, topics=services.topics, groups=services.groups, random_below=random.randrange
    )
    service = PopService(
        config=config,
        admission=services.admission,
        consumers=services.consumers,
        queues=store.queues,
        offsets=offsets,
        reader=reader,
        in_flight=in_flight,
        orders=orders,
        polling=services.pop_polling,
        stats=services.stats,
        hooks=services.hooks,
        plugins=services.plugins,
        now_ms=services.now_ms,
        plans=plans,
    )
    notices = PopNotices(
        admission=services.admission,
        topics=services.topics,
        queues=store.queues,
        offsets=offsets,
        orders=orders,
        polling=services.notice_polling,
        now_ms=services.now_ms,
    )
    peeks = PopPeeks(
        admission=services.admission,
        queues=store.queues,
        offsets=offsets,
        reader=reader,
        plans=plans,
    )
    processor = PopProcessor(
        service=service,
        notices=notices,
        peeks=peeks,
        polling=services.pop_polling,
        admission=services.admission,
        cold_pulls=services.cold_pulls,
    )
    processor.charge = services.pulls.charge
    return PopDelivery(HandlersPart(processor), service, processor)
