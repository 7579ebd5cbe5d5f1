"""Calls that tools make to a consumer through the broker: its running info, one message to consume.

The broker passes the request on to the member of the group and the member's answer back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.broker.groups.producers import ClientChannel
from kourou.errors import CallTimeoutError, RemotingError, RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.record import decode_record
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.transport.tasks import TaskOwner

_CALL_TIMEOUT_MS: Final = 10_000


class ConsumerCallProcessor:
    """Passes calls on to consumers."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        requests: TaskOwner,
        records: RecordReader,
        admission: Admission,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._requests = requests
        self._records = records
        self._admission = admission

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
        }

    def get_consumer_running_info(self, request: Request) -> None:
        """GET_CONSUMER_RUNNING_INFO: what the member says of itself."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        channel = self._channel(header.consumer_group, header.client_id)
        call = _call(request, header.consumer_group, channel, request.ext_fields, request.body)
        run_request(self._requests, request, call)

    def consume_message_directly(self, request: Request) -> None:
        """CONSUME_MESSAGE_DIRECTLY: have the member consume the stored message of an offset id now."""
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        channel = self._channel(header.consumer_group, header.client_id or "")
        if not header.msg_id:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "msgId is missing: which message is to be consumed?"
            )
        phy_offset = parse_offset_msg_id(header.msg_id).phy_offset
        run_request(self._requests, request, self._hand_over(request, header, channel, phy_offset))

    async def _hand_over(
        self,
        request: Request,
        header: ConsumeMessageDirectlyResultRequestHeader,
        channel: ClientChannel,
        phy_offset: int,
    ) -> None:
        record = await self._records.read(lambda reads: reads.record(phy_offset))
        if record is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {phy_offset}")
        if self._admission.record_access is not None:
            topic = decode_record(record).topic
            self._admission.check_record_read(request, topic, admitted=header.topic)
        fields = {**request.ext_fields, **self._sys_flags(header, record)}
        fields["brokerName"] = self._config.current.broker_name or ""
        await _call(request, header.consumer_group, channel, fields, record)

    def _sys_flags(self, header: ConsumeMessageDirectlyResultRequestHeader, record: bytes) -> dict[str, str]:
        """What 5.x clients want to know of topic and group."""
        topic_config = self._topics.get(header.topic or decode_record(record).topic)
        group_config = self._groups.get(header.consumer_group)
        return {
            "topicSysFlag": str(0 if topic_config is None else topic_config.topic_sys_flag),
            "groupSysFlag": str(0 if group_config is None else group_config.group_sys_flag),
        }

    def _channel(self, group: str, client_id: str) -> ClientChannel:
        channel = self._consumers.find_channel(group, client_id)
        if channel is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        return channel


async def _call(
    request: Request, group: str, channel: ClientChannel, fields: dict[str, str], body: bytes
) -> None:
    command = RemotingCommand(request.code, ext_fields=fields, body=body)
    who = f"<{group}> <{channel.client_id}>"
    try:
        answer = await channel.connection.call(command, _CALL_TIMEOUT_MS)
    except CallTimeoutError as error:
        raise RequestError(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {who} Timeout: {error}") from error
    except RemotingError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"invoke consumer {who} Exception: {error}") from error
    remark = answer.remark
    if answer.code != ResponseCode.SUCCESS:
        remark = (
            f"consumer {who} at {channel.connection.remote_address} answers: {remark or 'no reason given'}"
        )
    request.reply(answer.ext_fields, answer.body, code=answer.code, remark=remark)
