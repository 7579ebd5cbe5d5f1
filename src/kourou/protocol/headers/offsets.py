"""Headers of requests that read, update and reset offsets."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64, wire_names

__all__ = [
    "CloneGroupOffsetRequestHeader",
    "GetAllDelayOffsetHeader",
    "GetConsumerStatusRequestHeader",
    "GetEarliestMsgStoretimeRequestHeader",
    "GetEarliestMsgStoretimeResponseHeader",
    "GetMaxOffsetRequestHeader",
    "GetMaxOffsetResponseHeader",
    "GetMinOffsetRequestHeader",
    "GetMinOffsetResponseHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryConsumerOffsetResponseHeader",
    "QueryCorrectionOffsetHeader",
    "ResetOffsetRequestHeader",
    "SearchOffsetRequestHeader",
    "SearchOffsetResponseHeader",
    "UpdateConsumerOffsetRequestHeader",
]

_queue_offset = wire_names(queue_offset="offset")


class QueryConsumerOffsetRequestHeader(CommandHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(
    CommandHeader, kw_only=True, rename=wire_names(consumer_offset="offset")
):
    """Response to QUERY_CONSUMER_OFFSET."""

    consumer_offset: Int64


class UpdateConsumerOffsetRequestHeader(CommandHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetRequestHeader(CommandHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP. `boundary_type` is LOWER (the default) or UPPER, in any case."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetResponseHeader(CommandHeader, kw_only=True, rename=_queue_offset):
    """Response to SEARCH_OFFSET_BY_TIMESTAMP."""

    queue_offset: Int64


class GetMaxOffsetRequestHeader(CommandHeader, kw_only=True):
    """GET_MAX_OFFSET; not sent, `committed` means true."""

    topic: str
    queue_id: Int32
    committed: bool | None = None


class GetMaxOffsetResponseHeader(CommandHeader, kw_only=True, rename=_queue_offset):
    """Response to GET_MAX_OFFSET: the next offset to be written."""

    queue_offset: Int64


class GetMinOffsetRequestHeader(CommandHeader, kw_only=True):
    """GET_MIN_OFFSET."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(CommandHeader, kw_only=True, rename=_queue_offset):
    """Response to GET_MIN_OFFSET."""

    queue_offset: Int64


class GetEarliestMsgStoretimeRequestHeader(CommandHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_EARLIEST_MSG_STORETIME; -1 when there is no message."""

    timestamp: Int64


class ResetOffsetRequestHeader(CommandHeader, kw_only=True, rename=_queue_offset):
    """INVOKE_BROKER_TO_RESET_OFFSET and RESET_CONSUMER_CLIENT_OFFSET.

    `timestamp` -1 means the newest; `queue_id` not sent or -1 means all queues.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    queue_offset: Int64 | None = None


class GetConsumerStatusRequestHeader(CommandHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS and GET_CONSUMER_STATUS_FROM_CLIENT.

    `client_addr` is a client id, whatever its name says.
    """

    topic: str
    group: str
    client_addr: str | None = None


class GetAllDelayOffsetHeader(CommandHeader, kw_only=True):
    """GET_ALL_DELAY_OFFSET and its answer between brokers of ours: where the log of the sender ends. Apache's
    slaves and masters have no header here."""

    kourou_log_end: Int64 | None = None


class QueryCorrectionOffsetHeader(CommandHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(CommandHeader, kw_only=True):
    """CLONE_GROUP_OFFSET; without a topic all topics of the group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
