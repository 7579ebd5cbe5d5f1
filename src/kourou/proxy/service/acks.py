"""AckMessage and ChangeInvisibleDuration.

Acks of several messages go to each broker in one request. The status of every message stands by itself, in
the order of the request. With a handle whose time is over, or that no broker accepts, nothing can be done any
more: that is INVALID_RECEIPT_HANDLE, the only status after which a push consumer gives up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kourou.client.pop.pop_calls import batch_acks
from kourou.protocol.bodies import encode_body
from kourou.protocol.bodies.batch_ack import BatchAckMessageRequestBody
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.proxy.clients.handle_requests import (
    REQUEST_TIMEOUT_MS,
    OnResponse,
    ack_request,
    change_request,
    client_handle,
    expired,
    handle_after_change,
    handle_error,
    read_handle,
)
from kourou.proxy.clients.held_messages import HeldKey, HeldMessage, HeldMessages
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Handler
from kourou.proxy.messages.limits import MAX_INVISIBLE_MS
from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.statuses import StatusError, make_status, status_of
from kourou.proxy.messages.times import duration_ms
from kourou.proxy.service.handlers import Answer, HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Code,
    Status,
)

MAX_ENTRIES: Final = 4_096
"""Acks in one request; clients send one, or as many as they have received at once."""
_OK: Final = make_status(Code.OK)


class Handles:
    """Handles of clients: the current one for what a client shows, and whether its time is over."""

    def __init__(self, held: HeldMessages, wall_ms: Callable[[], int]) -> None:
        self._held = held
        self._wall_ms = wall_ms
        self._now_s = asyncio.get_running_loop().time

    def use(
        self,
        client: ProxyClient,
        key: HeldKey,
        work: Callable[[ReceiptHandle, HeldMessage | None], None],
        failed: Callable[[StatusError], None],
        *,
        is_ack: bool = False,
    ) -> None:
        """Call `work` with the current handle, now or once it is known; or `failed`: it is over. Work for a
        held message ends with `settle` or `keep`. Only an ack may follow what has settled the message."""
        held = self._held.find(client, key)
        if held is None:
            receipt = read_handle(key[2]).receipt
            if receipt.visible_again_ms <= self._wall_ms():
                failed(expired())
            else:
                work(receipt, None)
        else:
            held.use(partial(self._use_held, held, work, failed, is_ack))

    def _use_held(
        self,
        held: HeldMessage,
        work: Callable[[ReceiptHandle, HeldMessage | None], None],
        failed: Callable[[StatusError], None],
        is_ack: bool,
    ) -> None:
        if held.is_settled and is_ack:
            held.release()
            work(held.handle, None)
        elif held.is_settled or held.expires_s <= self._now_s():
            self._held.remove(held)
            held.release()
            failed(expired())
        else:
            work(held.handle, held)

    def settle(self, held: HeldMessage | None) -> None:
        """The message is acknowledged, returned or a dead letter."""
        if held is not None:
            held.is_settled = True
            self._held.remove(held)
            held.release()

    @staticmethod
    def keep(held: HeldMessage | None) -> None:
        """The request has failed: the client still holds the message."""
        if held is not None:
            held.release()


class Acks:
    """The RPCs."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Their handlers, by path."""
        return {
            path_of("AckMessage"): make.by_callback(AckMessageRequest, AckMessageResponse, self.ack),
            path_of("ChangeInvisibleDuration"): make.by_callback(
                ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, self.change
            ),
        }

    def ack(
        self, client: ProxyClient, request: AckMessageRequest, answer: Answer[AckMessageResponse]
    ) -> None:
        """AckMessage."""
        group, topic = group_name(request.group), topic_name(request.topic)
        if not 0 < len(request.entries) <= MAX_ENTRIES:
            raise StatusError(
                Code.BAD_REQUEST,
                f"the request has {len(request.entries)} entries; it needs 1 to {MAX_ENTRIES}",
            )
        if len(request.entries) == 1:
            _OneAck(self._handles, client, group, topic, request.entries[0], answer).begin()
        else:
            _ManyAcks(self._handles, client, group, topic, request, answer).begin()

    def change(
        self,
        client: ProxyClient,
        request: ChangeInvisibleDurationRequest,
        answer: Answer[ChangeInvisibleDurationResponse],
    ) -> None:
        """ChangeInvisibleDuration."""
        try:
            self._change(client, request, answer)
        except Exception as error:
            _not_changed(request, answer, None, error)

    def _change(
        self,
        client: ProxyClient,
        request: ChangeInvisibleDurationRequest,
        answer: Answer[ChangeInvisibleDurationResponse],
    ) -> None:
        group, topic = group_name(request.group), topic_name(request.topic)
        invisible_ms = duration_ms(request.invisible_duration)
        if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise StatusError(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"invisible_duration is {invisible_ms} ms; it must be from 0 to {MAX_INVISIBLE_MS} ms",
            )
        phy_offset = read_handle(request.receipt_handle).phy_offset
        suspend = request.suspend if request.HasField("suspend") else None

        def send(receipt: ReceiptHandle, held: HeldMessage | None) -> None:
            def changed(head: CommandHead, _: bytes) -> None:
                if head.code != ResponseCode.SUCCESS:
                    raise handle_error(head.code, head.remark or "", receipt.broker_name)
                new = client_handle(handle_after_change(receipt, head), phy_offset)
                self._handles.settle(held)
                answer.send(ChangeInvisibleDurationResponse(status=_OK, receipt_handle=new))

            command = change_request(receipt, topic, group, invisible_ms, suspend=suspend)
            sink = OnResponse(changed, partial(_not_changed, request, answer, held))
            client.link(receipt.broker_name).call_into(command, REQUEST_TIMEOUT_MS, sink)

        key = group, topic, request.receipt_handle
        self._handles.use(client, key, send, partial(_not_changed, request, answer, None))


