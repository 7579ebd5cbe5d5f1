"""Producer: the sync client over AsyncProducer."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar, Unpack

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.producer.producer import AsyncProducer, is_large
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions
from kourou.client.producer.producer_stats import ProducerStats
from kourou.client.producer.queue_choice import QueueSelector
from kourou.client.producer.request_reply import reply_to
from kourou.client.producer.send_result import SendResult
from kourou.client.sync.atomic_batch import AtomicBatch
from kourou.client.sync.sync_client import SyncClient
from kourou.errors import SendFailedError, TooManyRequestsError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt

ProducerT = TypeVar("ProducerT", bound=AsyncProducer)


class SyncProducer(SyncClient[ProducerT]):
    """The methods of all sync producers."""

    def __init__(self, client: ProducerT) -> None:
        super().__init__(client)
        self._uses_context = client.prepares_messages

    @property
    def group(self) -> str:
        """The producer group, as it was given."""
        return self._client.group

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._client.client_id

    @property
    def options(self) -> ProducerOptions:
        """The options of this producer."""
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
        sequence: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        By default the queues of the topic take turns, and another broker is tried when one fails. A queue
        that you choose is the only one that is tried: `queue` itself, the one that `selector` returns for
        `arg`, or the one that messages with this `sharding_key` share.

        Raises MessageRefusedError for a message that no broker would accept, NoRouteError, ResponseError
        for a response that another broker would give too, SendFailedError otherwise; `timeout_ms`
        (default: `send_timeout_ms`) bounds the whole call. After a timeout the message may be stored
        nevertheless (`may_be_stored`). AccessDeniedError with `wait_ms`: the broker has rejected the key of
        this client, and the message was not sent. `sequence`: of a producer with `explicit_sequences`.
        """

        def begin() -> asyncio.Future[SendResult] | Coroutine[Any, Any, SendResult]:
            # A future costs less than a task, which is needed only if the send has to wait.
            client = self._client
            if not is_large(message):
                try:
                    return client.send_nowait(
                        message,
                        queue=queue,
                        selector=selector,
                        arg=arg,
                        sharding_key=sharding_key,
                        sequence=sequence,
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
                sequence=sequence,
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
        sequence: int | None = None,
        timeout_ms: int | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Like `send`, without waiting: the future gets the result, or the error. Many sends of one thread
        share a write this way.

        The error is TooManyRequestsError when `max_in_flight` sends are in flight: wait for some of them
        first. Messages to one queue are written in the order of these calls.
        """
        return self._submit(
            lambda: self._client.send_nowait(
                message,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                sequence=sequence,
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
        """Send a message without waiting for a response. Only finding a broker can fail. Idempotent producers
        do not offer it."""
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

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        sequences: Sequence[int] | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages in batches, and wait until brokers have stored them; one result for each, in order.

        A batch has messages of one topic, up to `max_batch_bytes`, and goes to one queue; delayed messages
        are sent alone. Nothing is sent if one message is rejected. PartlySentError lists what was stored if
        not all were. If the producer was fenced, that is its cause, or raised itself if nothing is stored.
        `queue`: the one for all of them. `sequences`, one for each message: of a producer with
        `explicit_sequences`; a batch is sent when those before it are stored.
        """
        # Here, and not on the loop: what makes the messages may take its time.
        listed = list(messages)
        return self._call(
            lambda: self._client.send_many(listed, queue=queue, sequences=sequences, timeout_ms=timeout_ms)
        )

    def send_again(self, error: SendFailedError, *, timeout_ms: int | None = None) -> SendResult:
        """Of an idempotent producer: continue a send that failed while it `may_be_stored`. The message goes
        to the same queue with the same sequence, and is stored once, whatever became of earlier attempts.
        For a batch of `send_many` the result is that of its first message.

        Raises what `send` raises. The send may be continued again with the new error.
        """
        return self._call(lambda: self._client.send_again(error, timeout_ms=timeout_ms))

    def last_sequence(self, queue: MessageQueue) -> int:
        """Of an idempotent producer: the highest of its sequences stored in `queue`; -1: none. A named
        producer opens its name first, which fences a program that has opened it before."""
        return self._call(lambda: self._client.last_sequence(queue))

    # -- atomic publishes ------------------------------------------------------------------------

    def atomic(self, *, timeout_ms: int = 60_000) -> AtomicBatch:
        """Messages for any topics, queues and brokers that become visible together or not at all:

            with producer.atomic() as batch:
                batch.send(Message("orders", b"..."))
                batch.send(Message("stock", b"..."))

        Leaving the block commits; an exception rolls back. On return the decision is durable, and each broker
        publishes its messages within a second: a consumer may see those of one broker first. `timeout_ms`
        bounds the block with its commit: after it, the publish is rolled back. Brokers have to be Kourou's.
        With a `name`, programs that used it for atomic publishes before are fenced.

        The block raises AtomicRolledBackError if nothing is published, AtomicUndecidedError if the outcome is
        not known, ProducerFencedError, ClientError if no broker can coordinate it.
        """
        return AtomicBatch(self._call, self._do(lambda: self._client.atomic(timeout_ms=timeout_ms)))

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
        """Send a message and wait for the reply of its consumer (see `reply_to`).

        SendFailedError: it was not sent. NoReplyError: it was sent, but no reply arrived in time.
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
        """Recall a timer message before its time, by `SendResult.recall_handle`; returns its message id.

        ResponseError when the broker does not have it any more, or is older than version 5.
        """
        return self._call(lambda: self._client.recall(topic, recall_handle, timeout_ms=timeout_ms))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to; `send` accepts one of them as `queue`."""
        return self._call(lambda: self._client.queues(topic))

    def flush(self) -> None:
        """Wait until no send is in flight. Errors are raised by the sends themselves. Takes no longer than
        their timeouts."""
        self._call(self._client.flush)

    def stats(self) -> ProducerStats:
        """Counters since the start of this producer."""
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
