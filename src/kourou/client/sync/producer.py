"""Producer: AsyncProducer without asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, Unpack

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.producer.producer import AsyncProducer, is_large
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions
from kourou.client.producer.producer_stats import ProducerStats
from kourou.client.producer.queue_choice import QueueSelector
from kourou.client.producer.request_reply import reply_to
from kourou.client.producer.send_result import SendResult
from kourou.client.sync.sync_client import SyncClient
from kourou.errors import TooManyRequestsError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt

ProducerT = TypeVar("ProducerT", bound=AsyncProducer)


class SyncProducer(SyncClient[ProducerT]):
    """What all plain producers do."""

    @property
    def group(self) -> str:
        """The producer group, as it was given."""
        return self._client.group

    @property
    def client_id(self) -> str:
        """Who this producer is to brokers."""
        return self._client.client_id

    @property
    def options(self) -> ProducerOptions:
        """How it sends."""
        return self._client.options

    # -- send ------------------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has it.

        Without a choice the queues of the topic take turns, and another broker is tried when one fails.
        A chosen queue is the only one that is tried: `queue` itself, the one that `selector` gives for
        `arg`, or the one that messages with this `sharding_key` share.

        Raises MessageRefusedError for what no broker would take, NoRouteError, ResponseError for an
        answer that another broker would give too, SendFailedError for all else; `timeout_ms` (else
        `send_timeout_ms`) bounds the whole call. After a timeout the message may be stored nevertheless.
        """

        def begin() -> asyncio.Future[SendResult] | Coroutine[Any, Any, SendResult]:
            # A future costs less than a task; but where something has to be waited for, it takes one.
            client = self._client
            if not is_large(message):
                try:
                    return client.send_nowait(
                        message,
                        queue=queue,
                        selector=selector,
                        arg=arg,
                        sharding_key=sharding_key,
                        timeout_ms=timeout_ms,
                    )
                except TooManyRequestsError:
                    pass
            return client.send(
                message,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
            )

        return self._call(begin)

    def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """As `send`, without waiting: the future gets the result, or the error. Many sends travel together
        this way, from one thread.

        TooManyRequestsError is the error when `max_in_flight` sends are under way: wait for some of them
        first. Messages to one queue are written in the order of these calls.
        """
        return self._submit(
            lambda: self._client.send_nowait(
                message,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
            )
        )

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message without asking whether it arrived. Errors are those of finding a broker."""
        self._call(
            lambda: self._client.send_oneway(
                message,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
            )
        )

    def send_many(self, messages: Iterable[Message], *, timeout_ms: int | None = None) -> list[SendResult]:
        """Send messages in batches, and wait until brokers have them all; one result for each, in order.

        A batch has messages of one topic, up to `max_batch_bytes`, and goes to one queue; delayed
        messages travel alone. Nothing is sent if one message is refused. PartlySentError says which
        messages were stored if not all were.
        """
        # Here, and not on the loop: what makes the messages may take its time.
        listed = list(messages)
        return self._call(lambda: self._client.send_many(listed, timeout_ms=timeout_ms))

    # -- request and reply -----------------------------------------------------------------------

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply of who consumes it (see `reply_to`).

        SendFailedError: it was not sent. NoReplyError: it was, and nobody replied in time.
        """
        return self._call(
            lambda: self._client.request(
                message,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
            )
        )

    def reply_to(self, request: MessageExt, body: bytes) -> Message:
        """The reply to a request that was consumed: `producer.send(producer.reply_to(message, b"…"))`."""
        return reply_to(request, body)

    # -- other -----------------------------------------------------------------------------------

    def recall(self, topic: str, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Take a timer message back before its time, by `SendResult.recall_handle`; its message id.

        ResponseError when the broker does not have it any more, or is older than version 5.
        """
        return self._call(lambda: self._client.recall(topic, recall_handle, timeout_ms=timeout_ms))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to: one of them may be given as `queue` of a send."""
        return self._call(lambda: self._client.queues(topic))

    def flush(self) -> None:
        """Wait until nothing is in flight: each send has its result or its error, which is told where it
        was sent. Takes no longer than the sends' own timeouts."""
        self._call(self._client.flush)

    def stats(self) -> ProducerStats:
        """Counters since the start."""
        return self._do(self._client.stats)


for _name, _method in vars(SyncProducer).items():
    if inspect.isfunction(_method):
        # Python's errors about wrong arguments name the class that users know.
        _method.__qualname__ = f"Producer.{_name}"


@lists_options(ProducerOptions, ClientSettings)
class Producer(SyncProducer[AsyncProducer]):
    """Sends messages; use it in a `with` block, or call `start` and `stop`.

        with Producer("orders", namesrv="127.0.0.1:9876") as producer:
            result = producer.send(Message("TopicTest", b"hello", tags="TagA"))
            print(result.msg_id, result.queue)

    `group` names the producers that do the same work. All options are keywords: those of ProducerOptions
    (`send_timeout_ms`, `retry_times`, …) and those of every client, ClientSettings (`namesrv`, …). One
    producer serves any number of threads.
    """

    def __init__(self, group: str, **options: Unpack[ProducerKeywords]) -> None:
        super().__init__(AsyncProducer(group, **options))
