"""LitePullConsumer: the sync client over AsyncLitePullConsumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Unpack

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.subscription import ExpressionType
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer, LitePullStats
from kourou.client.pull.lite_pull_options import LitePullKeywords, LitePullOptions
from kourou.client.sync.sync_client import SyncClient
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from kourou.protocol.tags import SUB_ALL


@lists_options(LitePullOptions, ClientSettings)
class LitePullConsumer(SyncClient[AsyncLitePullConsumer]):
    """The application polls, the consumer pulls ahead and tracks its offsets.

        with LitePullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            while True:
                for message in consumer.poll(timeout_ms=1000):
                    print(message.body)

    Either `subscribe`: the queues of a topic are shared with the other members of the group; or `assign`: the
    application chooses the queues it reads. One consumer cannot do both.

    Delivery is at least once. With `auto_commit` the messages of a poll count as consumed when the next poll
    begins; a `with` block that is left by an exception does not commit the messages of the last poll. Hence
    only one thread may poll. Keyword arguments are those of LitePullOptions and ClientSettings.
    """

    def __init__(self, group: str, **keywords: Unpack[LitePullKeywords]) -> None:
        super().__init__(AsyncLitePullConsumer(group, **keywords))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop(self._client.stop if kind is None else self._client.stop_unfinished)

    @property
    def group(self) -> str:
        """The consumer group, as it was given."""
        return self._client.group

    @property
    def options(self) -> LitePullOptions:
        """The options of this consumer."""
        return self._client.options

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._client.client_id

    # -- which queues ----------------------------------------------------------------------------

    def subscribe(
        self, topic: str, expression: str = SUB_ALL, *, expression_type: ExpressionType = "TAG"
    ) -> None:
        """Share the queues of `topic` with the group and get what `expression` selects: tags
        (`TagA || TagB`), or with `expression_type="SQL92"` a condition on properties. All members of a
        group have to subscribe to the same. Before or after `start`."""
        self._call_early(lambda: self._client.subscribe(topic, expression, expression_type=expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic; its queues go to other members at once."""
        self._call_early(lambda: self._client.unsubscribe(topic))

    def assign(
        self,
        queues: Iterable[MessageQueue],
        expression: str = SUB_ALL,
        *,
        expression_type: ExpressionType = "TAG",
    ) -> None:
        """Read exactly these queues, whatever other consumers read. Queues that were already assigned keep
        their position. Before or after `start`."""
        wanted = list(queues)
        self._call_early(lambda: self._client.assign(wanted, expression, expression_type=expression_type))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._do(self._client.assignment)

    def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic; NoRouteError when it does not exist."""
        return self._call(lambda: self._client.fetch_queues(topic))

    def on_topic_change(self, topic: str, listener: Callable[[str, list[MessageQueue]], None]) -> None:
        """Have `listener(topic, queues)` called when the queues of `topic` are others than now. It runs in a
        thread, so it may call this consumer, for example `assign`."""

        async def in_thread(topic: str, queues: list[MessageQueue]) -> None:
            await asyncio.to_thread(listener, topic, queues)

        self._call(lambda: self._client.on_topic_change(topic, in_thread))

    # -- messages --------------------------------------------------------------------------------

    def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """The next messages, at most `pull_batch_size`, all of one queue; empty when none arrived within
        `timeout_ms` (default: `poll_timeout_ms`). Messages of the previous poll now count as consumed."""
        return self._call(lambda: self._client.poll(timeout_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Poll nothing of these queues until `resume`. Messages already pulled are kept."""
        self._do(lambda: self._client.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Poll these queues again."""
        self._do(lambda: self._client.resume(queues))

    # -- offsets ---------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue at another offset; ValueError when the queue does not contain it."""
        self._call(lambda: self._client.seek(queue, queue_offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that still exists."""
        self._call(lambda: self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the last message, with new ones."""
        self._call(lambda: self._client.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, when: datetime | int) -> None:
        """Continue at the first message stored at or after a time; a number is milliseconds since 1970.
        Apache 4.9 returns the previous one if that is nearer in time."""
        self._call(lambda: self._client.seek_to_time(queue, when))

    def search_offset(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time."""
        return self._call(lambda: self._client.search_offset(queue, when))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything that was polled, or these offsets (each of the next message to consume). On
        return they are stored."""
        self._call(lambda: self._client.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group; None when it never committed."""
        return self._call(lambda: self._client.committed(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset up to which the queue was polled; None until it is known."""
        return self._do(lambda: self._client.position(queue))

    def stats(self) -> LitePullStats:
        """Counters of polled and of pulled, unpolled messages."""
        return self._do(self._client.stats)
