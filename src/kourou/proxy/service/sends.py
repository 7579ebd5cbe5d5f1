"""SendMessage: messages of gRPC producers to brokers, without a task or a future for each.

All messages of a request have one topic. One message is one request to a broker; of several, those that go to
the same queue and that a batch can hold share one. Each message has its own result, in the order of the
request. Nothing is sent twice here: clients repeat by themselves what failed, maybe elsewhere.
Not here: what a message may be (messages/published.py), the ends of transactions (transactions.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kourou.client.producer.send_result import SEND_STATUSES, send_result, split_result
from kourou.clock import wall_ms
from kourou.errors import RemotingError
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies import MessageQueue, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC, is_dlq_topic, is_retry_topic
from kourou.protocol.properties import properties_to_bytes
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.messages.message_types import check_type
from kourou.proxy.messages.names import topic_name
from kourou.proxy.messages.published import Published, publish
from kourou.proxy.messages.statuses import (
    StatusError,
    code_of_response,
    make_status,
    status_of,
    status_of_response,
)
from kourou.proxy.service.handlers import Answer, HandlerMaker, path_of
from kourou.proxy.service.publish_queues import PublishQueues, TopicQueues
from kourou.proxy.service.topic_attributes import topic_attributes
from kourou.proxy.service.transactions import Transactions
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    Message,
    MessageType,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
    Status,
)
from kourou.transport.tasks import TaskOwner

_TIMEOUT_MS: Final = 3_000
_MAX_TIMEOUT_MS: Final = 30_000
_MAX_MESSAGES: Final = 1_024
"""Of a request, all of which are handled in one go; official clients send one."""
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
_ENTRY_BYTES: Final = 22
"""Of a message in a batch, beside body and properties."""
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
_SUCCESS: Final = ResponseCode.SUCCESS.value
_BATCHED: Final = (MessageType.NORMAL, MessageType.FIFO)
_OK: Final = make_status(Code.OK)


class Sends:
    """The RPC."""

    def __init__(
        self,
        brokers: Brokers,
        transactions: Transactions,
        limits: MessageLimits,
        tasks: TaskOwner,
        *,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._brokers = brokers
        self._limits = limits
        self._tasks = tasks
        self._now_ms = now_ms
        self.transactions = transactions
        self.queues = PublishQueues()

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Its handler, by path."""
        work = make.by_callback(SendMessageRequest, SendMessageResponse, self.send)
        return {path_of("SendMessage"): work}

    def send(
        self, client: ProxyClient, request: SendMessageRequest, answer: Answer[SendMessageResponse]
    ) -> None:
        """SendMessage."""
        messages = request.messages
        if not messages:
            raise StatusError(Code.MESSAGE_CORRUPTED, "the request has no message")
        if len(messages) > _MAX_MESSAGES:
            raise StatusError(
                Code.PAYLOAD_TOO_LARGE,
                f"the request has {len(messages)} messages; at most {_MAX_MESSAGES} are allowed",
            )
        first = messages[0].topic
        if len(messages) > 1 and any(message.topic != first for message in messages):
            raise StatusError(Code.MESSAGE_CORRUPTED, "the messages of a request must have one topic")
        topic = topic_name(first)
        published = self._publish(messages, topic, answer.call)
        route = self._brokers.known_route(topic)
        if not self._has_types(topic):
            if route is not None:
                self._send(client, answer, self.queues.of(topic, route), published)
                return
        elif route is not None and (config := self._brokers.known_topic_config(topic)) is not None:
            _check_types(published, config.attributes)
            self._send(client, answer, self.queues.of(topic, route), published)
            return
        self._tasks.start(self._load(client, answer, topic, published), f"route of {topic}")

    def _publish(self, messages: Sequence[Message], topic: str, call: Call) -> list[Published]:
        now_ms, limits, peer = self._now_ms(), self._limits, call.peer
        return [publish(message, topic, limits=limits, now_ms=now_ms, peer=peer) for message in messages]

    def _has_types(self, topic: str) -> bool:
        """Whether the topic names the type of its messages."""
        return self._limits.checks_types and not is_retry_topic(topic) and not is_dlq_topic(topic)

    async def _load(
        self,
        client: ProxyClient,
        answer: Answer[SendMessageResponse],
        topic: str,
        published: list[Published],
    ) -> None:
        """Send as soon as the topic is known."""
        try:
            route: TopicRouteData = await self._brokers.route(topic)
            if self._has_types(topic):
                _check_types(published, await topic_attributes(self._brokers, topic))
            if not answer.call.is_over:
                self._send(client, answer, self.queues.of(topic, route), published)
        except Exception as error:
            answer.fail(error)

    def _send(
        self,
        client: ProxyClient,
        answer: Answer[SendMessageResponse],
        queues: TopicQueues,
        published: list[Published],
    ) -> None:
        timeout_ms = self._timeout_ms(answer.call)
        response = _Response(answer, len(published))
        if len(published) == 1:
            queue = self._queue(queues, published[0])
            self._send_part(client, response, queue, [0], published, timeout_ms)
            return
        for queue, indexes in self._parts(queues, published):
            self._send_part(client, response, queue, indexes, published, timeout_ms)

    def _timeout_ms(self, call: Call) -> int:
        if call.deadline_s is None:
            return _TIMEOUT_MS
        left_ms = int((call.deadline_s - self._loop.time()) * 1000)
        return min(max(left_ms, 1), _MAX_TIMEOUT_MS)

    def _queue(self, queues: TopicQueues, message: Published) -> MessageQueue:
        if message.message_group:
            return self.queues.of_group(queues, message.message_group)
        return self.queues.next(queues)

    def _parts(self, queues: TopicQueues, published: list[Published]) -> list[tuple[MessageQueue, list[int]]]:
        """The messages of each request to a broker; those of a message group stay in their order."""
        parts: list[tuple[MessageQueue, list[int]]] = []
        # The last part of each queue, and its size, as long as it can grow.
        growing: dict[MessageQueue, tuple[list[int], int]] = {}
        of_normal = self.queues.next(queues)
        for index, message in enumerate(published):
            is_batched = message.kind in _BATCHED and not message.sys_flag
            queue = (
                of_normal
                if is_batched and message.kind is MessageType.NORMAL
                else self._queue(queues, message)
            )
            size = len(message.body) + len(properties_to_bytes(message.properties)) + _ENTRY_BYTES
            indexes, before = growing.get(queue, ([], _MAX_BATCH_BYTES))
            if is_batched and before + size <= _MAX_BATCH_BYTES:
                indexes.append(index)
                growing[queue] = indexes, before + size
                continue
            indexes = [index]
            parts.append((queue, indexes))
            if is_batched:
                growing[queue] = indexes, size
            else:
                growing.pop(queue, None)
        return parts

    def _send_part(
        self,
        client: ProxyClient,
        response: _Response,
        queue: MessageQueue,
        indexes: list[int],
        published: list[Published],
        timeout_ms: int,
    ) -> None:
        messages = [published[index] for index in indexes]
        command = _one(messages[0], queue) if len(messages) == 1 else _batch(messages, queue)
        sink = _Part(self, response, client, queue, indexes, messages)
        client.link(queue.broker_name).call_into(command, timeout_ms, sink)


