"""Statistics of topics and progress for admin tools (202, 208, 303, 315, 317, 321)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from kourou.protocol.bodies.heartbeat import SubscriptionData
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import V5, Body, Int32, Int64


class TopicOffset(Body):
    """The queue offsets that one queue holds; `max_offset` is the next to be written."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body):
    """All queues of a topic on one broker (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: Annotated[float, V5] = 0.0


class OffsetWrapper(Body):
    """A group's progress on one queue."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Annotated[Int64, V5] = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body):
    """A group's progress on every queue of its topics (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """The progress of all groups of a broker (317): a list of maps, group to one entry per topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Annotated[Int64, V5] = 0


class BrokerStatsItem(Body):
    """A counter over one span of time; `avgpt` is the average for each call."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """A counter over three spans (315)."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class QueueTimeSpan(Body):
    """Times of the first, last and consumed message of a queue.

    The `_str` fields are the times as text; they may be left out.
    """

    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body):
    """The time spans of a topic's queues (303)."""

    consume_time_span_set: list[QueueTimeSpan] = []


class ConsumeQueueData(Body):
    """One unit of a ConsumeQueue, and whether the group's filter lets it pass (`eval`)."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """A run of units of a ConsumeQueue (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
