"""A cluster with something of everything that the console shows: two masters with a slave each, live and
absent consumers, lag, retries, dead letters, traces, delayed and half messages, an ordered topic, a
conflicting subscription, bodies of many kinds.

What `fill_shop` returns is complete: nothing arrives later. Its clients stay connected until the end of the
context.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kourou import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from kourou.admin.consume_stats import consume_stats
from kourou.admin.groups import update_group
from kourou.admin.messages.trace import message_trace
from kourou.admin.session import Admin
from kourou.admin.topics import create_topic_on, topic_status
from kourou.errors import ResponseError
from kourou.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.names import dlq_topic, retry_topic

ORDERS: Final = "Orders"  # traced, consumed by warehouse; billing lags behind
PARCELS: Final = "Parcels"  # couriers fail: retries and dead letters
REMINDERS: Final = "Reminders"  # delayed
PAYMENTS: Final = "Payments"  # half messages
LEDGER: Final = "Ledger"  # ordered
SNIPPETS: Final = "Snippets"  # bodies and properties with markup, binary, large
TOPICS: Final = (ORDERS, PARCELS, REMINDERS, PAYMENTS, LEDGER, SNIPPETS)

WAREHOUSE: Final = "warehouse"
BILLING: Final = "billing"
COURIERS: Final = "couriers"
REPORTING: Final = "reporting"  # its two clients subscribe to different tags
AUDITORS: Final = "auditors"

QUEUES: Final = 2  # of a topic on each broker
ORDER_COUNT: Final = 60
LAG: Final = 40  # of billing
DEAD: Final = 4
HALF: Final = 2
DELAYED: Final = 3
MARKUP: Final = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'
LARGE_BYTES: Final = 1_000_000

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Shop:
    """The cluster, and what tests look for in it."""

    namesrv: str
    order_ids: list[str]  # message ids of Orders, in the order of sending
    markup_id: str
    binary_id: str
    large_id: str


@contextmanager
def fill_shop(namesrv: str) -> Iterator[Shop]:
    """Bring a new cluster into this state, and keep its clients connected."""
    _call_admin(namesrv, _create_topics)
    with ExitStack() as clients:
        yield _Clients(namesrv, clients).run()


async def _create_topics(admin: Admin) -> None:
    masters = await admin.masters()
    for topic in TOPICS:
        is_ordered = topic == LEDGER
        attributes = {"+message.type": "FIFO"} if is_ordered else {}
        config = TopicConfig(topic, QUEUES, QUEUES, order=is_ordered, attributes=attributes)
        outcomes = await create_topic_on(admin, [master.address for master in masters], config)
        assert all(outcome.is_done for outcome in outcomes), outcomes
    for topic in TOPICS:
        await _until(lambda topic=topic: _is_on(admin, topic, len(masters)), f"route of {topic}")


async def _is_on(admin: Admin, topic: str, brokers: int) -> bool:
    route = await admin.api.topic_route(topic)
    return route is not None and len(route.broker_datas) == brokers


async def _count(admin: Admin, topic: str) -> int:
    try:
        status = await topic_status(admin, topic)
    except ResponseError:
        return 0
    return sum(queue.max_offset for queue in status.queues)


async def _has_consumed(admin: Admin, group: str, topic: str) -> bool:
    try:
        progress = await consume_stats(admin, group, topic)
    except ResponseError:
        return False
    return progress.diff_total == 0 and sum(queue.consumer_offset for queue in progress.queues) > 0


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not await condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(_POLL_S)


async def _wait_complete(admin: Admin, order_id: str) -> None:
    """Wait for what clients do in the background."""

    async def is_dead() -> bool:
        return await _count(admin, dlq_topic(COURIERS)) == DEAD

    async def is_traced() -> bool:
        try:
            trace = await message_trace(admin, order_id)
        except ResponseError:
            return False
        return bool(trace.sends and trace.consumers) and trace.is_complete

    await _until(is_dead, "dead letters")
    await _until(is_traced, "traces")
    for group, topic in ((WAREHOUSE, ORDERS), (AUDITORS, LEDGER)):
        await _until(
            lambda group=group, topic=topic: _has_consumed(admin, group, topic), f"{group} at {topic}"
        )


async def _commit_part(admin: Admin) -> None:
    """Leave LAG orders that billing has not consumed, and no client of it."""
    masters = await admin.masters()
    addresses = [master.address for master in masters]
    await update_group(admin, addresses, SubscriptionGroupConfig(BILLING))
    await create_topic_on(admin, addresses, TopicConfig(retry_topic(BILLING), 1, 1))  # as its clients do
    left = LAG
    for master in masters:
        for queue_id in range(QUEUES):
            queue = MessageQueue(ORDERS, master.broker_name, queue_id)
            maximum = await admin.api.max_offset(master.address, queue)
            behind = min(left, maximum)
            left -= behind
            await admin.api.update_consumer_offset(master.address, BILLING, queue, maximum - behind)
    assert not left


def _call_admin(namesrv: str, work: Callable[[Admin], Awaitable[None]]) -> None:
    async def call() -> None:
        async with Admin(namesrv=namesrv) as admin:
            await work(admin)

    asyncio.run(call())


class _Clients:
    """The producers and consumers that bring the cluster into its state."""

    def __init__(self, namesrv: str, stack: ExitStack) -> None:
        self._namesrv = namesrv
        self._stack = stack

    def run(self) -> Shop:
        producer = self._stack.enter_context(Producer("shop", namesrv=self._namesrv, trace=True))
        order_ids = self._send_orders(producer)
        markup_id, binary_id, large_id = self._send_snippets(producer)
        self._delay(producer)
        self._leave_half_messages()
        _call_admin(self._namesrv, _commit_part)
        self._consume(WAREHOUSE, ORDERS, lambda message: None, trace=True)
        self._consume(WAREHOUSE, ORDERS, lambda message: None, trace=True)
        self._consume(AUDITORS, LEDGER, lambda message: None, orderly=True)
        self._consume(REPORTING, ORDERS, lambda message: None, "paid")
        self._consume(REPORTING, ORDERS, lambda message: None, "paid || sent")
        self._fail_parcels(producer)
        producer.send(Message(LEDGER, b"1", keys=["entry-1"]), sharding_key="entry-1")
        _call_admin(self._namesrv, lambda admin: _wait_complete(admin, order_ids[0]))
        return Shop(self._namesrv, order_ids, markup_id, binary_id, large_id)

    def _send_orders(self, producer: Producer) -> list[str]:
        tags = ("created", "paid", "sent")
        return [
            producer.send(
                Message(
                    ORDERS,
                    json.dumps({"order": number, "customer": "Ada", "total": number * 1.5}).encode(),
                    tags=tags[number % len(tags)],
                    keys=[f"order-{number}"],
                    properties={"region": "north" if number % 2 else "south", "amount": str(number)},
                )
            ).msg_id
            for number in range(ORDER_COUNT)
        ]

    def _send_snippets(self, producer: Producer) -> list[str]:
        messages = [
            Message(SNIPPETS, MARKUP.encode(), tags="markup", keys=["markup"], properties={"note": MARKUP}),
            Message(SNIPPETS, bytes(range(256)), tags="binary", keys=["binary"]),
            Message(SNIPPETS, b"0123456789" * (LARGE_BYTES // 10), tags="large", keys=["large"]),
        ]
        return [producer.send(message).msg_id for message in messages]

    def _delay(self, producer: Producer) -> None:
        for number in range(DELAYED - 1):
            producer.send(
                Message(
                    REMINDERS, b"later", keys=[f"reminder-{number}"], delay_time_ms=_HOUR_MS * (number + 1)
                )
            )
        producer.send(Message(REMINDERS, b"by level", keys=["reminder-level"], delay_time_level=18))

    def _leave_half_messages(self) -> None:
        def unknown(message: MessageExt) -> TransactionState:
            return TransactionState.UNKNOWN

        cashier = self._stack.enter_context(
            TransactionProducer("cashier", namesrv=self._namesrv, check=unknown)
        )
        for number in range(HALF):
            with cashier.transaction(Message(PAYMENTS, b"12.00", keys=[f"payment-{number}"])) as transaction:
                transaction.unknown()
        cashier.send(Message(PAYMENTS, b"7.50", keys=["payment-done"]))

    def _fail_parcels(self, producer: Producer) -> None:
        def deliver(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            if message.tags == "unknown":
                context.delay_level = -1  # to the dead letters at once
                return ConsumeResult.LATER
            if message.tags == "away":
                context.delay_level = 18  # two hours: it stays a retry
                return ConsumeResult.LATER
            return ConsumeResult.SUCCESS

        self._consume(COURIERS, PARCELS, deliver, trace=True)
        for number in range(DEAD):
            producer.send(Message(PARCELS, b'{"street": "?"}', tags="unknown", keys=[f"parcel-{number}"]))
        producer.send(Message(PARCELS, b"a book", tags="away", keys=["parcel-away"]))
        producer.send(Message(PARCELS, b"a book", tags="known", keys=["parcel-known"]))

    def _consume(
        self, group: str, topic: str, handler: Callable[..., Any], expression: str = "*", **options: Any
    ) -> None:
        consumer = PushConsumer(
            group, namesrv=self._namesrv, consume_from="first", persist_interval_ms=500, **options
        )
        consumer.subscribe(topic, expression, handler)
        self._stack.enter_context(consumer)
