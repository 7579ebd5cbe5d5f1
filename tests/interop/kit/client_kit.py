"""ClientKit: our clients of one kind, async or plain, at one broker, for scenarios that are written once.

A scenario awaits. The async adapter gives it the async clients themselves; the plain one gives it the plain
clients, each call in a thread, under the async clients' types: so both have to offer the same.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, cast

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.queue_reader import QueueChunk, QueueReader
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.sync.lite_pull_consumer import LitePullConsumer
from kourou.client.sync.producer import Producer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.client.sync.push_consumer import PushConsumer
from kourou.client.sync.transaction_producer import TransactionProducer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from tests.crash.rounds import NIGHTLY
from tests.interop.kit import wire
from tests.interop.kit.lanes import KOUROU, Lane

WAIT_S: Final = 30
"""How long a scenario waits for anything, on a busy machine."""

T = TypeVar("T")
ArgT = TypeVar("ArgT")


async def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait for a condition; AssertionError past the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        await asyncio.sleep(0.02)


async def together(
    scenario: Callable[[ClientKit], Coroutine[Any, Any, None]], kits: Iterable[ClientKit]
) -> None:
    """Run a scenario that waits for most of its time with several kits at once; the topics in an error tell
    whose it is."""
    async with asyncio.TaskGroup() as running:
        for kit in kits:
            running.create_task(scenario(kit), name=f"{kit.adapter.name} at {kit.broker}")


@dataclass(slots=True)
class Inbox:
    """A handler that notes what it is called with, from any thread; `verdict` says what becomes of it."""

    verdict: Callable[[MessageExt], ConsumeResult | None] = lambda message: None
    calls: list[MessageExt] = field(default_factory=list)

    def take(self, message: MessageExt) -> ConsumeResult | None:
        """The handler."""
        self.calls.append(message)
        return self.verdict(message)

    @property
    def bodies(self) -> list[bytes]:
        """What came, in the order of the calls."""
        return [message.body for message in list(self.calls)]

    async def wait(self, count: int) -> list[MessageExt]:
        """All that came, once that were so many calls."""
        await until(lambda: len(self.calls) >= count, f"{count} messages, after {self.bodies!r:.500}")
        return list(self.calls)


class Adapter(Protocol):
    """One kind of clients."""

    @property
    def name(self) -> str:
        """The kind."""
        ...

    def use(
        self, kind: Callable[..., AbstractAsyncContextManager[T]], group: str, **options: Any
    ) -> AbstractAsyncContextManager[T]:
        """A client, started and stopped by the block; `kind` is the class of the async one."""
        ...

    def function(self, function: Callable[[ArgT], T]) -> Callable[[ArgT], T | Awaitable[T]]:
        """A handler, or a check, as users of this kind write it."""
        ...

    async def read(
        self, consumer: AsyncPullConsumer, queue: MessageQueue, **options: Any
    ) -> list[QueueChunk]:
        """Read a queue in bulk."""
        ...


class AsyncAdapter:
    """The async clients."""

    name = "async"

    def use(
        self, kind: Callable[..., AbstractAsyncContextManager[T]], group: str, **options: Any
    ) -> AbstractAsyncContextManager[T]:
        """The client itself."""
        return kind(group, **options)

    def function(self, function: Callable[[ArgT], T]) -> Callable[[ArgT], Awaitable[T]]:
        """An `async def`."""

        async def called(argument: ArgT) -> T:
            return function(argument)

        return called

    async def read(
        self, consumer: AsyncPullConsumer, queue: MessageQueue, **options: Any
    ) -> list[QueueChunk]:
        """By a reader of its own, which shares the consumer's connections."""
        async with QueueReader(queue, consumer=consumer, **options) as chunks:
            return [chunk async for chunk in chunks]


class PlainAdapter:
    """The plain clients, called in threads."""

    name = "plain"
    _twins: Final[dict[object, Callable[..., Any]]] = {
        AsyncProducer: Producer,
        AsyncTransactionProducer: TransactionProducer,
        AsyncPushConsumer: PushConsumer,
        AsyncPullConsumer: PullConsumer,
        AsyncLitePullConsumer: LitePullConsumer,
    }

    @asynccontextmanager
    async def use(
        self, kind: Callable[..., AbstractAsyncContextManager[T]], group: str, **options: Any
    ) -> AsyncIterator[T]:
        """The plain twin of a client, which looks like the async one."""
        twin = self._twins[kind](group, **options)
        async with _entered(twin):
            yield cast(T, _InThreads(twin, kind))

    def function(self, function: Callable[[ArgT], T]) -> Callable[[ArgT], T]:
        """A plain function."""
        return function

    async def read(
        self, consumer: AsyncPullConsumer, queue: MessageQueue, **options: Any
    ) -> list[QueueChunk]:
        """By the consumer."""
        reader = cast(_InThreads, consumer)
        return await asyncio.to_thread(lambda: list(reader.plain.read(queue, **options)))


@asynccontextmanager
async def _entered(block: AbstractContextManager[T]) -> AsyncIterator[T]:
    """A plain block whose ends may wait, so they run in a thread."""
    value = await asyncio.to_thread(block.__enter__)
    try:
        yield value
    except BaseException as error:
        raised = error
        await asyncio.to_thread(lambda: block.__exit__(type(raised), raised, raised.__traceback__))
        raise
    await asyncio.to_thread(block.__exit__, None, None, None)


