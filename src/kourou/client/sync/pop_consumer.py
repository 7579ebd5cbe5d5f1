"""PopConsumer: the sync client over AsyncPopConsumer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, Unpack, overload

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.subscription import ExpressionType
from kourou.client.pop.lease_calls import LeaseCalls
from kourou.client.pop.pop_consumer import AsyncPopConsumer
from kourou.client.pop.pop_options import PopKeywords, PopOptions
from kourou.client.pop.popped import LeasedMessage, message_fields
from kourou.client.sync.sync_client import SyncClient
from kourou.protocol.tags import SUB_ALL

Call: TypeAlias = Callable[[Callable[[LeaseCalls], Awaitable[None]]], None]
"""Runs a call of LeaseCalls on the loop of the clients, and waits for it."""


class PoppedMessage(LeasedMessage, kw_only=True, eq=False):
    """A message that was received, until it is acknowledged or returned, or its invisible time is over.

    `with message:` acknowledges it at the end, or returns it if the block raises, unless the block did so
    itself. Any thread may use it.
    """

    call: Call

    def ack(self) -> None:
        """Acknowledge it: it is not delivered again. LeaseExpiredError if its invisible time is over."""
        self.call(lambda leases: leases.ack(self))

    def nack(self, *, delay_ms: int | None = None) -> None:
        """Have it delivered again after `delay_ms`, to any consumer of the group. None: after 10 s, 30 s,
        1 min … 2 h, by the number of deliveries before. Brokers round up to seconds."""
        self.call(lambda leases: leases.nack(self, delay_ms))

    def extend(self, invisible_ms: int) -> None:
        """Keep it for `invisible_ms` from now. LeaseExpiredError if its invisible time is over."""
        self.call(lambda leases: leases.extend(self, invisible_ms))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.call(lambda leases: leases.end_block([self], is_failed=kind is not None))


class PopBatch(Sequence[PoppedMessage]):
    """The messages of one `receive`.

    `with batch:` acknowledges at the end all messages that are still held, or returns them if the block
    raises.
    """

    def __init__(self, messages: Sequence[PoppedMessage], call: Call) -> None:
        self._messages = messages
        self._call = call

    @overload
    def __getitem__(self, index: int) -> PoppedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PoppedMessage]: ...
    def __getitem__(self, index: int | slice) -> PoppedMessage | Sequence[PoppedMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def ack(self) -> None:
        """Acknowledge all, in as few requests as possible. The first failure is raised once all are
        answered."""
        self._call(lambda leases: leases.ack_all(self._messages))

    def nack(self, *, delay_ms: int | None = None) -> None:
        """Have all delivered again."""
        self._call(lambda leases: leases.nack_all(self._messages, delay_ms))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(lambda leases: leases.end_block(self._messages, is_failed=kind is not None))


@lists_options(PopOptions, ClientSettings)
class PopConsumer(SyncClient[AsyncPopConsumer]):
    """Receives messages on loan, and acknowledges each by itself.

        with PopConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in consumer.messages():
                with message:
                    print(message.body)

    Every consumer of a group gets messages of every queue, so any number of consumers share a topic, whatever
    its number of queues. A message that is neither acknowledged nor returned is delivered again when its
    invisible time is over. Needs brokers of RocketMQ 5, or Kourou. Any number of threads may receive. Keyword
    arguments are those of PopOptions and ClientSettings.
    """

    def __init__(self, group: str, **keywords: Unpack[PopKeywords]) -> None:
        super().__init__(AsyncPopConsumer(group, **keywords))

    @property
    def group(self) -> str:
        """The consumer group, as it was given."""
        return self._client.group

    @property
    def options(self) -> PopOptions:
        """The options of this consumer."""
        return self._client.options

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._client.client_id

    def subscribe(
        self, topic: str, expression: str = SUB_ALL, *, expression_type: ExpressionType = "TAG"
    ) -> None:
        """Receive the messages of `topic` that `expression` selects: tags (`TagA || TagB`), or with
        `expression_type="SQL92"` a condition on properties. All members of a group have to subscribe to the
        same. Before or after `start`."""
        self._call_early(lambda: self._client.subscribe(topic, expression, expression_type=expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic."""
        self._call_early(lambda: self._client.unsubscribe(topic))

    def receive(
        self, *, max_messages: int | None = None, wait_ms: int | None = None, invisible_ms: int | None = None
    ) -> PopBatch:
        """Up to `max_messages` messages, as soon as there are any; an empty batch if there is none within
        `wait_ms`. For `invisible_ms` they are invisible to the other consumers of the group. What is not
        given is as in the options.

        Brokers that are away are left out until they return. PopNotSupportedError: none of the brokers has
        POP. NoRouteError: the topic does not exist."""
        found = self._call(lambda: self._client.receive_leased(max_messages, wait_ms, invisible_ms))
        call = self._call_leases
        return PopBatch(
            [PoppedMessage(*message_fields(each), lease=each.lease, call=call) for each in found], call
        )

    def messages(self, *, invisible_ms: int | None = None) -> Iterator[PoppedMessage]:
        """Every message, one received at a time, without end. Use each in a `with` block."""
        while True:
            yield from self.receive(max_messages=1, invisible_ms=invisible_ms)

    def _call_leases(self, work: Callable[[LeaseCalls], Awaitable[None]]) -> None:
        async def call() -> Any:
            await work(self._client.leases)

        self._call(call)
