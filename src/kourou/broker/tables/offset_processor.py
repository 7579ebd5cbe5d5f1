"""Offsets of queues, and tables of groups' offsets, for clients and tools.

By time (29), the ends of a queue (30, 31, 32), whole tables (43, 45), and moving a group's offsets
to another's (308, 314). Not here: one group's own offset (consumer_manage_processor.py), resets
(reset_offset.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.record_reads import RecordReads
from kourou.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    QueryCorrectionOffsetBody,
    encode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetAllDelayOffsetHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from kourou.store.queue.queue_time_search import BoundaryType, search_queue_offset
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.message_lookup import MessageLookup

_log = logging.getLogger(__name__)

# Apache's answer for a queue in which the group that is asked about is ahead of all others.
_AHEAD_OF_ALL: Final = (1 << 63) - 1


class OffsetProcessor:
    """Tells offsets. Queues that are not there have none: 0, or -1 for a time."""

    def __init__(
        self,
        *,
        queues: ConsumeQueues,
        lookup: MessageLookup,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        delay_offsets: DelayOffsetManager,
        records: RecordReader,
    ) -> None:
        self._queues = queues
        self._lookup = lookup
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._delay_offsets = delay_offsets
        self._records = records

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_storetime,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
            RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_group_offset,
        }

    # -- of queues -------------------------------------------------------------------------------

    def search_offset_by_timestamp(self, request: Request) -> None:
        """SEARCH_OFFSET_BY_TIMESTAMP: the offset for a point in time."""
        header = request.header(SearchOffsetRequestHeader)
        is_upper = (header.boundary_type or "").upper() == BoundaryType.UPPER.value
        boundary = BoundaryType.UPPER if is_upper else BoundaryType.LOWER
        queue = self._queues.find(header.topic, header.queue_id)

        def search(reads: RecordReads) -> int:
            if queue is None:
                return 0
            return search_queue_offset(queue, header.timestamp, reads.store_time_or_stop, boundary)

        self._records.when_read(
            request,
            search,
            lambda found: request.reply(SearchOffsetResponseHeader(queue_offset=found)),
        )

    def get_max_offset(self, request: Request) -> None:
        """GET_MAX_OFFSET: the next offset that readers will see, or (not committed) that is given out."""
        header = request.header(GetMaxOffsetRequestHeader)
        queue = self._queues.find(header.topic, header.queue_id)
        if queue is None:
            found = 0
        else:
            found = queue.next_queue_offset if header.committed is False else queue.max_queue_offset
        request.reply(GetMaxOffsetResponseHeader(queue_offset=found))

    def get_min_offset(self, request: Request) -> None:
        """GET_MIN_OFFSET: the first offset that can be read."""
        header = request.header(GetMinOffsetRequestHeader)
        found = self._lookup.min_offset_in_queue(header.topic, header.queue_id)
        request.reply(GetMinOffsetResponseHeader(queue_offset=found))

    def get_earliest_msg_storetime(self, request: Request) -> None:
        """GET_EARLIEST_MSG_STORETIME: when the first message of a queue was stored."""
        header = request.header(GetEarliestMsgStoretimeRequestHeader)
        queue = self._queues.find(header.topic, header.queue_id)
        self._records.when_read(
            request,
            lambda reads: -1 if queue is None else reads.message_time(queue, queue.min_queue_offset),
            lambda found: request.reply(GetEarliestMsgStoretimeResponseHeader(timestamp=found)),
        )

    # -- of groups -------------------------------------------------------------------------------

    def get_all_consumer_offset(self, request: Request) -> None:
        """GET_ALL_CONSUMER_OFFSET: the whole table."""
        offsets = self._offsets
        popped_from, floors = offsets.current_popped_from(), offsets.floors.table or None
        table = ConsumerOffsetSerializeWrapper(
            offsets.offset_table, offsets.data_version, popped_from, floors
        )
        request.reply(body=encode_body(table))

    def get_all_delay_offset(self, request: Request) -> None:
        """GET_ALL_DELAY_OFFSET: how far each delay level has been delivered, with where the log ends for a
        slave of ours."""
        offsets = self._delay_offsets
        table = DelayOffsetSerializeWrapper(offsets.table, offsets.data_version)
        is_asked = request.header(GetAllDelayOffsetHeader).kourou_log_end is not None
        log_end = offsets.log_end() if is_asked else None
        request.reply(GetAllDelayOffsetHeader(kourou_log_end=log_end), encode_body(table))

    def query_correction_offset(self, request: Request) -> None:
        """QUERY_CORRECTION_OFFSET: in each queue of a topic the lowest offset of its groups."""
        header = request.header(QueryCorrectionOffsetHeader)
        corrections = self._lowest_offsets(header.topic, set((header.filter_groups or "").split(",")))
        compared = self._offsets.query_all(header.compare_group, header.topic) or {}
        for queue_id, consumer_offset in compared.items():
            if corrections.get(queue_id, 0) > consumer_offset:
                corrections[queue_id] = _AHEAD_OF_ALL
        request.reply(body=encode_body(QueryCorrectionOffsetBody(corrections)))

    def _lowest_offsets(self, topic: str, left_out: set[str]) -> dict[int, int]:
        lowest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic) - left_out:
            queues = self._offsets.query_all(group, topic) or {}
            for queue_id, consumer_offset in queues.items():
                # Below the queue's beginning it says that nothing was consumed for long.
                if consumer_offset >= self._lookup.min_offset_in_queue(topic, queue_id):
                    lowest[queue_id] = min(lowest.get(queue_id, consumer_offset), consumer_offset)
        return lowest

    def clone_group_offset(self, request: Request) -> None:
        """CLONE_GROUP_OFFSET: let a group go on where another one is."""
        header = request.header(CloneGroupOffsetRequestHeader)
        for topic in self._cloned_topics(header):
            self._offsets.clone(header.src_group, header.dest_group, topic)
            _log.info(
                "%s copied the offsets of %s in %s to %s",
                request.connection.remote_address,
                header.src_group,
                topic,
                header.dest_group,
            )
        request.reply()

    def _cloned_topics(self, header: CloneGroupOffsetRequestHeader) -> Iterator[str]:
        """The topics asked for that are here, and that the group still subscribes to."""
        topics = {header.topic} if header.topic else self._offsets.topics_of(header.src_group)
        group = None if header.offline else self._consumers.get(header.src_group)
        for topic in sorted(topics):
            is_subscribed = group is None or not group.subscriptions or topic in group.subscriptions
            if self._topics.get(topic) is not None and is_subscribed:
                yield topic
            else:
                _log.warning("offsets of %s in %s are not copied: unknown there", header.src_group, topic)
