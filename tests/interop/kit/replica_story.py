"""A story for a master with slaves: single, batch, delayed, transactional and retried messages of ours."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any, Final

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult, SendStatus
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.protocol.message import Message, MessageExt
from tests.interop.kit import wire
from tests.interop.kit.client_kit import Inbox, until
from tests.interop.kit.client_messages import names
from tests.interop.kit.replica_set import ReplicaSet

QUEUES: Final = 4
"""The queues of a story's topic."""

KEY: Final = "story"
"""A key that every message has."""

# More than two files of the log, in bodies that cannot be compressed.
_LARGE_BODY_BYTES: Final = 30_000
_SINGLES: Final = 80
_FAILING: Final = b"batch-1"
_DELAY_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class Story:
    """What was sent; each result with the messages's key in the index."""

    topic: str
    group: str
    results: list[SendResult]


def client_options(namesrv: str) -> dict[str, Any]:
    """Options of clients that notice soon what becomes of brokers."""
    return {
        "namesrv": namesrv,
        "poll_namesrv_interval_ms": 1_000,
        "heartbeat_interval_ms": 1_000,
        "request_timeout_ms": 10_000,
    }


async def tell(replicas: ReplicaSet) -> Story:
    """Send all kinds of messages to a master, and consume them; returns when all are consumed."""
    topic = f"story-{replicas.name}"
    group = f"readers-{replicas.name}"
    await asyncio.to_thread(
        wire.create_topic, replicas.master.address, [replicas.namesrv], topic, queues=QUEUES
    )
    inbox = Inbox(verdict=_fail_once)
    options = client_options(replicas.namesrv)
    async with AsyncPushConsumer(
        group, consume_from="first", rebalance_interval_ms=1_000, **options
    ) as consumer:
        await consumer.subscribe(topic, "*", inbox.take)
        async with AsyncProducer(f"senders-{replicas.name}", **options) as producer:
            results = await _send(producer, topic)
        expected = await _send_in_transactions(replicas, topic)
        expected |= {*names("batch", 10), *names("delayed", 3)}
        await until(lambda: _has_all(inbox, expected), f"all of {topic} at {group}")
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    return Story(topic, group, results)


def _fail_once(message: MessageExt) -> ConsumeResult | None:
    is_first = message.body.startswith(_FAILING) and not message.reconsume_times
    return ConsumeResult.LATER if is_first else None


def _has_all(inbox: Inbox, expected: set[bytes]) -> bool:
    calls = list(inbox.calls)
    bodies = [message.body for message in calls]
    has_retried = any(message.reconsume_times for message in calls)
    return expected <= set(bodies) and has_retried and _singles(bodies) == _SINGLES


def _singles(bodies: list[bytes]) -> int:
    return len({body for body in bodies if len(body) == _LARGE_BODY_BYTES})


async def _send(producer: AsyncProducer, topic: str) -> list[SendResult]:
    bodies = random.Random(21)
    results = []
    for number in range(_SINGLES):
        keys = [KEY, f"single-{number}"]
        body = bodies.randbytes(_LARGE_BODY_BYTES)
        results.append(await producer.send(Message(topic, body, tags="single", keys=keys)))
    results += await producer.send_many(
        Message(topic, body, tags="batch", keys=[KEY, body.decode()]) for body in names("batch", 10)
    )
    for body in names("delayed", 3):
        keys = [KEY, body.decode()]
        # Its result locates the record that waits, not the one that is delivered.
        await producer.send(Message(topic, body, keys=keys, delay_time_level=_DELAY_LEVEL))
    return results


async def _send_in_transactions(replicas: ReplicaSet, topic: str) -> set[bytes]:
    """Commit, roll back, and leave the decision to a check; what is to be consumed of it."""

    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    group = f"tx-senders-{replicas.name}"
    async with AsyncTransactionProducer(group, check=check, **client_options(replicas.namesrv)) as producer:
        async with producer.transaction(Message(topic, b"committed", keys=[KEY])):
            pass
        async with producer.transaction(Message(topic, b"rolled back", keys=[KEY])) as transaction:
            transaction.rollback()
        async with producer.transaction(Message(topic, b"checked", keys=[KEY])) as transaction:
            transaction.unknown()
        # The master sends its check to a producer that is there.
        inbox = Inbox()
        options = {"consume_from": "first", **client_options(replicas.namesrv)}
        async with AsyncPushConsumer(f"{group}-readers", **options) as consumer:
            await consumer.subscribe(topic, "*", inbox.take)
            await until(lambda: b"checked" in inbox.bodies, f"a check of {topic}")
    return {b"committed", b"checked"}
