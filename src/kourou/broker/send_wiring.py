"""Sends, idempotent producers and atomic publishes of a broker: their parts, as wiring.py has the others.

Used by assembly.py alone, which says in which order the parts start.
"""

from __future__ import annotations

from kourou.broker.atomic.coordinator import AtomicCoordinator
from kourou.broker.atomic.journal import Journal
from kourou.broker.atomic.part import AtomicPart
from kourou.broker.atomic.participant import AtomicParticipant
from kourou.broker.atomic.peers import BrokerPeers
from kourou.broker.atomic.publisher import AtomicPublisher
from kourou.broker.atomic.staged_entries import EntryPuts
from kourou.broker.atomic.staging import StagingChecks
from kourou.broker.part import HandlersPart, Periodic
from kourou.broker.registration.out_api import BrokerOuterApi
from kourou.broker.send.fast_send_path import FastSendPath
from kourou.broker.send.reply_processor import ReplyMessageProcessor
from kourou.broker.send.send_answer import SendAnswer
from kourou.broker.send.send_back_processor import SendBackProcessor
from kourou.broker.send.send_message_processor import SendMessageProcessor
from kourou.broker.send.send_targets import SendTargets
from kourou.broker.send.sent_properties import PropertyRewriter
from kourou.broker.send.special_sends import SpecialSends
from kourou.broker.sequences.originals import Originals
from kourou.broker.sequences.producer_processor import ProducerProcessor
from kourou.broker.sequences.sequence_gate import SequenceGate
from kourou.broker.services import BrokerServices
from kourou.broker.transactions.half_message_states import HalfMessageCache
from kourou.protocol.layout import HOST_V4_BYTES
from kourou.store.kernel import Kernel
from kourou.transport.client import RemotingClient


def _send_targets(services: BrokerServices) -> SendTargets:
    return SendTargets(
        admission=services.admission,
        hooks=services.hooks,
        commit_cycle=services.commit_cycle,
        topics=services.topics,
        groups=services.groups,
        locks=services.locks,
        events=services.stats.events,
    )


def sends(
    services: BrokerServices, half_cache: HalfMessageCache, kernel: Kernel | None
) -> tuple[HandlersPart, FastSendPath | None]:
    """Sends, messages that consumers send back, and replies; and the fast path, None without a kernel."""
    config, store = services.config, services.store
    targets = _send_targets(services)
    properties = PropertyRewriter(
        cluster=config.broker_cluster_name, region=config.region_id, trace_on=config.trace_on
    )
    answer = SendAnswer(services.store_host, config.region_id, config.trace_on)
    special = SpecialSends(
        config=services.live_config,
        address=services.address,
        cycles=services.cycles,
        appender=store.appender,
        queues=store.queues,
        writer=services.writer,
        answer=answer,
        half_cache=half_cache,
        delay_levels=store.config.delay_levels,
        events=services.stats.events,
    )
    producers = store.producers.table
    sequences = SequenceGate(
        table=producers,
        originals=Originals(producers, store.queues, services.records),
        appender=store.appender,
        dispatcher=store.dispatcher,
        commit_cycle=services.commit_cycle,
        cycles=services.cycles,
        requests=services.requests,
    )
    sends = SendMessageProcessor(
        config=services.live_config,
        targets=targets,
        properties=properties,
        new_uniq_key=services.new_uniq_key,
        cycles=services.cycles,
        appender=store.appender,
        queues=store.queues,
        answer=answer,
        special=special,
        sequences=sequences,
        requests=services.requests,
    )
    replies = ReplyMessageProcessor(
        config=services.live_config,
        targets=targets,
        properties=properties,
        new_uniq_key=services.new_uniq_key,
        address=services.address,
        store_host=services.store_host,
        producers=services.producers,
        requests=services.requests,
        writer=services.writer,
        now_ms=services.now_ms,
    )
    send_backs = SendBackProcessor(
        admission=services.admission,
        topics=services.topics,
        groups=services.groups,
        stats=services.stats,
        records=services.records,
        writer=services.writer,
    )
    part = HandlersPart(sends, replies, send_backs)
    if kernel is None or len(services.store_host) != HOST_V4_BYTES:
        return part, None
    return part, FastSendPath(
        kernel,
        status=services.kernel,
        admission=services.admission,
        topics=services.topics,
        cycles=services.cycles,
        commit_cycle=services.commit_cycle,
        appender=store.appender,
        queues=store.queues,
        producers=producers,
        targets=targets.table,
        own_properties=properties.own,
        answer=answer,
        store_host=services.store_host,
    )


def producers_part(services: BrokerServices) -> HandlersPart:
    """The part of idempotent producers."""
    producers, topics = services.store.producers, services.topics
    processor = ProducerProcessor(
        producers=producers,
        admission=services.admission,
        topics=topics,
        writer=services.writer,
        disk=services.disk,
        requests=services.requests,
        now_ms=services.now_ms,
    )

    def expire() -> None:
        producers.table.expire(services.now_ms(), topics.table)

    return HandlersPart(processor, periodic=(Periodic(600.0, expire, "expire-producers"),))


def atomic_journal(services: BrokerServices) -> Journal:
    """The journal of atomic publishes."""
    return Journal(
        store=services.store,
        log=services.store.log,
        queues=services.store.queues,
        appender=services.store.appender,
        cycles=services.cycles,
        records=services.records,
        store_host=services.store_host,
        now_ms=services.now_ms,
    )


def atomic_part(
    services: BrokerServices, journal: Journal, client: RemotingClient, out_api: BrokerOuterApi
) -> AtomicPart:
    """The part of atomic publishes."""
    config, hooks, producers = services.config, services.hooks, services.store.producers
    peers = BrokerPeers(
        client,
        lambda: out_api.namesrvs.current,
        own_name=config.broker_name,
        own_address=services.address,
    )

    def step(name: str) -> None:
        for hook in hooks.atomic_step:
            hook(name)

    def epoch_of(producer_id: str) -> int | None:
        producer = producers.table.producers.get(producer_id)
        return None if producer is None else producer.epoch

    coordinator = AtomicCoordinator(
        journal=journal,
        admission=services.admission,
        peers=peers,
        epoch_of=epoch_of,
        broker_name=config.broker_name,
        tasks=services.tasks,
        requests=services.requests,
        now_ms=services.now_ms,
        step=step,
    )
    participant = AtomicParticipant(
        journal=journal,
        checks=StagingChecks(
            targets=_send_targets(services),
            hooks=hooks,
            appender=services.store.appender,
            kernel=services.kernel,
        ),
        admission=services.admission,
        publisher=AtomicPublisher(
            journal=journal,
            entries=EntryPuts(
                appender=services.store.appender,
                queues=services.store.queues,
                kernel=services.kernel,
                store_host=services.store_host,
            ),
            cycles=services.cycles,
            topics=services.topics,
            step=step,
        ),
        tasks=services.tasks,
        query=peers.query_atomic,
        epoch_of=peers.epoch_of,
        now_ms=services.now_ms,
        step=step,
    )
    return AtomicPart(
        config=services.live_config,
        journal=journal,
        coordinator=coordinator,
        participant=participant,
        admission=services.admission,
        now_ms=services.now_ms,
    )
