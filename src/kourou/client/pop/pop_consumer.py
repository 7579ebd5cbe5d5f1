"""AsyncPopConsumer: the application receives messages on loan, and acknowledges each by itself.

Every consumer of a group gets messages of every queue, so any number of consumers share a topic, whatever
its number of queues, and a slow message holds up no other. A message that is neither acknowledged nor
returned is delivered again when its invisible time is over.
Not here: a handler for each message (`AsyncPushConsumer` with `mode="pop"`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack, overload

from kourou.argument_types import check_int
from kourou.client.core.client_blocks import ASYNC_NOT_STARTED, AsyncBlockOnly
from kourou.client.core.instance import ClientInstance
from kourou.client.core.message_checks import check_group, check_topic
from kourou.client.core.namespaces import Namespace
from kourou.client.core.running_properties import running_properties, thread_stacks
from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.stop_once import StopOnce
from kourou.client.core.subscription import (
    ExpressionType,
    Subscription,
    Subscriptions,
    now_ms,
    subscription_data,
    warn_of_unlikely_tags,
)
from kourou.client.pop.lease_calls import LeaseCalls, check_invisible_ms
from kourou.client.pop.pop_calls import PopCalls
from kourou.client.pop.pop_options import PopKeywords, PopOptions, split_pop_keywords
from kourou.client.pop.popped import LeasedMessage, message_fields
from kourou.client.pop.receiver import Receiver
from kourou.errors import ClientStateError, RequestError
from kourou.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.clients import GetConsumerRunningInfoRequestHeader
from kourou.protocol.tags import SUB_ALL
from kourou.transport.request import Processor, Request


class PopEngine:
    """The parts of a started consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        wire_group: str,
        namespace: Namespace,
        options: PopOptions,
        subscriptions: Subscriptions,
    ) -> None:
        calls = PopCalls(instance, wire_group, namespace)
        self.options = options
        self.started_ms = now_ms()
        self.leases = LeaseCalls(instance, calls)
        self.receiver = Receiver(
            instance,
            wire_group,
            calls,
            self.leases,
            subscriptions,
            is_from_first=options.consume_from == "first",
        )

    async def receive(
        self, max_messages: int | None, wait_ms: int | None, invisible_ms: int | None
    ) -> list[LeasedMessage]:
        """Receive, with the options for what is not given."""
        options = self.options
        return await self.receiver.receive(
            options.max_messages if max_messages is None else max_messages,
            options.wait_ms if wait_ms is None else wait_ms,
            options.invisible_ms if invisible_ms is None else invisible_ms,
        )

    async def stop(self, timeout_s: float) -> None:
        """Send the acks that wait, and return what nothing received."""
        await self.receiver.stop()
        await self.leases.acks.stop(timeout_s)