class _Response:
    """The response of one call: sent as soon as each message has a result."""

    __slots__ = ("_answer", "_entries", "_missing")

    def __init__(self, answer: Answer[SendMessageResponse], count: int) -> None:
        self._answer = answer
        self._missing = count
        self._entries: list[SendResultEntry] = [_NO_ENTRY] * count

    def add(self, index: int, entry: SendResultEntry) -> None:
        """The result of one message."""
        self._entries[index] = entry
        self._missing -= 1
        if not self._missing:
            entries = self._entries
            self._answer.send(SendMessageResponse(status=_common(entries), entries=entries))


_NO_ENTRY: Final = SendResultEntry()


def _common(entries: Sequence[SendResultEntry]) -> Status:
    """The status of all messages, if they have the same."""
    status = entries[0].status
    if all(entry.status.code == status.code for entry in entries):
        return status
    return make_status(Code.MULTIPLE_RESULTS)


class _Part:
    """One request to a broker: it gets the response (AnswerSink)."""

    __slots__ = ("_client", "_indexes", "_messages", "_queue", "_response", "_service")

    def __init__(
        self,
        service: Sends,
        response: _Response,
        client: ProxyClient,
        queue: MessageQueue,
        indexes: list[int],
        messages: list[Published],
    ) -> None:
        self._service = service
        self._response = response
        self._client = client
        self._queue = queue
        self._indexes = indexes
        self._messages = messages

    def done(self) -> bool:
        """False also when the client has gone: a half message that is stored has to be known."""
        return False

    def set_exception(self, error: Exception, /) -> None:
        """The broker does not answer."""
        if isinstance(error, RemotingError):
            self._service.queues.failed(self._queue.broker_name)
        self._fail(status_of(error))

    def set_answer(self, head: CommandHead, body: bytes, /) -> None:
        """The broker answers."""
        try:
            if head.code not in SEND_STATUSES:
                self._fail(status_of_response(head.code, head.remark))
            elif len(self._messages) == 1:
                self._response.add(self._indexes[0], self._stored(head, self._messages[0]))
            else:
                self._stored_batch(head)
        except Exception as error:
            self._fail(status_of(error))

    def _fail(self, status: Status) -> None:
        for index in self._indexes:
            self._response.add(index, SendResultEntry(status=status))

    def _stored(self, head: CommandHead, message: Published) -> SendResultEntry:
        header = decode_ext(head, SendMessageResponseHeader)
        entry = SendResultEntry(
            status=_status_of_stored(head.code),
            message_id=message.message_id,
            offset=header.queue_offset,
            recall_handle=header.recall_handle,
        )
        if message.kind is MessageType.TRANSACTION:
            entry.transaction_id = header.transaction_id or message.message_id
            self._service.transactions.stored(
                message.topic, entry.transaction_id, self._queue.broker_name, header
            )
        return entry

    def _stored_batch(self, head: CommandHead) -> None:
        ids = [message.message_id for message in self._messages]
        batch = send_result(head, SEND_STATUSES[head.code], self._queue, "", self._queue.topic)
        status = _status_of_stored(head.code)
        for index, result in zip(self._indexes, split_result(batch, ids), strict=True):
            entry = SendResultEntry(status=status, message_id=result.msg_id, offset=result.queue_offset)
            self._response.add(index, entry)


