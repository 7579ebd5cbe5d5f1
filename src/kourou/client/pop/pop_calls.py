"""PopCalls: the requests of POP, as typed calls: pop, wait for messages, acknowledge, change a lease.

All go to the master of a broker. They raise ResponseError, RemotingError, and PopNotSupportedError for
a broker without POP. Not here: when to repeat a request (receiver.py, acks.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from kourou.client.core.instance import ClientInstance
from kourou.client.core.master_search import is_elsewhere
from kourou.client.core.namespaces import Namespace
from kourou.client.pop.popped import Lease, LeasedMessage, popped_messages
from kourou.errors import KourouError, NoRouteError, PopNotSupportedError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue, SubscriptionData, decode_body, encode_body
from kourou.protocol.bodies.assignment import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from kourou.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody, encode_bit_set
from kourou.protocol.bodies.heartbeat import MessageModel
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from kourou.protocol.pop.receipt_handle import ReceiptHandle

ANY_QUEUE: Final = -1
"""As a queue_id: all queues of the broker."""
ACK_TIMEOUT_MS: Final = 5_000
_ANSWER_MS: Final = 10_000
"""How much longer than the broker a client waits, as in Java."""
# The broker takes the time of arrival: its clock and this one may differ.
_BORN_ON_ARRIVAL: Final = 0
_NOTHING: Final = frozenset(
    {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND}
)
# Answers that say that a request may succeed later, besides those that name another master.
_LATER: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
    }
)


def is_temporary(error: KourouError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ResponseError):
        return error.code in _LATER or is_elsewhere(error)
    return is_elsewhere(error) or (isinstance(error, RemotingError) and error.retriable)


class PopAnswer(NamedTuple):
    """The messages of one pop."""

    messages: list[LeasedMessage]
    is_polling_full: bool = False
    """Whether the broker has no room for the pop to wait: it answered at once."""


class PopCalls:
    """Calls of one group."""

    def __init__(self, instance: ClientInstance, wire_group: str, namespace: Namespace) -> None:
        self._instance = instance
        self._group = wire_group
        self._namespace = namespace
        self._now = asyncio.get_running_loop().time

    # -- messages --------------------------------------------------------------------------------

    async def pop(
        self,
        source: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_messages: int,
        wait_ms: int,
        invisible_ms: int,
        is_from_first: bool,
    ) -> PopAnswer:
        """Pop once; with `wait_ms` the broker waits up to that time for a message."""
        header = PopMessageRequestHeader(
            consumer_group=self._group,
            topic=source.topic,
            queue_id=source.queue_id,
            max_msg_nums=max_messages,
            invisible_time=invisible_ms,
            poll_time=wait_ms,
            born_time=_BORN_ON_ARRIVAL,
            init_mode=0 if is_from_first else 1,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=False,
        )
        answer, address = await self._call(source, RequestCode.POP_MESSAGE, header, wait_ms)
        if answer.code in _NOTHING:
            return PopAnswer([], answer.code == ResponseCode.POLLING_FULL)
        if answer.code != ResponseCode.SUCCESS:
            raise self._error(answer, source.broker_name, address)
        messages = popped_messages(
            answer.body,
            answer.header(PopMessageResponseHeader),
            topic=source.topic,
            group=self._group,
            broker_name=source.broker_name,
            ends_at=self._now() + invisible_ms / 1000,
            shown_topic=self._namespace.unwrap(source.topic),
        )
        return PopAnswer(messages)

    async def wait_message(self, source: MessageQueue, wait_ms: int) -> bool:
        """Wait up to that time until there is something to pop; False: there is not, as far as is known."""
        header = NotificationRequestHeader(
            consumer_group=self._group,
            topic=source.topic,
            queue_id=source.queue_id,
            poll_time=wait_ms,
            born_time=_BORN_ON_ARRIVAL,
            order=False,
        )
        answer, address = await self._call(source, RequestCode.NOTIFICATION, header, wait_ms)
        if answer.code in _NOTHING:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise self._error(answer, source.broker_name, address)
        return answer.header(NotificationResponseHeader).has_msg

    # -- leases ----------------------------------------------------------------------------------

    async def ack(self, lease: Lease) -> None:
        """Acknowledge one message."""
        queue = lease.queue
        header = AckMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            extra_info=lease.handle.encode(),
            queue_offset=lease.handle.queue_offset,
        )
        await self._call_checked(queue, RequestCode.ACK_MESSAGE, header)

    async def ack_batch(self, leases: Sequence[Lease]) -> None:
        """Acknowledge messages of one broker in one request."""
        queue = leases[0].queue
        acks = batch_acks(self._group, ((lease.topic, lease.handle) for lease in leases))
        body = BatchAckMessageRequestBody(broker_name=queue.broker_name, acks=acks)
        await self._call_checked(queue, RequestCode.BATCH_ACK_MESSAGE, body=encode_body(body))

    async def change(self, lease: Lease, invisible_ms: int) -> None:
        """Have the message visible again after `invisible_ms` from now; the lease gets a new handle."""
        queue, handle = lease.queue, lease.handle
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            extra_info=handle.encode(),
            queue_offset=handle.queue_offset,
            invisible_time=invisible_ms,
        )
        answer = await self._call_checked(queue, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        changed = answer.header(ChangeInvisibleTimeResponseHeader)
        lease.handle = changed_handle(handle, changed)
        lease.ends_at = self._now() + invisible_ms / 1000

    # -- assignment ------------------------------------------------------------------------------

    async def assignment(
        self, address: str, topic: str, strategy_name: str
    ) -> list[MessageQueueAssignment] | None:
        """The queues that a broker assigns to this client; None: no change."""
        body = QueryAssignmentRequestBody(
            topic=topic,
            consumer_group=self._group,
            client_id=self._instance.client_id,
            strategy_name=strategy_name,
            message_model=MessageModel.CLUSTERING,
        )
        answer = await self._instance.api.call(address, RequestCode.QUERY_ASSIGNMENT, body=encode_body(body))
        return decode_body(answer.body, QueryAssignmentResponseBody).message_queue_assignments

    # -- one call --------------------------------------------------------------------------------

    async def _call(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: msgspec.Struct | None,
        wait_ms: int = 0,
        body: bytes = b"",
    ) -> tuple[RemotingCommand, str]:
        address = self._instance.routes.master(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} has no master at present")
        api = self._instance.api
        timeout_ms = wait_ms + (_ANSWER_MS if wait_ms else ACK_TIMEOUT_MS)
        return await api.remoting.call(address, api.command(code, header, body), timeout_ms), address

    async def _call_checked(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        answer, address = await self._call(queue, code, header, body=body)
        if answer.code != ResponseCode.SUCCESS:
            raise self._error(answer, queue.broker_name, address)
        return answer

    def _error(self, answer: RemotingCommand, broker_name: str, address: str) -> KourouError:
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return PopNotSupportedError(broker_name, address)
        return self._instance.api.response_error(answer, address)


def changed_handle(handle: ReceiptHandle, changed: ChangeInvisibleTimeResponseHeader) -> ReceiptHandle:
    """The handle after a change of the invisible time: of a check point of this message alone."""
    start = handle.start_offset if handle.is_orderly else handle.queue_offset
    return handle._replace(
        start_offset=start,
        pop_time=changed.pop_time,
        invisible_time=changed.invisible_time,
        revive_queue_id=changed.revive_qid,
    )


def batch_acks(group: str, popped: Iterable[tuple[str, ReceiptHandle]]) -> list[BatchAck]:
    """The acks of messages of one broker, each with the topic that was popped: one entry for each check
    point."""
    # By topic too: handles do not name it.
    positions: dict[tuple[str, ReceiptHandle], list[int]] = {}
    for popped_topic, handle in popped:
        check_point = popped_topic, handle._replace(queue_offset=handle.start_offset)
        positions.setdefault(check_point, []).append(handle.queue_offset - handle.start_offset)
    return [
        BatchAck(
            consumer_group=group,
            topic=topic,
            retry=handle.kind.value,
            start_offset=handle.start_offset,
            queue_id=handle.queue_id,
            revive_queue_id=handle.revive_queue_id,
            pop_time=handle.pop_time,
            invisible_time=handle.invisible_time,
            bit_set=encode_bit_set(found),
        )
        for (topic, handle), found in positions.items()
    ]
