"""Headers of administering topics on a broker."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64

__all__ = [
    "CheckRocksdbCqWriteProgressRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteTopicRequestHeader",
    "ExportRocksDBConfigToJsonRequestHeader",
    "GetAllTopicConfigRequestHeader",
    "GetAllTopicConfigResponseHeader",
    "GetTopicConfigRequestHeader",
    "GetTopicStatsInfoRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryTopicConsumeByWhoRequestHeader",
]


class CreateTopicRequestHeader(CommandHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC and UPDATE_AND_CREATE_STATIC_TOPIC. C++ leaves out `order`."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequestHeader(CommandHeader, kw_only=True):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


class GetAllTopicConfigRequestHeader(CommandHeader, kw_only=True):
    """GET_ALL_TOPIC_CONFIG of 5.x, read in pages; 4.9 sends no header."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_ALL_TOPIC_CONFIG; a pager stops when the number is not there."""

    total_topic_num: Int32 | None = None


class GetTopicConfigRequestHeader(CommandHeader, kw_only=True):
    """GET_TOPIC_CONFIG; `lo` requests the queue mapping, too."""

    topic: str
    lo: bool | None = None


class GetTopicStatsInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_TOPIC_STATS_INFO."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(CommandHeader, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryConsumeQueueRequestHeader(CommandHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE: `count` entries from `index` on."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class CheckRocksdbCqWriteProgressRequestHeader(CommandHeader, kw_only=True):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS; an empty topic means all."""

    topic: str
    check_store_time: Int64 = 0


class ExportRocksDBConfigToJsonRequestHeader(CommandHeader, kw_only=True):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON; kinds of configuration joined by semicolons."""

    config_type: str
