"""SEND_REPLY_MESSAGE in its two forms: the answer to a request, pushed to the client that asked.

A reply is checked as any send. The requester is found by its client id among the producers of this
broker and called with PUSH_REPLY_MESSAGE_TO_CLIENT; the sender's answer says whether it took the
reply. With `storeReplyMessageEnable` the reply is also stored, whatever became of the push.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.send.send_message_processor import SendHandler
from kourou.broker.send.send_targets import SendHeader, SendTarget, SendTargets, inner_message
from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.errors import RemotingError, RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import ReplyMessageRequestHeader
from kourou.protocol.message_id import offset_msg_id
from kourou.protocol.producer_sequence import without_sequence
from kourou.protocol.properties import MessageConst, get_property, set_property
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.send.sent_properties import PropertyRewriter
    from kourou.broker.settings import LiveConfig
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_PUSH_TIMEOUT_MS: Final = 10_000


class ReplyMessageProcessor(SendHandler):
    """Hands replies over; what is done with a message that may be sent is all that differs from a send."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        targets: SendTargets,
        properties: PropertyRewriter,
        new_uniq_key: Callable[[], str],
        address: str,
        store_host: bytes,
        producers: ProducerManager,
        requests: TaskOwner,
        writer: MessageWriter,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(config, targets, properties, new_uniq_key)
        self._address = address
        self._store_host = store_host
        self._producers = producers
        self._requests = requests
        self._writer = writer
        self._now_ms = now_ms

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.send,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.send_v2,
        }

    def _put_one(
        self,
        request: Request,
        header: SendHeader,
        target: SendTarget,
        topic: str,
        queue_id: int,
        properties: str,
    ) -> None:
        stored = self._properties.read(without_sequence(properties), self._new_uniq_key)[0]
        message = inner_message(request, header, target, topic, queue_id, stored)
        run_request(self._requests, request, self._hand_over(request, header, message))

    def _put_batch(
        self, request: Request, header: SendHeader, topic: str, queue_id: int, properties: str
    ) -> None:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a reply cannot be a batch")

    async def _hand_over(self, request: Request, header: SendHeader, message: InnerMessage) -> None:
        problem = await self._push(request, header, message)
        if problem is not None:
            _log.warning("a reply of %s was not delivered: %s", header.producer_group, problem)
        done = partial(self._answer_reply, request, message.queue_id, problem)
        if not self._config.current.store_reply_message_enable:
            done(None, 0, 0)
            return
        try:
            self._writer.put_now(message, done, wait=True)
        except PutRefusedError as refusal:
            _log.warning("a reply to topic %s is not stored: %s", message.topic, refusal)
            done(None, 0, 0)

    async def _push(self, request: Request, header: SendHeader, message: InnerMessage) -> str | None:
        """Call the requester; None when it has the reply, else Apache's words for why not."""
        client_id = get_property(message.properties, MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        channel = self._producers.find_by_client_id(client_id)
        if channel is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        command = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._push_header(request, header, message),
            message.body,
        )
        try:
            answer = await channel.connection.call(command, _PUSH_TIMEOUT_MS)
        except RemotingError as error:
            return f"push reply message to {client_id} fail. ({error})"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. (CODE: {answer.code} {answer.remark or ''})"
        return None

    def _push_header(
        self, request: Request, header: SendHeader, message: InnerMessage
    ) -> ReplyMessageRequestHeader:
        now_ms = self._now_ms()
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=message.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=set_property(message.properties, MessageConst.PROPERTY_PUSH_REPLY_TIME, str(now_ms)),
            reconsume_times=message.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=request.connection.remote_address,
            store_host=self._address,
            store_timestamp=now_ms,
        )

    def _answer_reply(
        self,
        request: Request,
        queue_id: int,
        problem: str | None,
        status: PutStatus | None,
        phy_offset: int,
        queue_offset: int,
    ) -> None:
        """Say what became of the push. The id is that of the stored reply, 0 when it is not stored."""
        config = self._config.current
        fields = {"MSG_REGION": config.region_id, "TRACE_ON": str(config.trace_on).lower()}
        is_stored = status is not None and status.is_stored
        if is_stored or problem is None:
            fields["msgId"] = offset_msg_id(self._store_host, phy_offset) if is_stored else "0"
            fields["queueId"] = str(queue_id)
            fields["queueOffset"] = str(queue_offset if is_stored else 0)
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        request.reply(fields, code=code, remark=problem)
