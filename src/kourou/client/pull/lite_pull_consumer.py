"""AsyncLitePullConsumer: the application polls, the consumer pulls ahead and tracks its offsets.

Either `subscribe`: the queues of a topic are shared with the other members of the group; or `assign`: the
application chooses the queues it reads. One consumer cannot do both.

Delivery is at least once. With `auto_commit` the messages of a poll count as consumed when the next poll
begins: a program that crashes in between gets them again. Hence only one task or thread may poll.
Not here: what runs in the background (lite_engine.py).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self, TypeAlias, Unpack

from kourou.argument_types import check_int, wrong_type
from kourou.client.core.client_blocks import ASYNC_NOT_STARTED, AsyncBlockOnly
from kourou.client.core.instance import ClientInstance
from kourou.client.core.message_checks import check_group, check_topic
from kourou.client.core.namespaces import Namespace
from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.stop_once import StopOnce
from kourou.client.core.subscription import (
    ExpressionType,
    Subscription,
    Subscriptions,
    subscription_data,
    warn_of_unlikely_tags,
)
from kourou.client.pull.lite_engine import LiteCalls, LiteEngine
from kourou.client.pull.lite_pull_options import LitePullKeywords, LitePullOptions, split_lite_keywords
from kourou.errors import ClientStateError, KourouError
from kourou.protocol.bodies import ConsumerData, ConsumeType, MessageQueue, SubscriptionData
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL
from kourou.transport.request import Processor

_log = logging.getLogger(__name__)

TopicListener: TypeAlias = Callable[[str, list[MessageQueue]], Awaitable[None] | None]
"""Called with a topic and its queues when these have changed."""


@dataclass(frozen=True, slots=True)
class LitePullStats:
    """The counters of a lite pull consumer. `in_hand`: pulled and not yet polled."""

    queues: int
    polled: int
    in_hand: int
    in_hand_bytes: int


@lists_options(LitePullOptions, ClientSettings)
class AsyncLitePullConsumer(AsyncBlockOnly):
    """Polls messages; for asyncio. The sync client is `LitePullConsumer`.

        async with AsyncLitePullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            await consumer.subscribe("TopicTest", "TagA || TagB")
            while True:
                for message in await consumer.poll(timeout_ms=1000):
                    print(message.body)

    Keyword arguments are those of LitePullOptions and ClientSettings.
    """

    def __init__(self, group: str, **keywords: Unpack[LitePullKeywords]) -> None:
        check_group(group)
        self.options, self.settings = split_lite_keywords(keywords)
        namesrv = self.settings.namesrv if isinstance(self.settings.namesrv, str) else ""
        self._namespace = Namespace.of(self.settings.namespace, namesrv)
        self.group = group
        self._wire_group = self._namespace.wrap(group)
        self._subscriptions = Subscriptions()
        self._assigned: dict[MessageQueue, SubscriptionData] | None = None
        self._listeners: dict[str, tuple[TopicListener, list[MessageQueue]]] = {}
        self._engine: LiteEngine | None = None
        self._is_stopping = False
        self._is_warned = False
        self._stop_once = StopOnce(f"lite pull consumer {group}")
        is_shared_id = self.options.model == "broadcasting"
        self._instance = ClientInstance(
            self.settings, _Role(self), title=f"lite pull consumer {group}", is_shared_id=is_shared_id
        )

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and begin to pull. An error names the step that failed; nothing runs then."""
        await self._instance.start()
        engine: LiteEngine | None = None
        try:
            engine = LiteEngine(
                self._instance, self._wire_group, self.options, self._namespace, self._subscriptions
            )
            await engine.start()
            if self._assigned is not None:
                await engine.assign(self._assigned)
        except BaseException:
            await self._end(engine, is_all_done=False)
            raise
        self._instance.every(self.options.topic_check_interval_ms, self._check_topics, "topics")
        self._engine = engine

    async def stop(self) -> None:
        """Commit what was polled, if `auto_commit` is on, and disconnect. May be called twice."""
        await self._stop(is_all_done=True)

    async def stop_unfinished(self) -> None:
        """The same, but messages of the last poll are not committed, and delivered again. A `with` block that
        is left by an exception does this."""
        await self._stop(is_all_done=False)

    async def _stop(self, *, is_all_done: bool) -> None:
        engine = self._engine
        if engine is None:
            return
        self._is_stopping = True
        await self._stop_once.wait(lambda: self._end(engine, is_all_done=is_all_done))

    async def _end(self, engine: LiteEngine | None, *, is_all_done: bool) -> None:
        try:
            if engine is not None and self._instance.is_running:
                await engine.stop(is_all_done=is_all_done)
        finally:
            try:
                await self._instance.stop()
            finally:
                if engine is not None:
                    await engine.wait_ended()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(is_all_done=kind is None)

    async def wait_failed(self) -> None:
        """Wait until a background task fails and raise its error; return after `stop`. `poll` raises it
        too."""
        await self._instance.wait_failed()

    # -- which queues ----------------------------------------------------------------------------

    async def subscribe(
        self, topic: str, expression: str = SUB_ALL, *, expression_type: ExpressionType = "TAG"
    ) -> None:
        """Share the queues of `topic` with the group and get what `expression` selects: tags
        (`TagA || TagB`), or with `expression_type="SQL92"` a condition on properties. All members of a
        group have to subscribe to the same. Before or after `start`."""
        if self._assigned is not None:
            raise ClientStateError("this consumer uses `assign`, so it cannot subscribe")
        check_topic(topic)
        data = subscription_data(self._namespace.wrap(topic), expression, expression_type)
        warn_of_unlikely_tags(topic, data)
        self._subscriptions.add(topic, Subscription.of(data, None))
        if self._engine is not None:
            engine = self._running()
            await self._instance.routes.refresh(data.topic)
            await engine.check_subscription(data)
            for lite in engine.progress():
                if lite.queue.topic == data.topic:
                    lite.subscription = data
            await self._instance.heartbeat()
            engine.start_balancing()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; its queues go to other members at once."""
        self._subscriptions.remove(topic, self._namespace.wrap(topic))
        if self._engine is not None:
            engine = self._running()
            await self._instance.heartbeat()
            engine.rebalancer.wake()

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        expression: str = SUB_ALL,
        *,
        expression_type: ExpressionType = "TAG",
    ) -> None:
        """Read exactly these queues, whatever other consumers read. Queues that were already assigned keep
        their position. Before or after `start`."""
        if self._subscriptions.topics:
            raise ClientStateError("this consumer has subscribed, so it cannot use `assign`")
        self._assigned = {
            inner: subscription_data(inner.topic, expression, expression_type)
            for inner in map(self._inner, queues)
        }
        for data in {each.topic: each for each in self._assigned.values()}.values():
            warn_of_unlikely_tags(self._namespace.unwrap(data.topic), data)
        if self._engine is not None:
            await self._running().assign(self._assigned)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        engine = self._engine
        return [] if engine is None else [self._shown(lite.queue) for lite in engine.progress()]

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic; NoRouteError when it does not exist."""
        self._instance.check_running()
        route = await self._instance.routes.get(self._namespace.wrap(topic))
        return [self._shown(queue) for queue in route.subscribe_queues]

    async def on_topic_change(self, topic: str, listener: TopicListener) -> None:
        """Call `listener(topic, queues)` when the queues of `topic` change; it may be async. Checked every
        `topic_check_interval_ms`; for `assign`, to follow a topic that grows."""
        self._running()
        self._listeners[topic] = (listener, await self.fetch_queues(topic))

    async def _check_topics(self) -> None:
        for topic, (listener, known) in list(self._listeners.items()):
            try:
                route = await self._instance.routes.refresh(self._namespace.wrap(topic))
            except KourouError as error:
                _log.warning("group %s: queues of %s: %s", self.group, topic, error)
                continue
            queues = [] if route is None else [self._shown(queue) for queue in route.subscribe_queues]
            if queues == known:
                continue
            self._listeners[topic] = (listener, queues)
            try:
                result = listener(topic, queues)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # raised by user code
                _log.exception("group %s: the listener of topic %s failed", self.group, topic)

    # -- messages --------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """The next messages, at most `pull_batch_size`, all of one queue; empty when none arrived within
        `timeout_ms` (default: `poll_timeout_ms`). Messages of the previous poll now count as consumed."""
        engine = self._running()
        if timeout_ms is not None:
            check_int("timeout_ms", timeout_ms, at_least=0)
        if not engine.pulls.queues:
            self._warn_without_queues()
        return await engine.poll(self.options.poll_timeout_ms if timeout_ms is None else timeout_ms)

    def _warn_without_queues(self) -> None:
        if self._is_warned or self._subscriptions.topics or self._assigned:
            return
        self._is_warned = True
        _log.warning(
            "lite pull consumer %s polls without a topic or queue; call subscribe() or assign() first",
            self.group,
        )

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Poll nothing of these queues until `resume`. Messages already pulled are kept."""
        self._pause(queues, is_paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Poll these queues again."""
        self._pause(queues, is_paused=False)

    def _pause(self, queues: Iterable[MessageQueue], *, is_paused: bool) -> None:
        engine = self._running()
        for queue in queues:
            engine.pulls.pause(engine.lite_queue(self._inner(queue)), is_paused)

    # -- offsets ---------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue at another offset; ValueError when the queue does not contain it."""
        engine, inner = self._running(), self._inner(queue)
        check_int("queue_offset", queue_offset)
        engine.lite_queue(inner)
        low, high = await asyncio.gather(
            engine.queue_offsets.min_offset(inner), engine.queue_offsets.max_offset(inner)
        )
        if not low <= queue_offset <= high:
            raise ValueError(f"{queue}: offset {queue_offset} is outside [{low}, {high}]")
        # Looked up again: the queue may have gone to another member meanwhile.
        engine.pulls.seek(engine.lite_queue(inner), queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that still exists."""
        engine, inner = self._running(), self._inner(queue)
        queue_offset = await engine.queue_offsets.min_offset(inner)
        engine.pulls.seek(engine.lite_queue(inner), queue_offset)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the last message, with new ones."""
        engine, inner = self._running(), self._inner(queue)
        queue_offset = await engine.queue_offsets.max_offset(inner)
        engine.pulls.seek(engine.lite_queue(inner), queue_offset)

    async def seek_to_time(self, queue: MessageQueue, when: datetime | int) -> None:
        """Continue at the first message stored at or after a time; a number is milliseconds since 1970.
        Apache 4.9 returns the previous one if that is nearer in time."""
        engine, inner = self._running(), self._inner(queue)
        queue_offset = await engine.queue_offsets.search(inner, when)
        engine.pulls.seek(engine.lite_queue(inner), queue_offset)

    async def search_offset(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        return await self._running().queue_offsets.search(self._inner(queue), when)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything that was polled, or these offsets (each of the next message to consume). On
        return they are stored."""
        inner = None if offsets is None else {self._inner(queue): each for queue, each in offsets.items()}
        await self._running().commit(inner)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group; None when it never committed."""
        return await self._running().committed(self._inner(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset up to which the queue was polled; None until it is known."""
        return self._running().lite_queue(self._inner(queue)).polled_offset

    # -- while it runs ---------------------------------------------------------------------------

    def stats(self) -> LitePullStats:
        """Counters of polled and of pulled, unpolled messages."""
        engine = self._engine
        if engine is None:
            return LitePullStats(0, 0, 0, 0)
        queues = engine.pulls.queues.values()
        return LitePullStats(
            queues=len(queues),
            polled=engine.polled,
            in_hand=sum(lite.count for lite in queues),
            in_hand_bytes=sum(lite.size_bytes for lite in queues),
        )

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._instance.client_id

    def _running(self) -> LiteEngine:
        self._instance.check_running()
        if self._engine is None:
            raise ClientStateError(ASYNC_NOT_STARTED)
        if self._is_stopping:
            raise ClientStateError("this client is stopping; make a new one")
        return self._engine

    def _inner(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        if not isinstance(queue, MessageQueue):
            raise wrong_type("queue", "a MessageQueue", queue)
        return MessageQueue(self._namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        """The queue as users know it."""
        return MessageQueue(self._namespace.unwrap(queue.topic), queue.broker_name, queue.queue_id)


class _Role:
    """What the consumer registers with brokers."""

    def __init__(self, consumer: AsyncLitePullConsumer) -> None:
        self._consumer = consumer

    def producer_groups(self) -> Iterable[str]:
        return ()

    def subscriptions(self) -> list[SubscriptionData]:
        """The subscriptions, or those of the assigned queues."""
        assigned = self._consumer._assigned
        if assigned is None:
            return self._consumer._subscriptions.data()
        return list({queue.topic: data for queue, data in assigned.items()}.values())

    def consumer_data(self) -> Iterable[ConsumerData]:
        """The group and its subscriptions."""
        shared = self._consumer.options.shared()
        return [
            ConsumerData(
                group_name=self._consumer._wire_group,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                message_model=shared.message_model,
                consume_from_where=shared.consume_from_where,
                subscription_data_set=self.subscriptions(),
            )
        ]

    def topics(self) -> Iterable[str]:
        """All topics that are subscribed to, or have assigned queues."""
        return [data.topic for data in self.subscriptions()]

    def processors(self) -> Mapping[int, Processor]:
        consumer = self._consumer
        calls = LiteCalls(
            consumer._wire_group, consumer.options, lambda: consumer._engine, self.subscriptions
        )
        return calls.processors()
