"""PullMessage and the RPCs of offsets, which the protocol has and Apache's proxies do not; and
SyncLiteSubscription, which is refused.

They are the requests of remoting pull consumers, one for one: the client chooses queue and offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.client.core.subscription import now_ms
from kourou.errors import ResponseError
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from kourou.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from kourou.protocol.record import decode_records
from kourou.proxy.clients.client_settings import subscription_of
from kourou.proxy.clients.handle_requests import OnResponse
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.received import fill_message
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.messages.times import duration_ms, timestamp_ms
from kourou.proxy.service.handlers import Answer, HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    GetOffsetRequest,
    GetOffsetResponse,
    MessageQueue,
    PullMessageRequest,
    PullMessageResponse,
    QueryOffsetPolicy,
    QueryOffsetRequest,
    QueryOffsetResponse,
    SyncLiteSubscriptionRequest,
    SyncLiteSubscriptionResponse,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)

_OFFSET_TIMEOUT_MS: Final = 5_000
_ANSWER_MS: Final = 5_000
_MAX_BATCH: Final = 32
_MAX_POLLING_MS: Final = 20_000
_NOTHING: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
_PULL_FLAGS: Final = PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION


class Pulls:
    """The RPCs."""

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Their handlers, by path."""
        return {
            path_of("PullMessage"): make.by_callback(PullMessageRequest, PullMessageResponse, self.pull),
            path_of("UpdateOffset"): make.by_coroutine(
                UpdateOffsetRequest, UpdateOffsetResponse, self.update_offset
            ),
            path_of("GetOffset"): make.by_coroutine(GetOffsetRequest, GetOffsetResponse, self.get_offset),
            path_of("QueryOffset"): make.by_coroutine(
                QueryOffsetRequest, QueryOffsetResponse, self.query_offset
            ),
            path_of("SyncLiteSubscription"): make.by_coroutine(
                SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse, self.sync_lite_subscription
            ),
        }

    def pull(
        self, client: ProxyClient, request: PullMessageRequest, answer: Answer[PullMessageResponse]
    ) -> None:
        """PullMessage."""
        queue = request.message_queue
        topic = topic_name(queue.topic)
        subscription = subscription_of(topic, request.filter_expression)
        poll_ms = min(duration_ms(request.long_polling_timeout), _MAX_POLLING_MS)
        header = PullMessageRequestHeader(
            consumer_group=group_name(request.group),
            topic=topic,
            queue_id=queue.id,
            queue_offset=request.offset,
            max_msg_nums=min(max(request.batch_size, 1), _MAX_BATCH),
            sys_flag=_PULL_FLAGS if poll_ms > 0 else PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=max(poll_ms, 0),
            subscription=subscription.sub_string,
            sub_version=now_ms(),
            expression_type=subscription.expression_type,
        )
        tags = frozenset(subscription.tags_set)

        def received(head: CommandHead, body: bytes) -> None:
            if head.code == ResponseCode.SUCCESS:
                _send_pulled(answer, head, body, tags)
            elif head.code in _NOTHING:
                _send_nothing(answer, head)
            elif head.code == ResponseCode.PULL_OFFSET_MOVED:
                raise StatusError(Code.ILLEGAL_OFFSET, _moved(queue, request.offset, head))
            else:
                raise ResponseError(head.code, head.remark or "", queue.broker.name)

        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        sink = OnResponse(received, answer.fail)
        client.link(queue.broker.name).call_into(command, max(poll_ms, 0) + _ANSWER_MS, sink)

    async def update_offset(
        self, client: ProxyClient, request: UpdateOffsetRequest, call: Call
    ) -> UpdateOffsetResponse:
        """UpdateOffset."""
        queue = request.message_queue
        if request.offset < 0:
            raise StatusError(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}; it must be at least 0")
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group_name(request.group),
            topic=topic_name(queue.topic),
            queue_id=queue.id,
            commit_offset=request.offset,
        )
        await _call(client, queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        return UpdateOffsetResponse(status=make_status(Code.OK))

    async def get_offset(
        self, client: ProxyClient, request: GetOffsetRequest, call: Call
    ) -> GetOffsetResponse:
        """GetOffset."""
        queue = request.message_queue
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group_name(request.group),
            topic=topic_name(queue.topic),
            queue_id=queue.id,
            set_zero_if_not_found=False,
        )
        try:
            answer = await _call(client, queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except ResponseError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                words = f"group {request.group.name} has no offset in queue {queue.id} of {queue.topic.name}"
                raise StatusError(Code.OFFSET_NOT_FOUND, words) from error
            raise
        offset = answer.header(QueryConsumerOffsetResponseHeader).consumer_offset
        return GetOffsetResponse(status=make_status(Code.OK), offset=offset)

    async def query_offset(
        self, client: ProxyClient, request: QueryOffsetRequest, call: Call
    ) -> QueryOffsetResponse:
        """QueryOffset."""
        queue, policy = request.message_queue, request.query_offset_policy
        topic = topic_name(queue.topic)
        if policy == QueryOffsetPolicy.BEGINNING:
            code: RequestCode = RequestCode.GET_MIN_OFFSET
            header: msgspec.Struct = GetMinOffsetRequestHeader(topic=topic, queue_id=queue.id)
        elif policy == QueryOffsetPolicy.END:
            code = RequestCode.GET_MAX_OFFSET
            header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue.id)
        elif policy == QueryOffsetPolicy.TIMESTAMP and request.HasField("timestamp"):
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            header = SearchOffsetRequestHeader(
                topic=topic, queue_id=queue.id, timestamp=timestamp_ms(request.timestamp)
            )
        else:
            raise StatusError(
                Code.BAD_REQUEST,
                f"query_offset_policy is {policy}; use BEGINNING, END, or TIMESTAMP with a timestamp",
            )
        # The answers of all three have the same one field.
        answer = await _call(client, queue, code, header)
        offset = answer.header(GetMaxOffsetResponseHeader).queue_offset
        return QueryOffsetResponse(status=make_status(Code.OK), offset=offset)

    async def sync_lite_subscription(
        self, client: ProxyClient, request: SyncLiteSubscriptionRequest, call: Call
    ) -> SyncLiteSubscriptionResponse:
        """SyncLiteSubscription."""
        raise StatusError(Code.UNSUPPORTED, "lite topics are not supported; use a push or simple consumer")


