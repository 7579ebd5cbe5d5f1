"""AsyncPushConsumer: calls a handler for every message of the topics it subscribes to.

    async def on_message(message: MessageExt) -> None:
        print(message.topic, message.body)

    async with AsyncPushConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        await consumer.subscribe("TopicTest", "TagA || TagB", on_message)
        await consumer.wait()

Delivery is at least once: after a crash, a rebalance or a lost response a message may be delivered again, so
handlers have to be idempotent (see idempotence.py). If a handler

- returns None or ConsumeResult.SUCCESS, the message is consumed;
- raises, that is logged, and the message is delivered again after increasing delays (10 s, 30 s, 1 min …),
  at most 16 times, then it goes to `%DLQ%group`. An orderly consumer retries it in place. A broadcasting one
  does not retry;
- returns ConsumeResult.LATER, the same happens, but nothing is logged;
- calls `stop`, the call begins the stop, which waits for this handler too, and returns;
- raises CancelledError without having been cancelled, that counts as any other exception;
- takes longer than `consume_timeout_ms`, an async one is cancelled and a sync one keeps its thread; either
  way the message is sent back with delay level 3. Orderly consumers have no such limit;
- never returns, `stop` waits `stop_timeout_ms` for it, then cancels it, or abandons its thread. Its message
  is not acknowledged, and delivered again.

With `mode="pop"` messages are popped (pop_service.py): a message whose handler takes longer than
`invisible_ms` is delivered again meanwhile, and one that has failed waits at the broker, invisible.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack, overload

from kourou.client.core.client_blocks import ASYNC_NOT_STARTED, AsyncBlockOnly
from kourou.client.core.instance import ClientInstance
from kourou.client.core.message_checks import check_group, check_topic
from kourou.client.core.namespaces import Namespace
from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.stop_once import StopOnce, is_handler_of, signals_call
from kourou.client.core.subscription import (
    ExpressionType,
    Subscription,
    Subscriptions,
    subscription_data,
    warn_of_unlikely_tags,
)
from kourou.client.push.consumer_calls import ConsumerCalls
from kourou.client.push.consumer_options import ConsumerKeywords, ConsumerOptions, split_consumer_keywords
from kourou.client.push.consumer_stats import ConsumerStats
from kourou.client.push.handlers import MessageHandler, bound_handler, handler_of
from kourou.client.push.push_engine import PushEngine
from kourou.errors import ClientStateError
from kourou.protocol.bodies import ConsumerData, ConsumeType, MessageQueue
from kourou.protocol.names import retry_topic
from kourou.protocol.tags import SUB_ALL
from kourou.transport.request import Processor

_log = logging.getLogger(__name__)


@lists_options(ConsumerOptions, ClientSettings)
class AsyncPushConsumer(AsyncBlockOnly):
    """A member of a consumer group. Keyword arguments are those of ConsumerOptions and ClientSettings.

    Topics may be subscribed to before and after `start`, and unsubscribed from at any time.
    """

    def __init__(self, group: str, **keywords: Unpack[ConsumerKeywords]) -> None:
        check_group(group)
        self.options, self.settings = split_consumer_keywords(keywords)
        namesrv = self.settings.namesrv if isinstance(self.settings.namesrv, str) else ""
        self._namespace = Namespace.of(self.settings.namespace, namesrv)
        self.group = group
        self._wire_group = self._namespace.wrap(group)
        self._subscriptions = Subscriptions()
        self._engine: PushEngine | None = None
        self._stopped: asyncio.Event | None = None
        self._is_paused = False
        self._stop_once = StopOnce(f"consumer {group}")
        self._is_failure_reported = False
        self._role = _Role(self._wire_group, self)
        self._instance = ClientInstance(
            self.settings,
            self._role,
            title=f"push consumer {group}",
            is_shared_id=self.options.is_broadcasting,
        )

    # -- subscriptions ---------------------------------------------------------------------------

    @overload
    async def subscribe(
        self, topic: str, handler: MessageHandler, /, *, expression_type: ExpressionType = ...
    ) -> None: ...
    @overload
    async def subscribe(
        self,
        topic: str,
        expression: str,
        handler: MessageHandler,
        *,
        expression_type: ExpressionType = ...,
    ) -> None: ...
    @overload
    async def subscribe(
        self,
        topic: str,
        expression: str = ...,
        *,
        handler: MessageHandler,
        expression_type: ExpressionType = ...,
    ) -> None: ...
    async def subscribe(
        self,
        topic: str,
        expression: str | MessageHandler = SUB_ALL,
        handler: MessageHandler | None = None,
        *,
        expression_type: ExpressionType = "TAG",
    ) -> None:
        """Call `handler` for the messages of `topic` that `expression` selects.

        `expression` lists tags (`TagA || TagB`), with `expression_type="SQL92"` it is a condition on
        properties, with "PLUGIN" the name and the parameters of a filter that is installed at the brokers. It
        may be left out: `subscribe("TopicTest", handler)`. All members of a group must have the same
        subscriptions. A second subscription to a topic replaces the first; a different handler is logged.
        """
        await self._subscribe(topic, expression, handler, expression_type=expression_type)

    async def _subscribe(
        self,
        topic: str,
        expression: str | MessageHandler,
        handler: MessageHandler | None,
        *,
        expression_type: ExpressionType,
    ) -> None:
        if not isinstance(expression, str):
            if handler is not None:
                raise TypeError("the expression must be text, before the handler")
            handler, expression = expression, SUB_ALL
        if handler is None:
            raise TypeError("subscribe needs a handler: a function of a message")
        check_topic(topic)
        data = subscription_data(self._namespace.wrap(topic), expression, expression_type)
        warn_of_unlikely_tags(topic, data)
        found = handler_of(bound_handler(handler, self.options.offsets, self._wire_group))
        self._subscriptions.add(topic, Subscription.of(data, found))
        if self._engine is not None:
            self._instance.check_running()
            await self._subscribed(self._engine, data.topic)

    async def _subscribed(self, engine: PushEngine, topic: str) -> None:
        """Apply a new subscription to the running consumer."""
        await self._instance.routes.refresh(topic)
        await engine.check_subscription(topic)
        engine.resubscribed(topic)
        await self._instance.heartbeat()
        engine.rebalancer.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; its queues go to other members at once."""
        self._subscriptions.remove(topic, self._namespace.wrap(topic))
        if self._engine is not None:
            await self._instance.heartbeat()
            self._engine.rebalancer.wake()

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and begin to consume. Errors name the step that failed; then nothing runs."""
        if self._engine is not None:
            raise ClientStateError("this consumer was started before; make a new one")
        if not self.options.is_broadcasting:
            data = subscription_data(retry_topic(self._wire_group))
            self._subscriptions.add(data.topic, Subscription.of(data, None))
        await self._instance.start()
        try:
            engine = PushEngine(
                self._instance, self._wire_group, self._namespace, self.options, self._subscriptions
            )
            await engine.start()
        except BaseException:
            await self._instance.stop()
            raise
        self._stopped = asyncio.Event()
        self._engine = engine
        if self._is_paused:
            engine.pause()

    async def stop(self) -> None:
        """Let handlers finish, within `stop_timeout_ms`, store offsets, unregister. Messages that no handler
        has started go to other members. May be called twice. In a handler of this consumer the call only
        begins the stop, which waits for that handler too."""
        engine = self._engine
        if engine is None:
            return
        self.refuse()
        if self.is_handler_calling:
            self._stop_once.begin(lambda: self._end(engine))
        else:
            await self._stop_once.wait(lambda: self._end(engine))

    def refuse(self) -> None:
        """Start no more handlers: the first step of `stop`."""
        if self._engine is not None:
            self._engine.refuse()

    def refuse_threads(self) -> None:
        """The same for sync handlers, from any thread."""
        if self._engine is not None:
            self._engine.service.refuse_threads()

    async def _end(self, engine: PushEngine) -> None:
        try:
            await engine.stop(self.options.stop_timeout_ms / 1000)
        finally:
            try:
                await self._instance.stop()
            finally:
                assert self._stopped is not None
                self._stopped.set()

    @property
    def is_handler_calling(self) -> bool:
        """Whether the caller is a handler of this consumer, or a task that one started."""
        return self._engine is not None and is_handler_of(self._engine.calls.threads)

    @property
    def is_stopped(self) -> bool:
        """Whether it was started, and stopped."""
        return self._stopped is not None and self._stopped.is_set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if kind is None:
            self.raise_unreported()

    def raise_unreported(self) -> None:
        """ClientStateError if a background task failed and that was not raised yet; called at the end of a
        `with` block."""
        failure = None if self._engine is None else self._engine.failure
        if failure is not None and not self._is_failure_reported:
            self._is_failure_reported = True
            raise ClientStateError(f"this consumer has failed: {failure!r}") from failure

    async def wait(self) -> None:
        """Wait until the consumer is stopped; the error of a failed background task is raised."""
        _, stopped = self._running()
        if not len(self._subscriptions):
            _log.warning("consumer %s waits for messages, and is subscribed to no topic yet", self.group)
        failed = asyncio.ensure_future(self._instance.wait_failed())
        ended = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait([failed, ended], return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                self._is_failure_reported = True
                await failed
            await stopped.wait()
        finally:
            failed.cancel()
            ended.cancel()
            await asyncio.wait([failed, ended])

    async def run(self) -> None:
        """Start if necessary, consume until `stop`, Ctrl-C or SIGTERM, then stop. Signals are handled in the
        main thread only, and the previous handlers restored at the end."""
        if self._engine is None:
            await self.start()
        engine = self._engine
        assert engine is not None
        try:
            with signals_call(lambda: self._stop_once.begin(lambda: self._end(engine))):
                await self.wait_stopped()
        finally:
            await self.stop()

    async def wait_stopped(self) -> None:
        """Like `wait`, but also if the stop has already begun, or is complete."""
        if self._stop_once.is_begun:
            await self.stop()
        else:
            await self.wait()

    # -- while it runs ---------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop pulling until `resume`; messages already pulled are consumed."""
        self._is_paused = True
        if self._engine is not None:
            self._engine.pause()

    def resume(self) -> None:
        """Continue pulling."""
        self._is_paused = False
        if self._engine is not None:
            self._engine.resume()

    def stats(self) -> ConsumerStats:
        """Counters of consumed messages, and of pulled ones that are not consumed yet."""
        if self._engine is None:
            return ConsumerStats({}, 0, 0, 0, 0, 0)
        return self._engine.statistics()

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._instance.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues assigned to this consumer now, including those of the retry topic. With `mode="pop"`: a
        queue with the id -1 for all queues of a broker."""
        return [] if self._engine is None else self._engine.queues

    def _running(self) -> tuple[PushEngine, asyncio.Event]:
        self._instance.check_running()
        if self._engine is None or self._stopped is None:
            raise ClientStateError(ASYNC_NOT_STARTED)
        return self._engine, self._stopped


class _Role:
    """What the consumer registers with brokers."""

    def __init__(self, wire_group: str, consumer: AsyncPushConsumer) -> None:
        self._group = wire_group
        self._consumer = consumer
        self._calls = ConsumerCalls(wire_group, lambda: consumer._engine)

    def producer_groups(self) -> Iterable[str]:
        """None: sending retries needs no registration."""
        return ()

    def consumer_data(self) -> Iterable[ConsumerData]:
        """The group and its subscriptions. None before the first subscription: brokers would replace those of
        the group by none, for all members."""
        if self._consumer._subscriptions.is_new:
            return []
        options = self._consumer.options
        return [
            ConsumerData(
                group_name=self._group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=options.message_model,
                consume_from_where=options.consume_from_where,
                subscription_data_set=self._consumer._subscriptions.data(),
            )
        ]

    def topics(self) -> Iterable[str]:
        return self._consumer._subscriptions.topics

    def processors(self) -> Mapping[int, Processor]:
        return self._calls.processors()
