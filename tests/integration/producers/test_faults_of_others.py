"""The faults that other systems had with idempotent producers: each has its test here.

Faults of transactions are in the tests of atomic publishes; a run under all faults: tests/crash/once_run.py.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.sequenced_sends import SequencedSends
from kourou.client.sync.producer import Producer
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import Message
from kourou.protocol.producer_sequence import MAX_IN_FLIGHT
from kourou.store.disk.files import Files
from kourou.testing import LocalCluster
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.tcp_proxy import Direction
from tests.e2e.broker.broker_kit import Peer, running
from tests.e2e.broker.producer_kit import opened, place, stored
from tests.e2e.client.kit.fault_kit import faulty_cluster
from tests.e2e.client.kit.push_kit import TOPIC

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
PATIENT: dict[str, Any] = {"idempotent": True, "send_timeout_ms": 30_000, "attempt_timeout_ms": 300}
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def later(peer: Peer, ms: int) -> None:
    """So much time passes without a send: the broker removes what is too old."""
    services = peer.controller.services
    services.store.producers.table.expire(services.now_ms() + ms, services.topics.table)


# -- Kafka ---------------------------------------------------------------------------------------------


async def test_kafka_more_than_five_requests_in_flight_were_refused(tmp_path: Path) -> None:
    async with (
        faulty_cluster(tmp_path) as cluster,
        # No repeats on a busy machine: they would change the order.
        AsyncProducer(
            "producers", namesrv=cluster.namesrv_addr, idempotent=True, send_timeout_ms=60_000
        ) as producer,
    ):
        sends = [producer.send_nowait(Message(TOPIC, b"%d" % n), queue=QUEUE) for n in range(2_000)]
        await asyncio.gather(*sends)
        assert cluster.stored() == [b"%d" % n for n in range(2_000)]
    # The oldest of a thousand that are in flight is still recognised when it is repeated.
    async with running(tmp_path / "other") as peer:
        raw = await opened(peer)
        first = place(await raw.send(0))
        await asyncio.gather(*(raw.send(sequence) for sequence in range(1, MAX_IN_FLIGHT)))
        assert place(await raw.send(0)) == first


async def test_kafka_a_gap_made_the_producer_stuck(tmp_path: Path) -> None:
    """aiokafka#1017: a batch that was given up, and every later one was out of order."""
    async with (
        faulty_cluster(tmp_path) as cluster,
        AsyncProducer("producers", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
    ):
        await producer.send(Message(TOPIC, b"before"), queue=QUEUE)
        sends = producer._sends
        assert isinstance(sends, SequencedSends)
        for _ in range(3 * MAX_IN_FLIGHT // 2):
            # As sends do that are given up without reaching the broker.
            session = sends.sessions.place("broker-a").session
            numbers = None if session is None else session.numbers(QUEUE)
            assert numbers is not None
            numbers.settle(numbers.take(1), is_stored=False)
        await producer.send(Message(TOPIC, b"after"), queue=QUEUE)
        await producer.send(Message(TOPIC, b"and on"), queue=QUEUE)
        assert cluster.stored() == [b"before", b"after", b"and on"]


async def test_kafka_short_lived_producers_filled_the_memory(tmp_path: Path) -> None:
    """KIP-936, KIP-1044: ids are bounded; those that were not used for the longest time are removed."""
    async with running(tmp_path) as peer:
        table = peer.controller.services.store.producers.table
        table.max_producers = 200
        named = await opened(peer, "loader")
        place(await named.send(0))
        first = await opened(peer)
        place(await first.send(0))
        for _ in range(500):
            await opened(peer)
        assert len(table) <= 200 and table.evicted >= 300
        # A removed one is refused, so that it can open another session; names are kept.
        assert (await first.send(1)).code == ResponseCode.KOUROU_UNKNOWN_PRODUCER
        place(await named.send(1))


# -- Pulsar --------------------------------------------------------------------------------------------


async def test_pulsar_a_sequence_was_noted_before_its_message_was_persisted(tmp_path: Path) -> None:
    """pulsar#5218: the retry of a message that could not be written was answered as a repeat, and lost."""
    files = FaultyFiles()
    async with running(tmp_path, files=files) as peer:
        producer = await opened(peer)
        place(await producer.send(0))
        files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
        assert (await producer.send(1)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        place(await producer.send(1))
        assert await stored(peer) == [0, 1]


async def test_pulsar_an_undecided_state_stuck(tmp_path: Path) -> None:
    """pulsar#21892: after a failed write every retry was refused, until the topic was unloaded."""
    files = FaultyFiles()
    async with running(tmp_path, files=files) as peer:
        producer = await opened(peer)
        for sequence in range(3):
            files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
            assert (await producer.send(sequence)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            place(await producer.send(sequence))
        place(await producer.send(3))
        assert await stored(peer) == [0, 1, 2, 3]


async def test_pulsar_a_batch_with_a_repeat_was_dropped_whole(tmp_path: Path) -> None:
    """pulsar#6273."""
    async with running(tmp_path) as peer:
        producer = await opened(peer)
        place(await producer.send_batch(0, 1))
        place(await producer.send_batch(1, 2, 3))
        assert await stored(peer) == [0, 1, 2, 3]


async def test_pulsar_a_repeat_was_answered_without_a_place(tmp_path: Path) -> None:
    """pulsar-client-go#1407: -1:-1 in place of the id of the message."""
    async with (
        faulty_cluster(tmp_path) as cluster,
        AsyncProducer("producers", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
    ):
        await producer.send(Message(TOPIC, b"first"), queue=QUEUE)
        cluster.proxy.halve(Direction.TO_CLIENT)  # the answer is lost with the connection
        result = await producer.send(Message(TOPIC, b"repeated"), queue=QUEUE)
        assert cluster.proxy.halved == 1 and producer.stats().retried > 0
        _, record = cluster.records()
        assert record.body == b"repeated"
        assert (result.queue_offset, result.offset_msg_id) == (record.queue_offset, record.offset_msg_id)


# -- NATS ----------------------------------------------------------------------------------------------


async def test_nats_a_message_was_forgotten_after_two_minutes(tmp_path: Path) -> None:
    """And repeats did not renew it (nats-server#7302)."""
    async with running(tmp_path) as peer:
        producer = await opened(peer)
        first = place(await producer.send(0))
        for ms in (3 * MINUTE_MS, DAY_MS, 6 * DAY_MS):
            later(peer, ms)
            assert place(await producer.send(0)) == first
        # After a week it is refused, not stored again.
        later(peer, 8 * DAY_MS)
        assert (await producer.send(0)).code == ResponseCode.KOUROU_UNKNOWN_PRODUCER
        assert await stored(peer) == [0]


async def test_nats_a_message_was_forgotten_after_a_purge_and_a_restart(tmp_path: Path) -> None:
    """nats-server#3272."""
    files = Files()  # the records of a deleted topic have no queue: the usual check of the store reports them
    async with running(tmp_path, files=files) as peer:
        producer = await opened(peer, "loader")
        place(await producer.send(0))
        peer.controller.services.store.delete_topic(TOPIC)
    async with running(tmp_path, files=files) as peer:
        producer.peer = peer
        assert (await producer.send(0)).code == ResponseCode.KOUROU_SEQUENCE_TOO_OLD
        assert await stored(peer) == []


async def test_nats_messages_that_were_meant_to_be_sent_twice_were_dropped(tmp_path: Path) -> None:
    """The application's own id decided, so a second order of the same thing was a repeat."""
    async with (
        faulty_cluster(tmp_path) as cluster,
        AsyncProducer("producers", namesrv=cluster.namesrv_addr, **PATIENT) as producer,
    ):
        message = Message(TOPIC, b"one more", keys=["order-1"])
        for _ in range(3):
            await producer.send(message)
        assert cluster.stored() == [b"one more"] * 3


# -- RabbitMQ ------------------------------------------------------------------------------------------


def test_rabbitmq_what_two_threads_sent_out_of_order_was_confirmed_and_not_stored() -> None:
    """stream-java-client, discussion 42: a lower id behind a higher one was taken for a repeat."""
    with LocalCluster() as mq:
        mq.create_topic(TOPIC, queues=1)
        with Producer("producers", namesrv=mq.namesrv, idempotent=True) as producer:
            with ThreadPoolExecutor(8) as threads:
                bodies = [b"%d" % number for number in range(400)]
                results = list(threads.map(lambda body: producer.send(Message(TOPIC, body)), bodies))
        assert len({result.queue_offset for result in results}) == len(bodies)
        assert sorted(message.body for message in mq.messages(TOPIC)) == sorted(bodies)


async def test_rabbitmq_a_lower_sequence_behind_a_higher_one_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        producer = await opened(peer, "loader", allows_gaps=True)
        for sequence in (7, 3, 5, 7, 3):
            place(await producer.send(sequence))
        assert await stored(peer) == [7, 3, 5]


# -- Redpanda ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_redpanda_pauses_and_restarts_made_duplicates() -> None:
    """Jepsen: requests of a paused broker were stored after they had been repeated."""
    with LocalCluster() as mq:
        mq.create_topic(TOPIC, queues=2)
        with Producer("producers", namesrv=mq.namesrv, **PATIENT) as producer:
            bodies: list[bytes] = []
            for number in range(4):
                some = [b"%d-%d" % (number, each) for each in range(50)]
                bodies += some
                with mq.pause(0):
                    sends = [producer.send_nowait(Message(TOPIC, body)) for body in some]
                    # All are undecided now, and wait at the broker besides their repeats.
                    while producer.stats().retried < len(bodies):
                        time.sleep(0.01)
                if number % 2:
                    mq.restart_broker()
                for send in sends:
                    send.result(60)
        assert Counter(message.body for message in mq.messages(TOPIC)) == Counter(bodies)