async def _call(
    client: ProxyClient, queue: MessageQueue, code: RequestCode, header: msgspec.Struct
) -> RemotingCommand:
    broker_name = queue.broker.name
    command = RemotingCommand.request(code, header)
    answer = await client.link(broker_name).call_nowait(command, _OFFSET_TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark or "", broker_name)
    return answer


def _send_pulled(
    answer: Answer[PullMessageResponse], head: CommandHead, body: bytes, tags: frozenset[str]
) -> None:
    call = answer.call
    call.send(PullMessageResponse(status=make_status(Code.OK)).SerializeToString())
    for message in decode_records(body):
        # Brokers compare only hashes of tags.
        if not tags or message.tags in tags:
            response = PullMessageResponse()
            fill_message(response.message, message)
            call.send(response.SerializeToString())
    _send_next(answer, head, Code.OK)


def _send_nothing(answer: Answer[PullMessageResponse], head: CommandHead) -> None:
    answer.call.send(
        PullMessageResponse(status=make_status(Code.MESSAGE_NOT_FOUND, "no new message")).SerializeToString()
    )
    _send_next(answer, head, Code.MESSAGE_NOT_FOUND)


def _send_next(answer: Answer[PullMessageResponse], head: CommandHead, code: Code) -> None:
    next_offset = decode_ext(head, PullMessageResponseHeader).next_begin_offset
    answer.call.send(PullMessageResponse(next_offset=next_offset).SerializeToString())
    answer.finish(code)


def _moved(queue: MessageQueue, offset: int, head: CommandHead) -> str:
    found = decode_ext(head, PullMessageResponseHeader)
    return (
        f"offset {offset} is outside queue {queue.id} of {queue.topic.name}, which has "
        f"{found.min_offset} to {found.max_offset}; continue at {found.next_begin_offset}"
    )
