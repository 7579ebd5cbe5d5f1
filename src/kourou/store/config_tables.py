"""The tables in `config/*.json`: their shapes, as Apache's brokers keep them.

    load_table(raw, TopicConfigTable)    any form that Apache 4.9 or 5.x, or we, wrote
    dump_table(table)                    Apache's pretty form; 4.9 and 5.x read it

Names come out sorted, so that two files compare line by line. 4.9 skips the fields it does not
have. What is derived from the rest (`groupTopicMap`) is not kept.
Not here: the files (config_file.py); what the tables mean, and when they are written (broker).
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import field

from kourou.protocol.bodies import (
    Body,
    DataVersion,
    GroupFloors,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicQueueMappingDetail,
    decode_body,
)
from kourou.protocol.bodies.shape import Int32, Int64
from kourou.store import pretty_json

Table = TypeVar("Table", bound=msgspec.Struct)


class TopicConfigTable(Body):
    """`topics.json`: every topic by name."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = field(default_factory=DataVersion)


class SubscriptionGroupTable(SubscriptionGroupWrapper):
    """`subscriptionGroup.json`: every consumer group by name."""


class ConsumerOffsetTable(Body):
    """`consumerOffset.json`: `topic@group` to queue id to the next offset to consume.

    4.9 has no `data_version`; `pull_offset_table` (5.x) is for groups that pull by themselves. Kourou's own:
    `popped_from`, ends of queues by topic and queue id; the table counts all pops whose records lie below.
    Its queue ids are texts: 5.x fails to skip an unknown field with integer keys, and loads no offset then.
    """

    offset_table: dict[str, dict[Int32, Int64]] = {}
    pull_offset_table: dict[str, dict[Int32, Int64]] | None = None
    data_version: DataVersion | None = None
    popped_from: dict[str, dict[str, Int64]] | None = field(default=None, name="__kourouPoppedFrom")


class OverflowFloorTable(Body):
    """`overflowFloors.json`, which only Kourou has: `topic@group` to what an overflow policy has taken from
    the group's backlog."""

    floor_table: dict[str, GroupFloors] = {}


class DelayOffsetTable(Body):
    """`delayOffset.json`: delay level, from 1 on, to the next queue offset to deliver."""

    offset_table: dict[Int32, Int64] = {}
    data_version: DataVersion | None = None


class NotedDelayOffsetTable(DelayOffsetTable):
    """`delayOffset.json` with Kourou's additional note on progress: it counts the deliveries in the CommitLog
    up to there."""

    log_phy_offset: Int64 | None = field(default=None, name="__kourouLogPhyOffset")


class BloomFilterData(Body):
    """Which bits of a message's bit map stand for a filter."""

    bit_pos: list[Int32] = []
    bit_num: Int32 = 0


class ConsumerFilterData(Body):
    """The SQL filter of one group on one topic; `dead_time` is when its last consumer left."""

    consumer_group: str = ""
    topic: str = ""
    expression: str | None = None
    expression_type: str | None = None
    born_time: Int64 = 0
    dead_time: Int64 = 0
    dead: bool = False
    client_version: Int64 = 0
    bloom_filter_data: BloomFilterData | None = None


class FilterDataMapByTopic(Body):
    """The SQL filters of one topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str = ""


class ConsumerFilterTable(Body):
    """`consumerFilter.json`: SQL filters by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}


class OrderInfo(Body):
    """What a POP consumer of an ordered group got from one queue last (5.x).

    `offset_list` has the first queue offset, then the distance of each other one from it;
    `commit_offset_bit` a bit for each that is acknowledged.
    """

    pop_time: Int64 = 0
    invisible_time_ms: Int64 | None = field(name="i", default=None)
    offset_list: list[Int64] = field(name="o", default_factory=list)
    offset_next_visible_time: dict[Int64, Int64] = field(name="ot", default_factory=dict)
    offset_consumed_count: dict[Int64, Int32] = field(name="oc", default_factory=dict)
    last_consume_timestamp: Int64 = field(name="l", default=0)
    commit_offset_bit: Int64 = field(name="cm", default=0)
    attempt_id: str | None = field(name="a", default=None)


class ConsumerOrderInfoTable(Body):
    """`consumerOrderInfo.json` (5.x): `topic@group` to queue id to what was handed out in order."""

    table: dict[str, dict[Int32, OrderInfo]] = {}
    ordered_consumption_level: str | None = None
    order_info_count: Int32 | None = None


class NotedConsumerOrderInfoTable(ConsumerOrderInfoTable):
    """`consumerOrderInfo.json` with Kourou's additional notes: it counts the journal's records below
    `journal_offset`, of which the last one lies at `journal_phy_offset`; -1: there is none."""

    journal_offset: Int64 | None = field(default=None, name="__kourouJournalOffset")
    journal_phy_offset: Int64 = field(default=-1, name="__kourouJournalPhyOffset")


class TopicQueueMappingTable(Body):
    """`topicQueueMapping.json` (5.x): static topics, and where each of their queues lies."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = {}
    data_version: DataVersion = field(default_factory=DataVersion)


class MessageRequestModeTable(MessageRequestModeSerializeWrapper):
    """`messageRequestMode.json` (5.x): which groups of a topic use POP."""


TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "topics.json": TopicConfigTable,
    "subscriptionGroup.json": SubscriptionGroupTable,
    "consumerOffset.json": ConsumerOffsetTable,
    "delayOffset.json": DelayOffsetTable,
    "overflowFloors.json": OverflowFloorTable,
    "consumerFilter.json": ConsumerFilterTable,
    "consumerOrderInfo.json": ConsumerOrderInfoTable,
    "topicQueueMapping.json": TopicQueueMappingTable,
    "messageRequestMode.json": MessageRequestModeTable,
}
"""File name to the shape of what is in it."""


def load_table(raw: bytes, shape: type[Table]) -> Table:
    """Read the bytes of a file; ProtocolError says where they are not such a table."""
    return decode_body(raw, shape)


def dump_table(table: msgspec.Struct) -> bytes:
    """The bytes of a file."""
    return pretty_json.write(msgspec.to_builtins(table, str_keys=False, order="sorted"))
