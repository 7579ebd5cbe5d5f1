"""How far topics have grown and how far groups have consumed them: lag, and times of messages.

Computes bodies from the store and the tables of a broker; changes nothing. All reads of messages'
times go through RecordReads, so that the work can be done again when they were on disk.
Not here: the requests (stats_processor.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kourou.broker.storage.record_reads import RecordReads
from kourou.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfig,
    TopicOffset,
    TopicStatsTable,
)

if TYPE_CHECKING:
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.message_lookup import MessageLookup


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsView:
    """The state of one broker as tools want to see it, through the `reads` of one request."""

    reads: RecordReads
    broker_name: str
    address: str
    queues: ConsumeQueues
    lookup: MessageLookup
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    stats: BrokerStatsManager
    now_ms: Callable[[], int]

    # -- topics ----------------------------------------------------------------------------------

    def topic_stats(self, config: TopicConfig) -> TopicStatsTable:
        """The offsets of every queue of a topic, and when it last got a message (202)."""
        topic = config.topic_name
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        table = {
            self._queue(topic, queue_id): self._topic_offset(topic, queue_id)
            for queue_id in range(queue_nums)
        }
        return TopicStatsTable(table, self.stats.topic_put_tps(topic))

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return TopicOffset()
        last_ms = self._message_time(topic, queue_id, queue.max_queue_offset - 1)
        return TopicOffset(queue.min_queue_offset, queue.max_queue_offset, max(0, last_ms))

    # -- groups ----------------------------------------------------------------------------------

    def group_stats(self, group: str, topics: Iterable[str]) -> ConsumeStats:
        """A group's progress in these topics, those left out that are not here or that its members
        no longer subscribe to (208)."""
        stats = ConsumeStats({})
        for topic in topics:
            config = self.topics.get(topic)
            if config is not None and self._is_consumed(group, topic):
                self._add_topic(stats, group, config)
        return stats

    def broker_stats(self, is_order: bool) -> ConsumeStatsList:
        """The progress of every group, topic by topic (317); with `is_order` in ordered topics only."""
        listed = ConsumeStatsList([], self.address)
        for group in self.groups.table:
            of_group = [
                self.group_stats(group, (topic,))
                for topic in sorted(self.offsets.topics_of(group))
                if not is_order or self.topics.is_order(topic)
            ]
            of_group = [stats for stats in of_group if stats.offset_table]
            listed.consume_stats_list.append({group: of_group})
            for stats in of_group:
                listed.total_diff += total_lag(stats)
                listed.total_inflight_diff += total_inflight(stats)
        return listed

    def _is_consumed(self, group: str, topic: str) -> bool:
        info = self.consumers.get(group)
        return info is None or not info.subscriptions or topic in info.subscriptions

    def _add_topic(self, stats: ConsumeStats, group: str, config: TopicConfig) -> None:
        topic = config.topic_name
        for queue_id in range(config.read_queue_nums):
            stats.offset_table[self._queue(topic, queue_id)] = self._progress(group, topic, queue_id)
        stats.consume_tps += self.stats.group_get_tps(group, topic)

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        offsets = self.offsets
        consumer_offset = max(0, offsets.query(group, topic, queue_id))
        last_ms = self._message_time(topic, queue_id, consumer_offset - 1)
        return OffsetWrapper(
            broker_offset=self.lookup.max_offset_in_queue(topic, queue_id),
            consumer_offset=consumer_offset,
            pull_offset=max(consumer_offset, offsets.query_pull(group, topic, queue_id)),
            last_timestamp=max(0, last_ms),
        )

    # -- times -----------------------------------------------------------------------------------

    def time_spans(self, config: TopicConfig, group: str) -> QueryConsumeTimeSpanBody:
        """From when to when a topic has messages, and where a group is in between (303)."""
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        return QueryConsumeTimeSpanBody(
            [self._time_span(config.topic_name, queue_id, group) for queue_id in range(queue_nums)]
        )

    def _time_span(self, topic: str, queue_id: int, group: str) -> QueueTimeSpan:
        lookup = self.lookup
        low, high = lookup.min_offset_in_queue(topic, queue_id), lookup.max_offset_in_queue(topic, queue_id)
        consumer_offset = self.offsets.query(group, topic, queue_id)
        min_ms = self._message_time(topic, queue_id, low)
        max_ms = self._message_time(topic, queue_id, high - 1)
        consumed_ms = (
            self._message_time(topic, queue_id, consumer_offset - 1) if consumer_offset > 0 else min_ms
        )
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=min_ms,
            max_time_stamp=max_ms,
            consume_time_stamp=consumed_ms,
            delay_time=self._delay_ms(topic, queue_id, max(low, consumer_offset), high),
            min_time_stamp_str=_time_text(min_ms),
            max_time_stamp_str=_time_text(max_ms),
            consume_time_stamp_str=_time_text(consumed_ms),
        )

    def _delay_ms(self, topic: str, queue_id: int, next_offset: int, high: int) -> int:
        """How long the first message that was not consumed has been waiting; 0 when there is none."""
        waits_since_ms = self._message_time(topic, queue_id, next_offset) if next_offset < high else -1
        return max(0, self.now_ms() - waits_since_ms) if waits_since_ms >= 0 else 0

    # -- both ------------------------------------------------------------------------------------

    def _message_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        if queue_offset < 0:
            return -1
        return self.reads.message_time(self.queues.find(topic, queue_id), queue_offset)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.broker_name, queue_id)


def total_lag(stats: ConsumeStats) -> int:
    """Messages that are stored and not consumed."""
    return sum(each.broker_offset - each.consumer_offset for each in stats.offset_table.values())


def total_inflight(stats: ConsumeStats) -> int:
    """Messages that consumers were given and have not committed."""
    return sum(each.pull_offset - each.consumer_offset for each in stats.offset_table.values())


def _time_text(timestamp_ms: int) -> str:
    """Apache's form for people, in local time."""
    time = datetime.fromtimestamp(max(0, timestamp_ms) / 1000)
    return f"{time:%Y-%m-%d#%H:%M:%S}:{time.microsecond // 1000:03d}"