class _InThreads:
    """A plain client under the names of the async one: what waits there is called in a thread here."""

    def __init__(self, plain: Any, kind: object) -> None:
        self.plain = plain
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.plain, name)
        if name == "send_nowait":
            return lambda *args, **options: asyncio.wrap_future(method(*args, **options))
        if name == "transaction":
            return lambda *args, **options: _entered(method(*args, **options))
        if not inspect.iscoroutinefunction(getattr(self._kind, name)):
            return method
        return lambda *args, **options: asyncio.to_thread(method, *args, **options)


@dataclass(frozen=True, slots=True)
class ClientKit:
    """Clients of a kind at the broker of a lane."""

    adapter: Adapter
    lane: Lane

    @property
    def is_plain(self) -> bool:
        """Whether these are the clients without asyncio."""
        return isinstance(self.adapter, PlainAdapter)

    @property
    def broker(self) -> str:
        """The kind of the broker: KOUROU, or a version of Apache's."""
        return self.lane.broker

    def new_name(self, purpose: str) -> str:
        """A name that nothing else has."""
        return self.lane.new_name(f"{purpose}-{self.adapter.name}")

    async def new_topic(self, purpose: str, queues: int = 4) -> str:
        """A topic that no other scenario has."""
        return await asyncio.to_thread(self.lane.new_topic, f"{purpose}-{self.adapter.name}", queues)

    def producer(self, **options: Any) -> AbstractAsyncContextManager[AsyncProducer]:
        """A producer with a group of its own."""
        return self.adapter.use(AsyncProducer, self.new_name("senders"), **self.with_defaults(options))

    def transaction_producer(
        self, check: Callable[[MessageExt], TransactionState], group: str = "", **options: Any
    ) -> AbstractAsyncContextManager[AsyncTransactionProducer]:
        """A transaction producer."""
        return self.adapter.use(
            AsyncTransactionProducer,
            group or self.new_name("tx-senders"),
            check=self.adapter.function(check),
            **self.with_defaults(options),
        )

    @asynccontextmanager
    async def push_consumer(
        self, topic: str, inbox: Inbox, expression: str = "*", *, group: str = "", **options: Any
    ) -> AsyncIterator[AsyncPushConsumer]:
        """A push consumer of one topic, from its first message on unless the options say otherwise."""
        expression_type = options.pop("expression_type", "TAG")
        options = {"consume_from": "first", "rebalance_interval_ms": 1_000, **self.with_defaults(options)}
        async with self.adapter.use(
            AsyncPushConsumer, group or self.new_name("group"), **options
        ) as consumer:
            handler = self.adapter.function(inbox.take)
            await consumer.subscribe(topic, expression, handler, expression_type=expression_type)
            yield consumer

    def pull_consumer(self, **options: Any) -> AbstractAsyncContextManager[AsyncPullConsumer]:
        """A pull consumer with a group of its own."""
        return self.adapter.use(AsyncPullConsumer, self.new_name("pullers"), **self.with_defaults(options))

    def lite_pull_consumer(
        self, group: str = "", **options: Any
    ) -> AbstractAsyncContextManager[AsyncLitePullConsumer]:
        """A lite pull consumer."""
        group = group or self.new_name("pollers")
        return self.adapter.use(AsyncLitePullConsumer, group, **self.with_defaults(options))

    def with_defaults(self, options: dict[str, Any]) -> dict[str, Any]:
        """Where to connect, and news of routes and clients soon."""
        return {
            "namesrv": self.lane.cluster.namesrv,
            "poll_namesrv_interval_ms": 1_000,
            "heartbeat_interval_ms": 1_000,
            "request_timeout_ms": 10_000,
            **options,
        }

    # -- what is stored --------------------------------------------------------------------------

    async def wait_topic(self, topic: str) -> None:
        """Wait until the name server knows a topic that the broker creates by itself."""
        cluster = self.lane.cluster
        await asyncio.to_thread(wire.wait_route, cluster.namesrv, topic, cluster.broker.address)

    async def stored(self, topic: str, count: int) -> dict[str, MessageExt]:
        """All messages of a topic by id, once these are so many, as an async pull consumer reads them."""
        options = self.with_defaults({})
        async with AsyncPullConsumer(self.new_name("stored"), **options) as consumer:
            deadline = time.monotonic() + WAIT_S
            while len(found := await _read_all(consumer, topic)) < count:
                assert time.monotonic() < deadline, f"{topic} has {len(found)} messages of {count}"
                await asyncio.sleep(0.05)
            return {message.msg_id: message for message in found}


async def _read_all(consumer: AsyncPullConsumer, topic: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    for queue in await consumer.fetch_queues(topic):
        async with QueueReader(queue, consumer=consumer) as chunks:
            async for chunk in chunks:
                found += chunk.messages()
    return found


ADAPTERS: Final[dict[str, Adapter]] = {"async": AsyncAdapter(), "plain": PlainAdapter()}
"""Both kinds, by name."""


def kits_at(lane: Lane) -> list[ClientKit]:
    """Kits of both kinds; at Apache's brokers, outside of nightly runs, of the async clients alone."""
    names = ADAPTERS if NIGHTLY or lane.broker == KOUROU else ("async",)
    return [ClientKit(ADAPTERS[name], lane) for name in names]


LANES_OF_KITS: Final = {KOUROU: f"5.5.0-{KOUROU}", "4.9.7": "4.9.8-4.9.7", "5.5.0": "5.5.0-5.5.0"}
"""The lane that has a broker; which client it has beside ours makes no difference."""