def _status_of_stored(code: int) -> Status:
    if code == _SUCCESS:
        return _OK
    # Stored, but not yet as safely as the broker is configured: a failure to clients, who send it again.
    name = SEND_STATUSES[code].name
    return make_status(code_of_response(code), f"the message is stored with the status {name}")


def _check_types(published: list[Published], attributes: Mapping[str, str] | None) -> None:
    for message in published:
        check_type(message.topic, attributes, message.kind)


def _one(message: Published, queue: MessageQueue) -> RemotingCommand:
    fields = _fields(message, queue)
    fields["f"] = str(message.sys_flag)
    fields["i"] = message.properties
    return RemotingCommand(_SEND, ext_fields=fields, body=message.body)


def _batch(messages: Sequence[Published], queue: MessageQueue) -> RemotingCommand:
    fields = _fields(messages[0], queue)
    fields["m"] = "true"
    body = encode_batch_entries(
        BatchEntry(0, message.body, properties_to_bytes(message.properties)) for message in messages
    )
    return RemotingCommand(_SEND_BATCH, ext_fields=fields, body=body)


def _fields(message: Published, queue: MessageQueue) -> dict[str, str]:
    """The fields of SendMessageRequestHeaderV2, written directly, as for each message."""
    return {
        "a": message.topic,
        "b": message.topic,
        "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
        "d": "4",
        "e": str(queue.queue_id),
        "n": queue.broker_name,
        "f": "0",
        "g": str(message.born_ms),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    }
