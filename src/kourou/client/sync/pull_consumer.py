"""PullConsumer: the sync client over AsyncPullConsumer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Unpack

from kourou.client.core.queue_offsets import QueueEnd
from kourou.client.core.settings import ClientOptions, ClientSettings, lists_options
from kourou.client.core.subscription import ExpressionType
from kourou.client.pull.pull_consumer import DEFAULT_SUSPEND_MS, AsyncPullConsumer
from kourou.client.pull.pulls import PULL_TIMEOUT_MS, SUSPENDED_PULL_TIMEOUT_MS, PullResult
from kourou.client.pull.queue_reader import DEFAULT_MAX_BYTES, QueueChunk, QueueReader
from kourou.client.sync.sync_client import SyncClient
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.tags import SUB_ALL


@lists_options(ClientSettings)
class PullConsumer(SyncClient[AsyncPullConsumer]):
    """Pulls single queues: the application chooses the offsets, and keeps them.

        with PullConsumer("readers", namesrv="127.0.0.1:9876") as consumer:
            for queue in consumer.fetch_queues("TopicTest"):
                queue_offset = consumer.min_offset(queue)
                while True:
                    result = consumer.pull(queue, queue_offset=queue_offset)
                    for message in result.messages():
                        print(message.body)
                    queue_offset = result.next_begin_offset
                    if result.status is not PullStatus.FOUND:
                        break
                consumer.commit(queue, queue_offset)

    `suspend_ms` is how long a broker holds a pull that may wait, `suspended_pull_timeout_ms` the timeout of
    such a pull. `options` are those of ClientSettings. Any number of threads may use it.
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
        super().__init__(
            AsyncPullConsumer(
                group,
                pull_timeout_ms=pull_timeout_ms,
                suspend_ms=suspend_ms,
                suspended_pull_timeout_ms=suspended_pull_timeout_ms,
                **options,
            )
        )

    @property
    def group(self) -> str:
        """The consumer group, as it was given."""
        return self._client.group

    # -- queues and offsets ----------------------------------------------------------------------

    def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic; NoRouteError when it does not exist."""
        return self._call(lambda: self._client.fetch_queues(topic))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will have."""
        return self._call(lambda: self._client.max_offset(queue))

    def queue_end(self, queue: MessageQueue) -> QueueEnd:
        """The same, with the id of the broker that returned it: a slave may not have everything yet."""
        return self._call(lambda: self._client.queue_end(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's first message that is still there."""
        return self._call(lambda: self._client.min_offset(queue))

    def search_offset(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at or after a time; a number is milliseconds since 1970. Apache's 4.9 gives
        the one before, where that is nearer in time."""
        return self._call(lambda: self._client.search_offset(queue, when))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None when it never committed."""
        return self._call(lambda: self._client.committed(queue))

    def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit `queue_offset`, the next offset to consume; on return the broker has it."""
        self._call(lambda: self._client.commit(queue, queue_offset))

    # -- pulls -----------------------------------------------------------------------------------

    def pull(
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
        return self._call(
            lambda: self._client.pull(
                queue,
                expression,
                queue_offset=queue_offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expression_type=expression_type,
                timeout_ms=timeout_ms,
            )
        )

    def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str = SUB_ALL,
        *,
        queue_offset: int,
        max_messages: int = 32,
        max_bytes: int | None = None,
        expression_type: ExpressionType = "TAG",
    ) -> PullResult:
        """The same, but if there is nothing yet the broker waits for a message, up to `suspend_ms`."""
        return self._call(
            lambda: self._client.pull_block_if_not_found(
                queue,
                expression,
                queue_offset=queue_offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expression_type=expression_type,
            )
        )

    def read(
        self,
        queue: MessageQueue,
        *,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        expression: str = SUB_ALL,
        expression_type: ExpressionType = "TAG",
        max_bytes: int = DEFAULT_MAX_BYTES,
        in_flight: int = 2,
        retry_times: int = 3,
    ) -> Iterator[QueueChunk]:
        """A queue's records in bulk, as they are stored; see QueueReader.

        for chunk in consumer.read(queue, begin_offset=0):
            file.write(chunk.body)
        """
        reader = QueueReader(
            queue,
            begin_offset=begin_offset,
            end_offset=end_offset,
            expression=expression,
            expression_type=expression_type,
            max_bytes=max_bytes,
            in_flight=in_flight,
            retry_times=retry_times,
            consumer=self._client,
        )
        return self._read(reader)

    def _read(self, reader: QueueReader) -> Iterator[QueueChunk]:
        chunks = aiter(reader)

        async def following() -> QueueChunk | None:
            return await anext(chunks, None)

        try:
            while (chunk := self._call(following)) is not None:
                yield chunk
        finally:
            # After the consumer's stop no pull is in flight.
            if self._portal is not None:
                self._call(chunks.aclose)
