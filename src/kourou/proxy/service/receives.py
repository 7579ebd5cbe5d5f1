"""ReceiveMessage: a pop at one broker, and the stream of its messages.

A receive waits at the broker, without a task here: thousands may be open. Its answer begins with the one
status, then come the messages, and when they were delivered. A message whose tag another one's hash has let
through is acknowledged, one that was delivered too often becomes a dead letter. If the client has gone
meanwhile, it gets nothing, and the messages are delivered again after a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kourou.client.pop.popped import PoppedHandles
from kourou.errors import ResponseError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.pop.offset_infos import decode_order_counts
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.properties import MessageConst, PropertyFinder
from kourou.protocol.record import decode_records
from kourou.proxy.clients.client_settings import ClientPolicy, GroupRules, subscription_of
from kourou.proxy.clients.handle_requests import client_handle
from kourou.proxy.clients.held_messages import HeldMessages
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.limits import MAX_INVISIBLE_MS
from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.received import fill_message
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.messages.times import duration_ms
from kourou.proxy.service.dead_letters import Leftovers
from kourou.proxy.service.handlers import Answer, HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Timestamp,
)
from kourou.transport.tasks import TaskOwner

AUTO_RENEW_MS: Final = 60_000
"""The first invisible time of messages whose time the proxy extends."""
_MIN_INVISIBLE_MS: Final = 10_000
_MAX_BATCH: Final = 32
_ANY_QUEUE: Final = -1
_FROM_NEWEST: Final = 1
_BORN_ON_ARRIVAL: Final = 0
_ANSWER_MS: Final = 5_000
"""How much longer than a pop may wait at the broker the proxy waits for its answer."""
_EARLY_MS: Final = 500
"""An answer leaves the broker so long before the client's deadline: it has to arrive in time."""
_REQUEST_TIMEOUT_MS: Final = 3000
"""Of clients whose settings are not known."""
_CODE_OF_SHORT_POLLING: Final = (5, 0, 3)
"""The first version of clients that knows ILLEGAL_POLLING_TIME."""
_NOTHING: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
_OK: Final = ReceiveMessageResponse(status=make_status(Code.OK)).SerializeToString()
_tags_of: Final = PropertyFinder([MessageConst.PROPERTY_TAGS])


