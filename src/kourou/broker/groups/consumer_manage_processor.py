"""What a consumer asks when it shares queues out and begins one: members (38), offsets (14, 15).

Not here: the tables (consumers.py, offsets.py); offsets of queues, and resets (offset_processor.py,
reset_offset.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.errors import HeaderFieldError, RequestError
from kourou.protocol.bodies import GetConsumerListByGroupResponseBody, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queues import ConsumeQueues


class ConsumerManageProcessor:
    """Answers consumers about their group."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
        }

    def get_consumer_list(self, request: Request) -> None:
        """38: the client ids of a group."""
        group = request.header(GetConsumerListByGroupRequestHeader).consumer_group
        info = self._consumers.get(group)
        if info is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        request.reply(body=encode_body(GetConsumerListByGroupResponseBody(info.client_ids())))

    def query_consumer_offset(self, request: Request) -> None:
        """14: where a group goes on in a queue; QUERY_NOT_FOUND lets the consumer choose itself."""
        header = request.header(QueryConsumerOffsetRequestHeader)
        consumer_offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if consumer_offset < 0:
            consumer_offset = self._first_offset(header)
        request.reply(QueryConsumerOffsetResponseHeader(consumer_offset=consumer_offset))

    def _first_offset(self, header: QueryConsumerOffsetRequestHeader) -> int:
        """Where a group without offset begins, if that is not for its consumer to choose.

        At the first message where the queue still begins at 0 and that message is in memory, as in Apache.
        An empty queue begins at its minimum offset, so that no message is skipped: a consumer that is left
        to choose asks for the maximum next, and a message may be stored before that. 4.9 does the same for
        a queue that never had a message.
        """
        if header.set_zero_if_not_found is False:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        queue = self._queues.find(header.topic, header.queue_id)
        if queue is None:
            return 0
        if queue.min_queue_offset == queue.max_queue_offset:
            return queue.min_queue_offset
        if not self._has_first_in_memory(queue):
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return 0

    def _has_first_in_memory(self, queue: ConsumeQueue) -> bool:
        """Whether the queue still begins at 0, and its first message can be read without waiting for the
        disk. A unit that is damaged counts: its message is found when it is pulled."""
        unit = queue.unit(0) if queue.min_queue_offset == 0 else None
        if unit is None:
            return False
        return not unit.is_message or self._log.read_nowait(*unit[:2]) is not None

    def update_consumer_offset(self, request: Request) -> None:
        """15: a group has consumed so far; most clients do not wait for the answer."""
        header = _update_header(request)
        group, topic = header.consumer_group, header.topic
        if self._groups.get(group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.get(topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if self._config.current.use_server_side_reset_offset:
            if self._offsets.reset_pending(topic, group, header.queue_id) is not None:
                request.reply(remark="Offset has been previously reset")
                return
        self._offsets.commit(
            group, topic, header.queue_id, header.commit_offset, request.connection.remote_address
        )
        request.reply()


def _update_header(request: Request) -> UpdateConsumerOffsetRequestHeader:
    try:
        return request.header(UpdateConsumerOffsetRequestHeader)
    except HeaderFieldError:
        fields = request.ext_fields
        for field, name in (("queueId", "QueueId"), ("commitOffset", "Offset")):
            if field not in fields:
                remark = f"{name} is null, topic is {fields.get('topic')}"
                raise RequestError(ResponseCode.INVALID_PARAMETER, remark) from None
        raise
