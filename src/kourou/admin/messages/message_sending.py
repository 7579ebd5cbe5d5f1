"""Sends by an operator: one message, a stream of them, or several to measure response times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final, Self

from kourou.admin.connections import replica_addresses
from kourou.admin.messages.messages import started_producer
from kourou.admin.namesrvs import properties_of
from kourou.admin.session import Admin
from kourou.client.core.settings import ClientOptions
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.clock import duration_text, wall_ms
from kourou.errors import ConfigError, KourouError, MessageRefusedError, ResponseError
from kourou.protocol.bodies import MessageQueue, TopicRouteData
from kourou.protocol.codes import RequestCode
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.versions import V5_0_0, version_desc

MAX_CONCURRENT_SENDS: Final = 32
"""Maximum number of sends in flight."""


# As in Apache's broker, if its configuration does not name it.
_MAX_DELAY_KEY: Final = "timerMaxDelaySec"
_MAX_DELAY_S: Final = 3 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Where a message was stored; `status` is RocketMQ's name."""

    status: str
    msg_id: str
    offset_msg_id: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of(cls, result: SendResult) -> Self:
        """From the result of a producer."""
        queue = result.queue
        return cls(
            result.status.name,
            result.msg_id,
            result.offset_msg_id,
            queue.broker_name,
            queue.queue_id,
            result.queue_offset,
        )


@dataclass(frozen=True, slots=True)
class TimedSend:
    """One send, and its response time."""

    broker_name: str
    queue_id: int
    is_ok: bool
    rt_ms: int
    problem: str = ""


async def send_message(
    admin: Admin,
    topic: str,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | None = None,
    broker: str | None = None,
    queue_id: int | None = None,
    trace: bool = False,
) -> SentMessage:
    """Send one message: to the given queue, or to any queue of the topic."""
    try:
        message = Message(topic, body, tags=tags, keys=keys or ())
    except ValueError as error:
        raise MessageRefusedError(str(error)) from None
    queue = None
    if broker is not None and queue_id is not None:
        queue = MessageQueue(topic, await admin.broker_name(broker), queue_id)
    # A missing topic is an error here, instead of being created by the broker.
    await admin.route(topic)
    async with started_producer(admin, _own_group(), trace=trace) as producer:
        return SentMessage.of(await producer.send(message, queue=queue))


async def send_test_message(
    admin: Admin,
    message: Message,
    *,
    sharding_key: str | None = None,
    trace: bool = False,
    is_transaction: bool = False,
) -> SentMessage:
    """Send a message to a topic that exists; `is_transaction`: as a half message that is committed."""
    await admin.route(message.topic)
    if not is_transaction:
        async with started_producer(admin, _own_group(), trace=trace) as producer:
            return SentMessage.of(await producer.send(message, sharding_key=sharding_key))
    options: ClientOptions = {**admin.options}
    async with AsyncTransactionProducer(
        _own_group(), check=_committed, trace=trace, **options
    ) as transactions:
        async with transactions.transaction(message, sharding_key=sharding_key) as transaction:
            pass
        return SentMessage.of(transaction.half)


def _committed(message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def send_messages(
    admin: Admin, messages: AsyncIterator[Message], *, sharding_key: str | None = None
) -> AsyncGenerator[SentMessage | KourouError, None]:
    """Send messages as they come, several in flight: for each, in order, its result or error.

    After a failure no more are read; those in flight are awaited. The topic must exist.
    """
    under_way: asyncio.Queue[asyncio.Future[SendResult] | None] = asyncio.Queue()
    room = asyncio.Semaphore(MAX_CONCURRENT_SENDS)

    async def begin(producer: AsyncProducer) -> None:
        try:
            async for message in messages:
                await room.acquire()
                # No await between these two: the outcome of every started send is reported.
                under_way.put_nowait(producer.send_nowait(message, sharding_key=sharding_key))
        except Exception as error:
            failed: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            under_way.put_nowait(failed)
        under_way.put_nowait(None)

    async with started_producer(admin, _own_group()) as producer:
        begun = asyncio.create_task(begin(producer), name="send-messages")
        try:
            has_failed = False
            while not has_failed and (sent := await under_way.get()) is not None:
                outcome = await _outcome(sent)
                room.release()
                has_failed = isinstance(outcome, KourouError)
                yield outcome
        finally:
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)
        while not under_way.empty():
            if (sent := under_way.get_nowait()) is not None:
                yield await _outcome(sent)


async def _outcome(sent: asyncio.Future[SendResult]) -> SentMessage | KourouError:
    try:
        return SentMessage.of(await sent)
    except KourouError as error:
        return error


async def check_delay(admin: Admin, route: TopicRouteData, *, delay_ms: int = 0, level: int = 0) -> None:
    """ConfigError if a broker of a topic would not keep this delay: it does not support delivery times and
    would deliver at once, the delay is too long, or it does not have the level and would use its highest."""
    for address in sorted(replica_addresses(route)):
        try:
            answer = await admin.call(address, RequestCode.GET_BROKER_CONFIG)
        except ResponseError:
            continue  # accounts that may send may not read the configuration; the broker checks, too
        config = properties_of(answer.body)
        if delay_ms and answer.version < V5_0_0:
            raise ConfigError(
                f"{address} runs RocketMQ {version_desc(answer.version)}, which has delays by level only; "
                "use --delay-level 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
            )
        limit = config.get(_MAX_DELAY_KEY, "")
        longest_s = int(limit) if limit.isdecimal() else _MAX_DELAY_S
        if delay_ms > longest_s * 1000:
            raise ConfigError(
                f"the longest delay is {duration_text(longest_s * 1000)} ({_MAX_DELAY_KEY}={longest_s} of "
                f"{address}); use a shorter one, or mqadmin updateBrokerConfig -b {address} "
                f"-k {_MAX_DELAY_KEY} -v {-(-delay_ms // 1000)}"
            )
        levels = config.get("messageDelayLevel", "").split()
        if levels and level > len(levels):
            raise ConfigError(f"the levels of {address} are 1 to {len(levels)}: {' '.join(levels)}")


async def check_send_rt(
    admin: Admin, topic: str, *, amount: int = 100, size_bytes: int = 128
) -> AsyncIterator[TimedSend]:
    """Send messages to the queues of a topic in turn, one after the other."""
    await admin.route(topic)
    message = Message(topic, b"a" * size_bytes)
    async with started_producer(admin, _own_group()) as producer:
        queues = await producer.queues(topic)
        for number in range(amount):
            queue = queues[number % len(queues)]
            began = time.perf_counter_ns()
            problem = ""
            try:
                await producer.send(message, queue=queue)
            except KourouError as error:
                problem = str(error)
            rt_ms = (time.perf_counter_ns() - began) // 1_000_000
            yield TimedSend(queue.broker_name, queue.queue_id, not problem, rt_ms, problem)


def _own_group() -> str:
    """The format of producer group names in Apache's tools."""
    return str(wall_ms())