def _not_changed(
    request: ChangeInvisibleDurationRequest,
    answer: Answer[ChangeInvisibleDurationResponse],
    held: HeldMessage | None,
    error: Exception,
) -> None:
    Handles.keep(held)
    # Clients take the handle of every answer, also of a failure.
    answer.send(
        ChangeInvisibleDurationResponse(status=status_of(error), receipt_handle=request.receipt_handle)
    )


class _OneAck:
    """An AckMessage of one message, which most are: it gets the broker's response itself (AnswerSink)."""

    __slots__ = ("_answer", "_client", "_entry", "_group", "_handles", "_held", "_topic")

    def __init__(
        self,
        handles: Handles,
        client: ProxyClient,
        group: str,
        topic: str,
        entry: AckMessageEntry,
        answer: Answer[AckMessageResponse],
    ) -> None:
        self._handles = handles
        self._client = client
        self._group = group
        self._topic = topic
        self._entry = entry
        self._answer = answer
        self._held: HeldMessage | None = None

    def begin(self) -> None:
        """Send the ack once the handle is known."""
        key = self._group, self._topic, self._entry.receipt_handle
        try:
            self._handles.use(self._client, key, self._send, self._end, is_ack=True)
        except StatusError as error:
            self._end(error)

    def _send(self, handle: ReceiptHandle, held: HeldMessage | None) -> None:
        self._held = held
        command = ack_request(handle, self._topic, self._group)
        self._client.link(handle.broker_name).call_into(command, REQUEST_TIMEOUT_MS, self)

    def done(self) -> bool:
        """False: a held message is released by every response."""
        return False

    def set_answer(self, head: CommandHead, body: bytes, /) -> None:
        """The broker has the ack, or refuses it."""
        if head.code == ResponseCode.SUCCESS:
            self._handles.settle(self._held)
            self._end(None)
        else:
            self.set_exception(handle_error(head.code, head.remark or "", "the broker"))

    def set_exception(self, error: Exception, /) -> None:
        """The broker does not have it."""
        self._handles.keep(self._held)
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        status = _OK if error is None else status_of(error)
        self._answer.send(AckMessageResponse(status=status, entries=[_result(self._entry, status)]))


class _ReadyAck(NamedTuple):
    """An entry whose ack can be sent."""

    position: int
    handle: ReceiptHandle
    held: HeldMessage | None


