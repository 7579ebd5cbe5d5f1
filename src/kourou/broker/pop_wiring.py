"""The parts of POP, each made of the objects that it works with. Used by assembly.py alone, as wiring.py."""

from __future__ import annotations

from kourou.broker.pop.assignment_processor import AssignmentPart, AssignmentProcessor
from kourou.broker.pop.order_journal import OrderJournal
from kourou.broker.pop.order_part import OrderPart
from kourou.broker.pop.orders import OrderService
from kourou.broker.registration.out_api import BrokerOuterApi
from kourou.broker.registration.topic_routes import TopicRoutes
from kourou.broker.services import BrokerServices
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
