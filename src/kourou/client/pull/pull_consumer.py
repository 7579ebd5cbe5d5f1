"""AsyncPullConsumer: the application chooses queue and offset, and keeps track of its progress.

For programs that keep their own offsets, or none. Not here: sharing queues in a group and pulling in the
background (lite_pull_consumer.py), reading in bulk (queue_reader.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Final, Self, Unpack

from kourou.argument_types import check_int, wrong_type
from kourou.client.core.client_blocks import AsyncBlockOnly
from kourou.client.core.instance import ClientInstance
from kourou.client.core.message_checks import check_group
from kourou.client.core.namespaces import Namespace
from kourou.client.core.queue_offsets import QueueAddresses, QueueEnd, QueueOffsets
from kourou.client.core.settings import ClientOptions, ClientSettings, check_option_names, lists_options
from kourou.client.core.subscription import ExpressionType, subscription_data, warn_of_unlikely_tags
from kourou.client.pull.pulls import PULL_TIMEOUT_MS, SUSPENDED_PULL_TIMEOUT_MS, PullResult, QueuePulls
from kourou.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from kourou.protocol.tags import SUB_ALL
from kourou.transport.request import Processor

DEFAULT_SUSPEND_MS: Final = 20_000


@lists_options(ClientSettings)
class AsyncPullConsumer(AsyncBlockOnly):
    """Pulls single queues; for asyncio. The sync client is `PullConsumer`.

        async with AsyncPullConsumer("readers", namesrv="127.0.0.1:9876") as consumer:
            for queue in await consumer.fetch_queues("TopicTest"):
                queue_offset = await consumer.min_offset(queue)
                while True:
                    result = await consumer.pull(queue, queue_offset=queue_offset)
                    for message in result.messages():
                        print(message.body)
                    queue_offset = result.next_begin_offset
                    if result.status is not PullStatus.FOUND:
                        break
                await consumer.commit(queue, queue_offset)

    `suspend_ms` is how long a broker holds a pull that may wait, `suspended_pull_timeout_ms` the timeout of
    such a pull. `options` are those of ClientSettings.
    """

    def __init__(
        self,
        group: str,
        *,
        pull_timeout_ms: int = PULL_TIMEOUT_MS,
        suspend_ms: int = DEFAULT_SUSPEND_MS,
        suspended_pull_timeout_ms: int = SUSPENDED_PULL_TIMEOUT_MS,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_group(group)
        check_int("pull_timeout_ms", pull_timeout_ms, at_least=1)
        check_int("suspend_ms", suspend_ms, at_least=0)
        check_int("suspended_pull_timeout_ms", suspended_pull_timeout_ms, at_least=1)
        if suspended_pull_timeout_ms <= suspend_ms:
            raise ValueError("suspended_pull_timeout_ms must be longer than suspend_ms")
        own = ("pull_timeout_ms", "suspend_ms", "suspended_pull_timeout_ms")
        check_option_names(options, own, ClientSettings, "a pull consumer")
        settings = ClientSettings(**options)
        self.group = group
        namesrv = settings.namesrv if isinstance(settings.namesrv, str) else ""
        self._namespace = Namespace.of(settings.namespace, namesrv)
        self.wire_group = self._namespace.wrap(group)
        """The group as brokers know it."""
        self._pull_timeout_ms = pull_timeout_ms
        self._suspend_ms = suspend_ms
        self._suspended_pull_timeout_ms = suspended_pull_timeout_ms
        self._topics: dict[str, SubscriptionData] = {}
        self.instance = ClientInstance(settings, self, title=f"pull consumer {group}")
        addresses = QueueAddresses(self.instance)
        self._pulls = QueuePulls(self.instance, self.wire_group, addresses)
        self._offsets = QueueOffsets(self.instance, self.wire_group, addresses)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect. Errors name the step that failed."""
        await self.instance.start()

    async def stop(self) -> None:
        """Disconnect; uncommitted offsets are lost. May be called twice."""
        await self.instance.stop()

    async def wait_failed(self) -> None:
        """Wait until a background task fails and raise its error; return after `stop`."""
        await self.instance.wait_failed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def register_topic(self, topic: str) -> None:
        """Register that the group reads a topic; `pull` does so automatically."""
        wire_topic = self.wire_topic(topic)
        self._topics.setdefault(wire_topic, subscription_data(wire_topic))

    # -- queues and offsets ----------------------------------------------------------------------

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic; NoRouteError when it does not exist."""
        self.instance.check_running()
        route = await self.instance.routes.get(self.wire_topic(topic))
        return [self.shown(queue) for queue in route.subscribe_queues]

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will have."""
        return await self._offsets.max_offset(self._inner(queue))

    async def queue_end(self, queue: MessageQueue) -> QueueEnd:
        """The same, with the id of the broker that returned it: a slave may not have everything yet."""
        return await self._offsets.end(self._inner(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's first message that still exists."""
        return await self._offsets.min_offset(self._inner(queue))

    async def search_offset(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time; a number is milliseconds since 1970. Apache 4.9 returns
        the previous one if that is nearer in time."""
        return await self._offsets.search(self._inner(queue), when)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when it never committed."""
        return await self._offsets.committed(self._inner(queue))

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit `queue_offset`, the next offset to consume; on return the broker has it."""
        await self._offsets.commit(self._inner(queue), queue_offset)

    # -- pulls -----------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        expression: str = SUB_ALL,
        *,
        queue_offset: int,
        max_messages: int = 32,
        max_bytes: int | None = None,
        expression_type: ExpressionType = "TAG",
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Pull messages from `queue_offset`, without waiting. Continue at `next_begin_offset` of the result,
        whatever its status. A broker may return less than requested."""
        return await self._pull(
            queue, expression, expression_type, queue_offset, max_messages, max_bytes, 0,
            self._pull_timeout_ms if timeout_ms is None else timeout_ms,
        )  # fmt: skip

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str = SUB_ALL,
        *,
        queue_offset: int,
        max_messages: int = 32,
        max_bytes: int | None = None,
        expression_type: ExpressionType = "TAG",
    ) -> PullResult:
        """The same, but if there is nothing yet the broker waits for a message up to `suspend_ms`."""
        return await self._pull(
            queue, expression, expression_type, queue_offset, max_messages, max_bytes, self._suspend_ms,
            self._suspended_pull_timeout_ms,
        )  # fmt: skip

    async def _pull(
        self,
        queue: MessageQueue,
        expression: str,
        expression_type: ExpressionType,
        queue_offset: int,
        max_messages: int,
        max_bytes: int | None,
        suspend_ms: int,
        timeout_ms: int,
    ) -> PullResult:
        check_int("queue_offset", queue_offset)
        check_int("max_messages", max_messages)
        if max_bytes is not None:
            check_int("max_bytes", max_bytes)
        check_int("timeout_ms", timeout_ms)
        if queue_offset < 0 or max_messages < 1:
            raise ValueError(
                f"pull from an offset >= 0, at least one message; not {queue_offset}, {max_messages}"
            )
        inner = self._inner(queue)
        data = subscription_data(inner.topic, expression, expression_type)
        if inner.topic not in self._topics:
            warn_of_unlikely_tags(queue.topic, data)
            self._topics[inner.topic] = data
        result = await self._pulls.pull(
            inner,
            data,
            queue_offset=queue_offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms,
        )
        return replace(result, tags=frozenset(data.tags_set), namespace=self._namespace.name)

    def _inner(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        if not isinstance(queue, MessageQueue):
            raise wrong_type("queue", "a MessageQueue", queue)
        if not self._namespace.name:
            return queue
        return MessageQueue(self.wire_topic(queue.topic), queue.broker_name, queue.queue_id)

    def wire_topic(self, topic: str) -> str:
        """The topic as brokers know it."""
        return self._namespace.wrap(topic)

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue as users know it, without namespace."""
        return MessageQueue(self._namespace.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    # -- registration ----------------------------------------------------------------------------

    def producer_groups(self) -> Iterable[str]:
        return ()

    def consumer_data(self) -> Iterable[ConsumerData]:
        """The group, with the topics that were pulled from."""
        return (
            ConsumerData(
                group_name=self.wire_group,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=list(self._topics.values()),
            ),
        )

    def topics(self) -> Iterable[str]:
        return self._topics

    def processors(self) -> Mapping[int, Processor]:
        """None: brokers send it no requests."""
        return {}
