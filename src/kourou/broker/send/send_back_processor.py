"""CONSUMER_SEND_MSG_BACK: a consumer failed on a message, and it comes again later, or never.

It is stored anew in `%RETRY%group`, by way of a delay level that grows with each attempt; after
`maxReconsumeTimes` attempts, or at once if the consumer says so, in `%DLQ%group` (dead_letters.py).
Not here: consumers that send to `%RETRY%group` themselves (send_message_processor.py).
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.send.dead_letters import make_dead_letter, next_attempt
from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.broker.storage.record_reads import RecordReads
from kourou.errors import RequestError
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.protocol.codes import PermName, RequestCode, ResponseCode, TopicSysFlag
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import retry_topic
from kourou.protocol.priority import priority_of, priority_queue
from kourou.protocol.properties import MessageConst
from kourou.protocol.record import decode_record
from kourou.protocol.versions import V3_4_9
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager

FIRST_RETRY_LEVEL: Final = 3
"""The level of the first retry, 10 s; each attempt adds one."""

_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
_UNIT_SUB: Final = TopicSysFlag.UNIT_SUB.value


class SendBackProcessor:
    """Takes messages back from consumers."""

    def __init__(
        self,
        *,
        admission: Admission,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        stats: BrokerStatsManager,
        records: RecordReader,
        writer: MessageWriter,
    ) -> None:
        self._admission = admission
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._records = records
        self._writer = writer

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: Request) -> None:
        """CONSUMER_SEND_MSG_BACK."""
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group_config = self._check(header)
        if group_config.retry_queue_nums <= 0:
            request.reply()
            return
        self._retry_topic(header, group_config)
        self._records.when_read(
            request,
            partial(_record, header.phy_offset),
            partial(self._put, request, header, group_config),
        )

    # -- checking --------------------------------------------------------------------------------

    def _check(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig:
        group_config = self._groups.find(header.group)
        if group_config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}, create it with updateSubGroup",
            )
        self._admission.check_writable()
        return group_config

    def _retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, group_config: SubscriptionGroupConfig
    ) -> None:
        topic = retry_topic(header.group)
        topic_config = self._topics.create_in_send_back(
            topic, group_config.retry_queue_nums, _READ_WRITE, _UNIT_SUB if header.unit_mode else 0
        )
        self._admission.check_send_back(topic_config)

    # -- storing ---------------------------------------------------------------------------------

    def _put(
        self,
        request: Request,
        header: ConsumerSendMsgBackRequestHeader,
        group_config: SubscriptionGroupConfig,
        record: MessageExt | None,
    ) -> None:
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {header.phy_offset}: not a message, or no longer there",
            )
        admitted = retry_topic(header.group)
        self._admission.check_record_read(request, record.topic, admitted=admitted)
        max_times = group_config.retry_max_times
        if header.max_reconsume_times is not None and request.version >= V3_4_9:
            max_times = header.max_reconsume_times
        message = next_attempt(record, record.topic)
        is_given_up = record.reconsume_times >= max_times or header.delay_level < 0
        if is_given_up:
            make_dead_letter(message, header.group, self._topics)
        else:
            level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
            message.topic = retry_topic(header.group)
            message.queue_id = self._retry_queue(message, group_config)
            message.set_property(MessageConst.PROPERTY_DELAY_TIME_LEVEL, str(level))
        first_topic = message.get_property(MessageConst.PROPERTY_RETRY_TOPIC) or record.topic
        try:
            # With the flush, unlike Apache: the consumer moves on as soon as it is answered.
            done = partial(self._answer, request, header.group, first_topic, is_given_up)
            self._writer.put(message, done, wait=True)
        except PutRefusedError as refusal:
            # Apache's code for whatever the store says; the words are the store's.
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{refusal.status.name}: {refusal}") from refusal

    def _retry_queue(self, message: InnerMessage, group_config: SubscriptionGroupConfig) -> int:
        priority, topic_config = priority_of(message.properties), self._topics.get(message.topic)
        if priority is None or topic_config is None:
            return random.randrange(group_config.retry_queue_nums)
        # Unlike Apache, where a retry of a high priority may wait behind those of low ones.
        return priority_queue(priority, topic_config.write_queue_nums)

    def _answer(
        self, request: Request, group: str, topic: str, is_given_up: bool, status: PutStatus, _: int, __: int
    ) -> None:
        if not status.is_stored:
            request.error(ResponseCode.SYSTEM_ERROR, status.name)
            return
        self._stats.send_back(group, topic)
        if is_given_up:
            self._stats.events.dead_letter(group, topic)
        request.reply()


def _record(phy_offset: int, reads: RecordReads) -> MessageExt | None:
    raw = reads.record(phy_offset)
    return None if raw is None else decode_record(raw)
