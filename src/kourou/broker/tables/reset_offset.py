"""Resetting the offsets of a running group, and querying those of its members.

INVOKE_BROKER_TO_RESET_OFFSET, two ways. By the server (5.x, `useServerSideResetOffset`): the offsets
are recorded, and each queue's next pull is redirected; no member has to be online, and clients of any
version follow. By the clients (4.9): every member is sent the offsets (220) and resets itself.
INVOKE_BROKER_TO_GET_CONSUMER_STATUS asks the members (221) for theirs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kourou.broker.groups.producers import ClientChannel
from kourou.broker.storage.record_reads import RecordReads
from kourou.broker.tables.config_table import queue_words
from kourou.errors import KourouError, RemotingError, RequestError
from kourou.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    TopicConfig,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import LanguageCode, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from kourou.store.queue.queue_time_search import search_queue_offset
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.message_lookup import MessageLookup
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

# How long a member may take to say where it is.
_STATUS_TIMEOUT_MS: Final = 5000
_ALL_QUEUES: Final = -1
_NOT_GIVEN: Final = -1

QueueOffsets = dict[int, int]


class ResetOffsetProcessor:
    """Resets offsets of consumer groups."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        queues: ConsumeQueues,
        lookup: MessageLookup,
        admission: Admission,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        holds: PullRequestHoldService,
        requests: TaskOwner,
        records: RecordReader,
    ) -> None:
        self._config = config
        self._queues = queues
        self._lookup = lookup
        self._admission = admission
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._holds = holds
        self._requests = requests
        self._records = records

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
        }

    def reset_offset(self, request: Request) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET, the way that is configured."""
        header = request.header(ResetOffsetRequestHeader)
        if self._config.current.use_server_side_reset_offset:
            self._reset_by_server(request, header)
        else:
            self._reset_by_clients(request, header)

    # -- by the server ---------------------------------------------------------------------------

    def _reset_by_server(self, request: Request, header: ResetOffsetRequestHeader) -> None:
        if self._admission.is_slave:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        topic_config = self._topics.get(header.topic)
        if topic_config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._groups.get(header.group) is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        self._records.when_read(
            request,
            lambda reads: self._server_targets(reads, header, topic_config),
            lambda targets: self._assign(request, header, targets),
        )

    def _server_targets(
        self, reads: RecordReads, header: ResetOffsetRequestHeader, topic_config: TopicConfig
    ) -> QueueOffsets:
        if header.queue_id is None or header.queue_id <= _ALL_QUEUES:
            found = {
                queue_id: self._offset_at(reads, header.topic, queue_id, header.timestamp)
                for queue_id in range(topic_config.read_queue_nums)
            }
            return found if header.is_force else self._moved_back_only(header, found)
        if header.queue_offset is None or header.queue_offset == _NOT_GIVEN:
            found_offset = self._offset_at(reads, header.topic, header.queue_id, header.timestamp)
        else:
            found_offset = self._checked(header.topic, header.queue_id, header.queue_offset)
        return {header.queue_id: found_offset}

    def _offset_at(self, reads: RecordReads, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Where a queue was at a time; its end for a time below 0."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        if timestamp_ms < 0:
            return queue.max_queue_offset
        return search_queue_offset(queue, timestamp_ms, reads.store_time_or_stop)

    def _checked(self, topic: str, queue_id: int, queue_offset: int) -> int:
        low = self._lookup.min_offset_in_queue(topic, queue_id)
        high = self._lookup.max_offset_in_queue(topic, queue_id)
        if not low <= queue_offset <= high + 1:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {queue_offset} not in consume queue range [{low}-{high}]",
            )
        return queue_offset

    def _moved_back_only(self, header: ResetOffsetRequestHeader, found: QueueOffsets) -> QueueOffsets:
        """Without force a queue that is further back already stays where it is."""
        targets = {}
        for queue_id, queue_offset in found.items():
            consumer_offset = self._offsets.query(header.group, header.topic, queue_id)
            targets[queue_id] = queue_offset if consumer_offset < 0 else min(queue_offset, consumer_offset)
        return targets

    def _assign(self, request: Request, header: ResetOffsetRequestHeader, targets: QueueOffsets) -> None:
        if not targets:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, queue_offset in targets.items():
            self._offsets.assign_reset(header.topic, header.group, queue_id, queue_offset)
        _log.info(
            "%s resets %s in %s: %s",
            request.connection.remote_address,
            header.group,
            header.topic,
            queue_words(targets),
        )
        request.reply(body=encode_body(self._reset_body(header.topic, targets)))
        # Consumers at the end of a queue would notice only when their held pull times out.
        self._holds.wake_all()

    def _reset_body(self, topic: str, targets: QueueOffsets) -> ResetOffsetBody:
        broker_name = self._config.current.broker_name or ""
        return ResetOffsetBody(
            {
                MessageQueue(topic, broker_name, queue_id): queue_offset
                for queue_id, queue_offset in targets.items()
            }
        )

    # -- by the clients --------------------------------------------------------------------------

    def _reset_by_clients(self, request: Request, header: ResetOffsetRequestHeader) -> None:
        topic_config = self._topics.get(header.topic)
        if topic_config is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        self._records.when_read(
            request,
            lambda reads: self._client_targets(reads, header, topic_config),
            lambda targets: self._tell_clients(request, header, targets),
        )

    def _client_targets(
        self, reads: RecordReads, header: ResetOffsetRequestHeader, topic_config: TopicConfig
    ) -> QueueOffsets:
        targets = {}
        for queue_id in range(topic_config.write_queue_nums):
            consumer_offset = self._offsets.query(header.group, header.topic, queue_id)
            if consumer_offset < 0:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist"
                )
            found = self._offset_at(reads, header.topic, queue_id, header.timestamp)
            targets[queue_id] = found if header.is_force else min(found, consumer_offset)
        return targets

    def _tell_clients(
        self, request: Request, header: ResetOffsetRequestHeader, targets: QueueOffsets
    ) -> None:
        group = self._consumers.get(header.group)
        if group is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        for queue_id, queue_offset in targets.items():
            self._offsets.floors.take_back(header.topic, header.group, queue_id, queue_offset)
        body = self._reset_body(header.topic, targets)
        for channel in list(group.channels.values()):
            self._tell_client(channel, header, body)
        request.reply(body=encode_body(body))

    def _tell_client(
        self, channel: ClientChannel, header: ResetOffsetRequestHeader, body: ResetOffsetBody
    ) -> None:
        told = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        # C++ reads the list form only; Apache decides by the requester, not by the recipient.
        form = body.for_c() if channel.language == LanguageCode.CPP else body
        command = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, encode_body(form))
        try:
            channel.connection.send_oneway(command)
        except RemotingError as error:
            _log.warning("cannot notify %s of the reset of %s: %s", channel, header.topic, error)
        else:
            _log.info("%s notified of the reset of %s", channel, header.topic)

    # -- asking clients --------------------------------------------------------------------------

    def get_consumer_status(self, request: Request) -> None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: each member's own offsets of a topic."""
        header = request.header(GetConsumerStatusRequestHeader)
        group = self._consumers.get(header.group)
        if group is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        asked = [
            channel
            for channel in group.channels.values()
            if not header.client_addr or channel.client_id == header.client_addr
        ]
        run_request(self._requests, request, self._ask_all(request, header, asked))

    async def _ask_all(
        self, request: Request, header: GetConsumerStatusRequestHeader, asked: list[ClientChannel]
    ) -> None:
        tables = await asyncio.gather(*(_ask(channel, header) for channel in asked))
        consumer_table = {
            channel.client_id: table
            for channel, table in zip(asked, tables, strict=True)
            if table is not None
        }
        request.reply(body=encode_body(GetConsumerStatusBody(consumer_table=consumer_table)))


async def _ask(
    channel: ClientChannel, header: GetConsumerStatusRequestHeader
) -> dict[MessageQueue, int] | None:
    """A member's offsets; None when it does not say."""
    asked = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
    command = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, asked)
    try:
        answer = await channel.connection.call(command, _STATUS_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            _log.warning("%s did not report its offsets: %d %s", channel, answer.code, answer.remark)
            return None
        return decode_body(answer.body, GetConsumerStatusBody).message_queue_table
    except KourouError as error:
        _log.warning("%s did not report its offsets: %s", channel, error)
        return None
