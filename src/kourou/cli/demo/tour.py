"""The steps of the demo: each does something with the Python client, and verifies the outcome.

A failed step raises KourouError with one line that says what was missing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from kourou.admin.group_offsets import reset_offsets
from kourou.admin.messages.redrive import RedriveOutcome, plan_redrive, redrive
from kourou.admin.session import Admin
from kourou.cli.demo.progress import Flow, flow_progress
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.clock import wall_ms
from kourou.errors import KourouError
from kourou.protocol.message import Message, MessageExt

ORDERS: Final = Flow("Orders", queues=4, group="warehouse")
REMINDERS: Final = Flow("Reminders", queues=1, group="calendar")
PAYMENTS: Final = Flow("Payments", queues=2, group="bookkeeping")
PARCELS: Final = Flow("Parcels", queues=2, group="couriers")
CLICKS: Final = Flow("Clicks", queues=4, group="counters")
FLOWS: Final = (CLICKS, ORDERS, REMINDERS, PAYMENTS, PARCELS)

BROKER_KEYS: Final = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
"""Brokers check transactions after a second, instead of half a minute."""

_STAGES: Final = ("created", "paid", "packed", "sent", "delivered")
_REPLAYED: Final = ("sent", "delivered")
_ORDER_IDS: Final = tuple(f"order-{number}" for number in range(1, 21))
_LEVEL_1_MS: Final = 1_000
_TIMER_MS: Final = 3_000
_RECALLED_MS: Final = 2_000
_REFUSED: Final = ("payment-4", "payment-5")
_LOST: Final = "payment-6"
_UNKNOWN_STREET: Final = ("parcel-2", "parcel-5")
_NOBODY_AT_HOME: Final = "parcel-3"
_PARCEL_IDS: Final = tuple(f"parcel-{number}" for number in range(1, 7))
_MAX_RECONSUME_TIMES: Final = 2
_CLICKS_PER_ROUND: Final = 4
_ROUND_S: Final = 0.02
# Each step takes at most three seconds; more on a busy machine.
_TIMEOUT_S: Final = 60.0
_POLL_INTERVAL_S: Final = 0.02


@dataclass(frozen=True)
class Step:
    """One step: its title, its topic, its action; `run` returns a sentence about the outcome."""

    title: str
    flow: Flow
    run: Callable[[], Awaitable[str]]


class CardRefusedError(Exception):
    """The failure of a local transaction in the demo."""


class Tour:
    """All steps, in order. `clients` stops what they start; `say` receives a step's title and its
    progress."""

    def __init__(
        self, namesrv: str, admin: Admin, clients: AsyncExitStack, say: Callable[[str, str], None]
    ) -> None:
        self._namesrv = namesrv
        self._admin = admin
        self._clients = clients
        self._say = say
        self._handled: list[MessageExt] = []
        self._replay_from_ms = 0
        self._attempts: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()
        self._is_street_known = False

    @property
    def steps(self) -> list[Step]:
        return [
            Step("Order", ORDERS, self._order),
            Step("Delay", REMINDERS, self._delay),
            Step("Transactions", PAYMENTS, self._transactions),
            Step("Retry, dead letters", PARCELS, self._retries),
            Step("Redrive", PARCELS, self._redrive),
            Step("Replay by time", ORDERS, self._replay),
        ]

    # -- in the background -----------------------------------------------------------------------

    async def click(self) -> None:
        """Send continuously, so that the tables have something to show."""
        await self._consume(CLICKS, _take)
        producer = await self._clients.enter_async_context(AsyncProducer("web", namesrv=self._namesrv))
        while True:
            clicks = [Message(CLICKS.topic, b"a click") for _ in range(_CLICKS_PER_ROUND)]
            await asyncio.gather(*map(producer.send, clicks))
            await asyncio.sleep(_ROUND_S)

    # -- steps -----------------------------------------------------------------------------------

    async def _order(self) -> str:
        self._say("Order", f"{len(_ORDER_IDS)} orders go through {len(_STAGES)} stages each")

        async def handle(message: MessageExt) -> None:
            self._handled.append(message)

        await self._consume(ORDERS, handle, orderly=True)
        async with AsyncProducer("shop", namesrv=self._namesrv) as producer:
            for stage in _STAGES:
                if stage == _REPLAYED[0]:
                    self._replay_from_ms = await _next_moment_ms()
                await asyncio.gather(
                    *(
                        producer.send(Message(ORDERS.topic, stage.encode(), keys=[order]), sharding_key=order)
                        for order in _ORDER_IDS
                    )
                )
        total = len(_ORDER_IDS) * len(_STAGES)
        await self._until(lambda: len(self._counted()) == total, "all stages of all orders are handled")
        for order in _ORDER_IDS:
            stages = [message.body.decode() for message in self._handled if order in message.keys]
            if tuple(dict.fromkeys(stages)) != _STAGES:
                raise KourouError(f"{order} was handled out of order: {', '.join(stages)}")
        queues = {(message.broker_name, message.queue_id) for message in self._handled}
        return f"{total} messages in {len(queues)} queues; the stages of each order came in order"

    async def _delay(self) -> str:
        self._say("Delay", "one message is delayed by a second, one by three; a third is recalled")
        arrivals: dict[str, float] = {}

        async def handle(message: MessageExt) -> None:
            arrivals[message.keys[0]] = time.time() * 1000

        await self._consume(REMINDERS, handle)
        sent_ms = time.time() * 1000
        async with AsyncProducer("reminders", namesrv=self._namesrv) as producer:
            await producer.send(Message(REMINDERS.topic, b"level 1", keys=["level"], delay_time_level=1))
            await producer.send(Message(REMINDERS.topic, b"by time", keys=["timer"], delay_time_ms=_TIMER_MS))
            back = await producer.send(
                Message(REMINDERS.topic, b"never", keys=["recalled"], delay_time_ms=_RECALLED_MS)
            )
            if back.recall_handle is None:
                raise KourouError("the broker returned no handle to recall a message")
            await producer.recall(REMINDERS.topic, back.recall_handle)
        await self._until(
            lambda: {"level", "timer"} <= arrivals.keys(), "both delayed messages were delivered"
        )
        waited_ms = {key: arrived_ms - sent_ms for key, arrived_ms in arrivals.items()}
        if "recalled" in waited_ms:
            raise KourouError("the recalled message was delivered")
        if waited_ms["level"] < _LEVEL_1_MS or waited_ms["timer"] < _TIMER_MS:
            raise KourouError(f"a message was delivered too early, after {min(waited_ms.values()):.0f} ms")
        level_s, timer_s = waited_ms["level"] / 1000, waited_ms["timer"] / 1000
        return f"delivered after {level_s:.1f} s and {timer_s:.1f} s; the recalled one never was"

    async def _transactions(self) -> str:
        self._say("Transactions", "three commit, two roll back, the answer of one is lost")
        paid: set[str] = set()
        asked: list[str] = []

        async def handle(message: MessageExt) -> None:
            paid.update(message.keys)

        async def check(message: MessageExt) -> TransactionState:
            asked.extend(message.keys)
            return TransactionState.COMMIT if message.keys[0] == _LOST else TransactionState.ROLLBACK

        await self._consume(PAYMENTS, handle)
        payments = [f"payment-{number}" for number in range(1, 7)]
        async with AsyncTransactionProducer("cashier", namesrv=self._namesrv, check=check) as producer:
            for payment in payments:
                await _pay(producer, payment)
            await self._until(lambda: _LOST in paid, "the broker has checked the lost transaction")
        committed = set(payments) - set(_REFUSED)
        await self._until(lambda: committed <= paid, "all committed messages are consumed")
        if paid != committed:
            raise KourouError(f"rolled back, but consumed: {', '.join(paid - committed)}")
        return f"{len(committed)} were consumed; the broker checked {asked[0]} of them, which then committed"

    async def _retries(self) -> str:
        wrong = len(_UNKNOWN_STREET)
        self._say("Retry, dead letters", f"{len(_PARCEL_IDS)} parcels, {wrong} of them to unknown streets")
        await self._consume(PARCELS, self._deliver, max_reconsume_times=_MAX_RECONSUME_TIMES)
        async with AsyncProducer("post", namesrv=self._namesrv) as producer:
            for parcel in _PARCEL_IDS:
                await producer.send(Message(PARCELS.topic, b"a book", keys=[parcel]))
        good = set(_PARCEL_IDS) - set(_UNKNOWN_STREET)
        await self._until(lambda: good <= self._delivered.keys(), "the good parcels are delivered")
        await self._until_dead(wrong)
        tried = self._attempts[_UNKNOWN_STREET[0]]
        return f"{len(good)} delivered, one in two attempts; {wrong} are dead letters after {tried} each"

    async def _redrive(self) -> str:
        self._say("Redrive", "the streets were found: the dead letters go back to their group")
        self._is_street_known = True
        plan = await plan_redrive(self._admin, PARCELS.group)
        results = [result async for result in redrive(self._admin, plan)]
        failed = [result.reason for result in results if result.outcome is not RedriveOutcome.SENT]
        if failed or len(results) != len(_UNKNOWN_STREET):
            raise KourouError(
                f"{len(results)} dead letters were found, {len(failed)} could not be sent: {failed}"
            )
        await self._until(
            lambda: set(_PARCEL_IDS) == self._delivered.keys(), "the redriven parcels are delivered"
        )
        return f"{len(results)} dead letters were redriven, and their parcels delivered"

    async def _deliver(self, message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        parcel = message.keys[0]
        self._attempts[parcel] += 1
        context.delay_level = 1  # retried after a second, instead of ten
        if parcel in _UNKNOWN_STREET and not self._is_street_known:
            return ConsumeResult.LATER
        if parcel == _NOBODY_AT_HOME and message.reconsume_times == 0:
            return ConsumeResult.LATER
        self._delivered[parcel] += 1
        return ConsumeResult.SUCCESS

    async def _replay(self) -> str:
        moment = time.strftime("%H:%M:%S", time.localtime(self._replay_from_ms / 1000))
        steps = " and ".join(_REPLAYED)
        self._say(
            "Replay by time",
            f"group {ORDERS.group} is reset to {moment}: the stages {steps} are delivered again",
        )
        before = self._counted()
        again = {key for key in before if key[1] in _REPLAYED}
        await reset_offsets(self._admin, ORDERS.group, ORDERS.topic, self._replay_from_ms)
        await self._until(
            lambda: all(self._counted()[key] > before[key] for key in again),
            "messages sent since then are handled again",
        )
        others = [key for key, count in self._counted().items() if count > before[key] and key not in again]
        if others:
            raise KourouError(f"{' '.join(others[0])} was sent earlier, but handled again")
        return f"{len(again)} messages were handled a second time, with the consumer running"

    def _counted(self) -> Counter[tuple[str, str]]:
        """How often each stage of each order was handled."""
        return Counter((message.keys[0], message.body.decode()) for message in self._handled)

    # -- shared ----------------------------------------------------------------------------------

    async def _consume(self, flow: Flow, handler: Any, **options: Any) -> None:
        """Consume until the end of the tour."""
        # Offsets are shown live: committed twice a second instead of every five seconds.
        consumer = AsyncPushConsumer(
            flow.group, namesrv=self._namesrv, consume_from="first", persist_interval_ms=500, **options
        )
        await consumer.subscribe(flow.topic, handler)
        await self._clients.enter_async_context(consumer)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise KourouError(f"timed out after {_TIMEOUT_S:.0f} seconds; expected: {what}")
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _until_dead(self, count: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while (await flow_progress(self._admin, PARCELS)).dead < count:
            if time.monotonic() > deadline:
                raise KourouError(f"after {_TIMEOUT_S:.0f} seconds there are fewer than {count} dead letters")
            await asyncio.sleep(_POLL_INTERVAL_S)


async def _take(message: MessageExt) -> None: ...


async def _pay(producer: AsyncTransactionProducer, payment: str) -> None:
    try:
        async with producer.transaction(Message(PAYMENTS.topic, b"12.00", keys=[payment])) as transaction:
            if payment in _REFUSED:
                raise CardRefusedError
            if payment == _LOST:
                transaction.unknown()
    except CardRefusedError:
        pass  # the message is rolled back


async def _next_moment_ms() -> int:
    """A time after everything sent so far, and before anything sent later."""
    moment_ms = wall_ms() + 1
    await asyncio.sleep(0.005)
    return moment_ms
