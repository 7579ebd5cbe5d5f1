"""Dead letters, and messages that were popped for a client which does not get them.

A message becomes a dead letter by being sent back with a level below 0: the broker copies it into the topic
of the group's dead letters. Then it is acknowledged. ForwardMessageToDeadLetterQueue does that for consumers
in order, which count their attempts themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.proxy.clients.handle_requests import (
    REQUEST_TIMEOUT_MS,
    OnResponse,
    ack_request,
    change_request,
    handle_error,
    read_handle,
)
from kourou.proxy.clients.held_messages import HeldMessage
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.renewals import GIVE_BACK_MS
from kourou.proxy.http2.call import Handler
from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.acks import Handles
from kourou.proxy.service.handlers import Answer, HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)

_log = logging.getLogger(__name__)

_TO_DEAD_LETTERS: Final = -1


def _bury_request(phy_offset: int, topic: str, group: str, message_id: str) -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(
        phy_offset=phy_offset,
        group=group,
        delay_level=_TO_DEAD_LETTERS,
        origin_msg_id=message_id,
        origin_topic=topic,
        max_reconsume_times=0,
    )
    return RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


class Leftovers:
    """What becomes of popped messages that a client does not get. Failures are logged: such a message is
    popped again when its time is over."""

    def acknowledge(self, client: ProxyClient, topic: str, group: str, handle: ReceiptHandle) -> None:
        """The filter of the client does not select it."""
        self._call(client, handle, ack_request(handle, topic, group), "acknowledged")

    def give_back(self, client: ProxyClient, topic: str, group: str, handle: ReceiptHandle) -> None:
        """The client has gone: another one gets it."""
        self._call(client, handle, change_request(handle, topic, group, GIVE_BACK_MS), "given back")

    def bury(
        self, client: ProxyClient, topic: str, group: str, handle: ReceiptHandle, message: MessageExt
    ) -> None:
        """It was delivered as often as the group allows."""
        command = _bury_request(message.phy_offset, topic, group, message.msg_id)
        self._call(client, handle, command, "moved to the dead letters", (topic, group))

    def _call(
        self,
        client: ProxyClient,
        handle: ReceiptHandle,
        command: RemotingCommand,
        what: str,
        acknowledged_then: tuple[str, str] | None = None,
    ) -> None:
        def received(head: CommandHead, _: bytes) -> None:
            if head.code != ResponseCode.SUCCESS:
                raise handle_error(head.code, head.remark or "", handle.broker_name)
            if acknowledged_then is not None:
                self.acknowledge(client, *acknowledged_then, handle)

        def failed(error: Exception) -> None:
            _log.warning("message %s of %s is not %s: %s", handle.encode(), client, what, error)

        client.link(handle.broker_name).call_into(command, REQUEST_TIMEOUT_MS, OnResponse(received, failed))


class DeadLetters:
    """The RPC."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Its handler, by path."""
        handler = make.by_callback(
            ForwardMessageToDeadLetterQueueRequest, ForwardMessageToDeadLetterQueueResponse, self.forward
        )
        return {path_of("ForwardMessageToDeadLetterQueue"): handler}

    def forward(
        self,
        client: ProxyClient,
        request: ForwardMessageToDeadLetterQueueRequest,
        answer: Answer[ForwardMessageToDeadLetterQueueResponse],
    ) -> None:
        """ForwardMessageToDeadLetterQueue."""
        group, topic = group_name(request.group), topic_name(request.topic)
        phy_offset = read_handle(request.receipt_handle).phy_offset
        if phy_offset < 0:
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE, "the receipt handle does not name the message's place in the log"
            )

        def failed(held: HeldMessage | None, error: Exception) -> None:
            self._handles.keep(held)
            answer.fail(error)

        def send(receipt: ReceiptHandle, held: HeldMessage | None) -> None:
            link = client.link(receipt.broker_name)

            def buried(head: CommandHead, _: bytes) -> None:
                if head.code != ResponseCode.SUCCESS:
                    raise handle_error(head.code, head.remark or "", receipt.broker_name)
                sink = OnResponse(acknowledged, not_acknowledged)
                link.call_into(ack_request(receipt, topic, group), REQUEST_TIMEOUT_MS, sink)

            def acknowledged(head: CommandHead, _: bytes) -> None:
                if head.code != ResponseCode.SUCCESS:
                    raise handle_error(head.code, head.remark or "", receipt.broker_name)
                self._handles.settle(held)
                answer.send(ForwardMessageToDeadLetterQueueResponse(status=make_status(Code.OK)))

            def not_acknowledged(error: Exception) -> None:
                # It is a dead letter: a repetition would make a second one.
                _log.warning("dead letter %s of %s is not acknowledged: %s", receipt.encode(), client, error)
                self._handles.settle(held)
                answer.send(ForwardMessageToDeadLetterQueueResponse(status=make_status(Code.OK)))

            command = _bury_request(phy_offset, topic, group, request.message_id)
            link.call_into(command, REQUEST_TIMEOUT_MS, OnResponse(buried, partial(failed, held)))

        self._handles.use(client, (group, topic, request.receipt_handle), send, answer.fail)