class Receives:
    """The RPC."""

    def __init__(
        self,
        brokers: Brokers,
        held: HeldMessages,
        leftovers: Leftovers,
        policy: ClientPolicy,
        tasks: TaskOwner,
        wall_ns: Callable[[], int],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._brokers = brokers
        self._tasks = tasks
        self._policy = policy
        self.held = held
        self.leftovers = leftovers
        self.wall_ns = wall_ns
        self.now_s = self._loop.time

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Its handler, by path."""
        work = make.by_callback(ReceiveMessageRequest, ReceiveMessageResponse, self.receive)
        return {path_of("ReceiveMessage"): work}

    def receive(
        self, client: ProxyClient, request: ReceiveMessageRequest, answer: Answer[ReceiveMessageResponse]
    ) -> None:
        """ReceiveMessage. It says all that a pop needs, so settings need not be known: after a restart of the
        proxy some clients send theirs again only minutes later."""
        group = group_name(request.group)
        topic = topic_name(request.message_queue.topic)
        subscription = subscription_of(topic, request.filter_expression)
        invisible_ms = self._invisible_ms(request)
        poll_ms = self._poll_ms(client, request, answer.call)
        if request.batch_size < 1:
            raise StatusError(Code.BAD_REQUEST, f"batch_size is {request.batch_size}; it must be at least 1")
        rules = client.rules
        if rules is None or rules.group != group:
            self._load_rules(client, request, answer, group, topic)
            return
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=_ANY_QUEUE,
            max_msg_nums=min(request.batch_size, _MAX_BATCH),
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=_BORN_ON_ARRIVAL,
            init_mode=_FROM_NEWEST,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=rules.is_fifo,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        link = client.link(request.message_queue.broker.name)
        waiting = _Receive(
            self, client, answer, link.broker_name, topic, rules, subscription, request.auto_renew
        )
        command = RemotingCommand.request(RequestCode.POP_MESSAGE, header)
        link.call_into(command, poll_ms + _ANSWER_MS, waiting)

    def _invisible_ms(self, request: ReceiveMessageRequest) -> int:
        if request.auto_renew:
            return AUTO_RENEW_MS
        invisible_ms = duration_ms(request.invisible_duration)
        if not _MIN_INVISIBLE_MS <= invisible_ms <= MAX_INVISIBLE_MS:
            raise StatusError(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"invisible_duration is {invisible_ms} ms; it must be from {_MIN_INVISIBLE_MS} ms to "
                f"{MAX_INVISIBLE_MS} ms",
            )
        return invisible_ms

    def _poll_ms(self, client: ProxyClient, request: ReceiveMessageRequest, call: Call) -> int:
        """How long the pop may wait at the broker."""
        low, high = self._policy.min_polling_ms, self._policy.max_polling_ms
        left_ms = None if call.deadline_s is None else int((call.deadline_s - self.now_s()) * 1000)
        if request.HasField("long_polling_timeout"):
            wanted_ms = duration_ms(request.long_polling_timeout)
        elif left_ms is not None:
            settings = client.settings
            timeout_ms = settings.request_timeout_ms if settings else _REQUEST_TIMEOUT_MS
            wanted_ms = left_ms - timeout_ms // 2
        else:
            wanted_ms = high
        poll_ms = min(max(wanted_ms, low), high)
        if left_ms is None or poll_ms <= left_ms:
            return poll_ms
        if left_ms < low:
            knows_code = _version(call.metadata.get("x-mq-client-version", "")) >= _CODE_OF_SHORT_POLLING
            raise StatusError(
                Code.ILLEGAL_POLLING_TIME if knows_code else Code.BAD_REQUEST,
                f"the deadline is in {left_ms} ms; a receive waits for {low} ms at least",
            )
        return max(left_ms - _EARLY_MS, 1)

    def _load_rules(
        self,
        client: ProxyClient,
        request: ReceiveMessageRequest,
        answer: Answer[ReceiveMessageResponse],
        group: str,
        topic: str,
    ) -> None:
        """Continue once it is known whether the group consumes in order."""

        async def load() -> None:
            try:
                config = await self._brokers.group_config(topic, group)
                client.rules = GroupRules.of(group, config)
                self.receive(client, request, answer)
            except Exception as error:
                answer.fail(error)

        self._tasks.start(load(), f"rules of {group}")


class _Receive:
    """One receive that waits at a broker: it gets the answer (AnswerSink)."""

    __slots__ = ("_answer", "_auto_renew", "_broker_name", "_client", "_rules", "_service", "_tags", "_topic")

    def __init__(
        self,
        service: Receives,
        client: ProxyClient,
        answer: Answer[ReceiveMessageResponse],
        broker_name: str,
        topic: str,
        rules: GroupRules,
        subscription: SubscriptionData,
        auto_renew: bool,
    ) -> None:
        self._service = service
        self._client = client
        self._answer = answer
        self._broker_name = broker_name
        self._topic = topic
        self._rules = rules
        self._tags = frozenset(subscription.tags_set)
        self._auto_renew = auto_renew

    def done(self) -> bool:
        """False also when the client has gone: the messages of a late answer are given back."""
        return False

    def set_exception(self, error: Exception, /) -> None:
        """The broker does not answer."""
        self._answer.fail(error)

    def set_answer(self, head: CommandHead, body: bytes, /) -> None:
        """The broker answers."""
        try:
            self._answered(head, body)
        except Exception as error:
            self._answer.fail(error)

    def _answered(self, head: CommandHead, body: bytes) -> None:
        code = head.code
        if code == ResponseCode.SUCCESS:
            self._found(decode_ext(head, PopMessageResponseHeader), body)
        elif code in _NOTHING:
            raise StatusError(Code.MESSAGE_NOT_FOUND, "no new message")
        elif code == ResponseCode.POLLING_FULL:
            raise StatusError(Code.TOO_MANY_REQUESTS, "too many receives wait at the broker")
        else:
            raise ResponseError(code, head.remark or "", self._broker_name)

    def _found(self, header: PopMessageResponseHeader, body: bytes) -> None:
        service, call = self._service, self._answer.call
        handles = PoppedHandles(header, self._topic, self._broker_name)
        counts = decode_order_counts(header.order_count_info) if header.order_count_info else None
        group, max_attempts = self._rules.group, self._rules.max_attempts
        chosen: list[bytes] = []
        delivered: list[tuple[str, ReceiptHandle, int]] = []
        popped = [(message, handles.of(message)) for message in decode_records(body)]
        if call.is_over:
            self._give_back([handle for _, handle in popped])
            return
        for message, handle in popped:
            if self._tags and _tag_of(message) not in self._tags:
                service.leftovers.acknowledge(self._client, self._topic, group, handle)
                continue
            if counts is not None:
                message.reconsume_times = counts.count_of(handle.kind, handle.queue_id, handle.queue_offset)
            if message.reconsume_times >= max_attempts:
                service.leftovers.bury(self._client, self._topic, group, handle, message)
                continue
            message.topic = self._topic
            text = client_handle(handle, message.phy_offset)
            response = ReceiveMessageResponse()
            fill_message(response.message, message, text)
            chosen.append(response.SerializeToString())
            delivered.append((text, handle, message.reconsume_times))
        if not chosen:
            raise StatusError(Code.MESSAGE_NOT_FOUND, "no message matches the filter")
        if self._auto_renew:
            self._hold(delivered)
        self._write(call, chosen, delivered)

    def _write(
        self, call: Call, chosen: list[bytes], delivered: list[tuple[str, ReceiptHandle, int]]
    ) -> None:
        now_ns = self._service.wall_ns()
        timestamp = Timestamp(seconds=now_ns // 1_000_000_000, nanos=now_ns % 1_000_000_000)
        call.on_unsent = partial(self._not_taken, delivered)
        call.send(_OK)
        for message in chosen:
            call.send(message)
        call.send(ReceiveMessageResponse(delivery_timestamp=timestamp).SerializeToString())
        self._answer.finish(Code.OK)

    def _hold(self, delivered: list[tuple[str, ReceiptHandle, int]]) -> None:
        held, now_s = self._service.held, self._service.now_s()
        for text, handle, reconsume_times in delivered:
            key = self._rules.group, self._topic, text
            held.add(self._client, key, handle, reconsume_times=reconsume_times, received_s=now_s)

    def _not_taken(self, delivered: list[tuple[str, ReceiptHandle, int]]) -> None:
        """The client has given up before it had read the response. Otherwise the proxy would extend the time
        of messages that the client does not have."""
        all_held, handles = self._service.held, []
        for text, handle, _ in delivered:
            held = all_held.find(self._client, (self._rules.group, self._topic, text))
            if held is not None:
                all_held.remove(held)
            handles.append(handle if held is None else held.handle)
        self._give_back(handles)

    def _give_back(self, handles: list[ReceiptHandle]) -> None:
        for handle in handles:
            self._service.leftovers.give_back(self._client, self._topic, self._rules.group, handle)


def _tag_of(message: MessageExt) -> str | None:
    # Searched in the bytes: decoding all properties costs more.
    return _tags_of.values(message.raw_properties, 0, len(message.raw_properties))[0]


def _version(text: str) -> tuple[int, ...]:
    """The numbers of a client's version, such as 5.0.3; unknown ones are old."""
    parts = text.partition("-")[0].split(".")
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit())