class _ManyAcks:
    """An AckMessage of several messages, until all have a status."""

    __slots__ = (
        "_answer",
        "_client",
        "_group",
        "_handles",
        "_ready",
        "_request",
        "_statuses",
        "_topic",
        "_waiting",
    )

    def __init__(
        self,
        handles: Handles,
        client: ProxyClient,
        group: str,
        topic: str,
        request: AckMessageRequest,
        answer: Answer[AckMessageResponse],
    ) -> None:
        self._handles = handles
        self._client = client
        self._group = group
        self._topic = topic
        self._request = request
        self._answer = answer
        self._waiting = len(request.entries)
        self._statuses: list[Status] = [_OK] * self._waiting
        self._ready: list[_ReadyAck] | None = []

    def begin(self) -> None:
        """Send the acks of all entries; those whose handle is being changed follow."""
        for index, entry in enumerate(self._request.entries):
            key = self._group, self._topic, entry.receipt_handle
            try:
                ready, failed = partial(self._is_ready, index), partial(self._set, index)
                self._handles.use(self._client, key, ready, failed, is_ack=True)
            except StatusError as error:
                self._set(index, error)
        collected, self._ready = self._ready, None
        by_broker: dict[str, list[_ReadyAck]] = {}
        for ack in collected or ():
            by_broker.setdefault(ack.handle.broker_name, []).append(ack)
        for broker_name, acks in by_broker.items():
            self._send(broker_name, acks)

    def _is_ready(self, index: int, handle: ReceiptHandle, held: HeldMessage | None) -> None:
        ack = _ReadyAck(index, handle, held)
        if self._ready is not None:
            self._ready.append(ack)
        else:
            self._send_one(ack)

    def _send(self, broker_name: str, acks: Sequence[_ReadyAck]) -> None:
        if len(acks) == 1:
            self._send_one(acks[0])
            return
        body = BatchAckMessageRequestBody(
            broker_name=broker_name,
            acks=batch_acks(self._group, ((self._topic, ack.handle) for ack in acks)),
        )
        command = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=encode_body(body))
        sink = OnResponse(partial(self._sent_all, acks), partial(self._failed_all, acks))
        self._client.link(broker_name).call_into(command, REQUEST_TIMEOUT_MS, sink)

    def _sent_all(self, acks: Sequence[_ReadyAck], head: CommandHead, _: bytes) -> None:
        if head.code == ResponseCode.SUCCESS:
            for ack in acks:
                self._acknowledged(ack)
            return
        # One of them is the cause, or the broker is older than batches.
        for ack in acks:
            self._send_one(ack)

    def _failed_all(self, acks: Sequence[_ReadyAck], error: Exception) -> None:
        for ack in acks:
            self._failed(ack, error)

    def _send_one(self, ack: _ReadyAck) -> None:
        sink = OnResponse(partial(self._sent_one, ack), partial(self._failed, ack))
        command = ack_request(ack.handle, self._topic, self._group)
        self._client.link(ack.handle.broker_name).call_into(command, REQUEST_TIMEOUT_MS, sink)

    def _sent_one(self, ack: _ReadyAck, head: CommandHead, _: bytes) -> None:
        if head.code == ResponseCode.SUCCESS:
            self._acknowledged(ack)
        else:
            self._failed(ack, handle_error(head.code, head.remark or "", ack.handle.broker_name))

    def _acknowledged(self, ack: _ReadyAck) -> None:
        self._handles.settle(ack.held)
        self._one_less()

    def _failed(self, ack: _ReadyAck, error: Exception) -> None:
        self._handles.keep(ack.held)
        self._set(ack.position, error)

    def _set(self, index: int, error: Exception) -> None:
        self._statuses[index] = status_of(error)
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        codes = {status.code for status in self._statuses}
        top = self._statuses[0] if len(codes) == 1 else make_status(Code.MULTIPLE_RESULTS)
        results = map(_result, self._request.entries, self._statuses)
        self._answer.send(AckMessageResponse(status=top, entries=results))


def _result(entry: AckMessageEntry, status: Status) -> AckMessageResultEntry:
    return AckMessageResultEntry(
        message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
    )