class AsyncPoppedMessage(LeasedMessage, kw_only=True, eq=False):
    """A message that was received, until it is acknowledged or returned, or its invisible time is over.

    `async with message:` acknowledges it at the end, or returns it if the block raises, unless the block did
    so itself.
    """

    leases: LeaseCalls

    async def ack(self) -> None:
        """Acknowledge it: it is not delivered again. LeaseExpiredError if its invisible time is over."""
        await self.leases.ack(self)

    async def nack(self, *, delay_ms: int | None = None) -> None:
        """Have it delivered again after `delay_ms`, to any consumer of the group. None: after 10 s, 30 s,
        1 min … 2 h, by the number of deliveries before. Brokers round up to seconds."""
        await self.leases.nack(self, delay_ms)

    async def extend(self, invisible_ms: int) -> None:
        """Keep it for `invisible_ms` from now. LeaseExpiredError if its invisible time is over."""
        await self.leases.extend(self, invisible_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leases.end_block([self], is_failed=kind is not None)


class AsyncPopBatch(Sequence[AsyncPoppedMessage]):
    """The messages of one `receive`.

    `async with batch:` acknowledges at the end all messages that are still held, or returns them if the block
    raises.
    """

    def __init__(self, messages: Sequence[AsyncPoppedMessage], leases: LeaseCalls) -> None:
        self._messages = messages
        self._leases = leases

    @overload
    def __getitem__(self, index: int) -> AsyncPoppedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AsyncPoppedMessage]: ...
    def __getitem__(self, index: int | slice) -> AsyncPoppedMessage | Sequence[AsyncPoppedMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    async def ack(self) -> None:
        """Acknowledge all, in as few requests as possible. The first failure is raised once all are
        answered."""
        await self._leases.ack_all(self._messages)

    async def nack(self, *, delay_ms: int | None = None) -> None:
        """Have all delivered again."""
        await self._leases.nack_all(self._messages, delay_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leases.end_block(self._messages, is_failed=kind is not None)


@lists_options(PopOptions, ClientSettings)
class AsyncPopConsumer(AsyncBlockOnly):
    """Receives messages on loan; for asyncio. The sync client is `PopConsumer`.

        async with AsyncPopConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            await consumer.subscribe("TopicTest", "TagA || TagB")
            async for message in consumer.messages():
                async with message:
                    print(message.body)

    Needs brokers of RocketMQ 5, or Kourou. Any number of tasks may receive. Keyword arguments are those of
    PopOptions and ClientSettings.
    """

    def __init__(self, group: str, **keywords: Unpack[PopKeywords]) -> None:
        check_group(group)
        self.options, self.settings = split_pop_keywords(keywords)
        namesrv = self.settings.namesrv if isinstance(self.settings.namesrv, str) else ""
        self._namespace = Namespace.of(self.settings.namespace, namesrv)
        self.group = group
        self._wire_group = self._namespace.wrap(group)
        self._subscriptions = Subscriptions()
        self._engine: PopEngine | None = None
        self._stop_once = StopOnce(f"POP consumer {group}")
        self._instance = ClientInstance(self.settings, _Role(self), title=f"POP consumer {group}")

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect. Errors name the step that failed."""
        await self._instance.start()
        self._engine = PopEngine(
            self._instance, self._wire_group, self._namespace, self.options, self._subscriptions
        )

    async def stop(self) -> None:
        """Send the acks that wait, and disconnect. Messages that were received and neither acknowledged nor
        returned are delivered again when their invisible time is over. May be called twice."""
        engine = self._engine
        if engine is not None:
            await self._stop_once.wait(lambda: self._end(engine))

    async def _end(self, engine: PopEngine) -> None:
        try:
            if self._instance.is_running:
                await engine.stop(self.settings.request_timeout_ms / 1000)
        finally:
            await self._instance.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_failed(self) -> None:
        """Wait until a background task fails and raise its error; return after `stop`. `receive` raises it
        too."""
        await self._instance.wait_failed()

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._instance.client_id

    # -- topics ----------------------------------------------------------------------------------

    async def subscribe(
        self, topic: str, expression: str = SUB_ALL, *, expression_type: ExpressionType = "TAG"
    ) -> None:
        """Receive the messages of `topic` that `expression` selects: tags (`TagA || TagB`), or with
        `expression_type="SQL92"` a condition on properties. All members of a group have to subscribe to the
        same. Before or after `start`."""
        check_topic(topic)
        data = subscription_data(self._namespace.wrap(topic), expression, expression_type)
        warn_of_unlikely_tags(topic, data)
        self._subscriptions.add(topic, Subscription.of(data, None))
        if self._engine is not None:
            self._instance.check_running()
            await self._instance.routes.refresh(data.topic)
            await self._instance.heartbeat()

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic."""
        self._subscriptions.remove(topic, self._namespace.wrap(topic))
        if self._engine is not None:
            await self._instance.heartbeat()

    # -- messages --------------------------------------------------------------------------------

    async def receive(
        self, *, max_messages: int | None = None, wait_ms: int | None = None, invisible_ms: int | None = None
    ) -> AsyncPopBatch:
        """Up to `max_messages` messages, as soon as there are any; an empty batch if there is none within
        `wait_ms`. For `invisible_ms` they are invisible to the other consumers of the group. What is not
        given is as in the options.

        Brokers that are away are left out until they return. PopNotSupportedError: none of the brokers has
        POP. NoRouteError: the topic does not exist."""
        found = await self.receive_leased(max_messages, wait_ms, invisible_ms)
        leases = self.leases
        return AsyncPopBatch(
            [AsyncPoppedMessage(*message_fields(each), lease=each.lease, leases=leases) for each in found],
            leases,
        )

    async def receive_leased(
        self, max_messages: int | None, wait_ms: int | None, invisible_ms: int | None
    ) -> list[LeasedMessage]:
        """The same for the sync client, which has messages of its own class."""
        engine = self._running()
        if max_messages is not None:
            check_int("max_messages", max_messages, at_least=1)
        if wait_ms is not None:
            check_int("wait_ms", wait_ms, at_least=0)
        if invisible_ms is not None:
            check_invisible_ms("invisible_ms", invisible_ms)
        if not self._subscriptions.topics:
            raise ClientStateError("this consumer receives nothing yet: subscribe to a topic first")
        return await engine.receive(max_messages, wait_ms, invisible_ms)

    async def messages(self, *, invisible_ms: int | None = None) -> AsyncIterator[AsyncPoppedMessage]:
        """Every message, one received at a time, without end. Use each in an `async with` block."""
        while True:
            for message in await self.receive(max_messages=1, invisible_ms=invisible_ms):
                yield message

    @property
    def leases(self) -> LeaseCalls:
        """Acknowledges and returns messages."""
        return self._running().leases

    def _running(self) -> PopEngine:
        self._instance.check_running()
        if self._engine is None:
            raise ClientStateError(ASYNC_NOT_STARTED)
        return self._engine


class _Role:
    """What the consumer registers with brokers, and the requests that they pass on to it."""

    def __init__(self, consumer: AsyncPopConsumer) -> None:
        self._consumer = consumer

    def producer_groups(self) -> Iterable[str]:
        return ()

    def consumer_data(self) -> Iterable[ConsumerData]:
        """The group and its subscriptions; none before the first subscription."""
        consumer = self._consumer
        if not consumer._subscriptions.topics:
            return []
        return [
            ConsumerData(
                group_name=consumer._wire_group,
                consume_type=ConsumeType.CONSUME_POP,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=_consume_from(consumer.options),
                subscription_data_set=consumer._subscriptions.data(),
            )
        ]

    def topics(self) -> Iterable[str]:
        return self._consumer._subscriptions.topics

    def processors(self) -> Mapping[int, Processor]:
        return {RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info}

    def _running_info(self, request: Request) -> None:
        """What the consumer is and does, for tools."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        consumer = self._consumer
        engine = consumer._engine
        if engine is None or header.consumer_group != consumer._wire_group:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer group <{header.consumer_group}> does not exist in this consumer",
            )
        properties = running_properties(
            group=consumer._wire_group,
            consume_type=ConsumeType.CONSUME_POP,
            namesrv_addresses=consumer._instance.namesrvs.addresses,
            started_ms=engine.started_ms,
        )
        properties |= {
            "messageModel": MessageModel.CLUSTERING.value,
            "consumeFromWhere": _consume_from(consumer.options).value,
            "popBatchNums": str(consumer.options.max_messages),
            "popInvisibleTime": str(consumer.options.invisible_ms),
        }
        info = ConsumerRunningInfo(
            properties=properties,
            subscription_set=consumer._subscriptions.data(),
            mq_pop_table=engine.receiver.describe(),
            jstack=thread_stacks() if header.jstack_enable else None,
        )
        request.reply(body=encode_body(info))


def _consume_from(options: PopOptions) -> ConsumeFromWhere:
    if options.consume_from == "first":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
