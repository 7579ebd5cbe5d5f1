"""RecallMessage: take a delayed message back before it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kourou.errors import ResponseError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from kourou.protocol.recall_handle import decode_recall_handle
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.messages.message_types import check_type
from kourou.proxy.messages.names import topic_name
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.handlers import HandlerMaker, path_of
from kourou.proxy.service.topic_attributes import topic_attributes
from kourou.proxy.wire.rocketmq_v2 import Code, MessageType, RecallMessageRequest, RecallMessageResponse

_TIMEOUT_MS: Final = 3_000


class Recalls:
    """The RPC."""

    def __init__(self, brokers: Brokers, limits: MessageLimits) -> None:
        self._brokers = brokers
        self._limits = limits

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Its handler, by path."""
        work = make.by_coroutine(RecallMessageRequest, RecallMessageResponse, self.recall)
        return {path_of("RecallMessage"): work}

    async def recall(
        self, client: ProxyClient, request: RecallMessageRequest, call: Call
    ) -> RecallMessageResponse:
        """RecallMessage."""
        topic = topic_name(request.topic)
        try:
            handle = decode_recall_handle(request.recall_handle)
        except ValueError as error:
            raise StatusError(Code.BAD_REQUEST, f"{error}; use the one in the result of the send") from error
        if self._limits.checks_types:
            check_type(topic, await topic_attributes(self._brokers, topic), MessageType.DELAY)
        header = RecallMessageRequestHeader(
            producer_group=topic, topic=topic, recall_handle=request.recall_handle
        )
        command = RemotingCommand.request(RequestCode.RECALL_MESSAGE, header)
        response = await client.link(handle.broker_name).call_nowait(command, _TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark or "", handle.broker_name)
        message_id = response.header(RecallMessageResponseHeader).msg_id
        return RecallMessageResponse(status=make_status(Code.OK), message_id=message_id)
