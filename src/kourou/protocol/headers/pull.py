"""Headers of reading messages: by queue, by key, by position."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64, wire_names

__all__ = [
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "ViewMessageRequestHeader",
]


class PullMessageRequestHeader(CommandHeader, kw_only=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE. `sys_flag` has the bits of PullSysFlag; no type means TAG.

    `kourou_large_pull` is ours (features.py).
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None
    kourou_large_pull: bool | None = None


class PullMessageResponseHeader(CommandHeader, kw_only=True):
    """Response to a pull. Clients need the first four fields whether messages were found or not."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessageRequestHeader(
    CommandHeader, kw_only=True, rename=wire_names(unique_key_query="_UNIQUE_KEY_QUERY")
):
    """QUERY_MESSAGE. With `unique_key_query` the key is a unique id.

    `index_type` and `last_key`, after which an index in RocksDB goes on, came with 5.5.
    """

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = None
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponseHeader(CommandHeader, kw_only=True):
    """Response to QUERY_MESSAGE: how far the index has come."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(CommandHeader, kw_only=True, rename=wire_names(phy_offset="offset")):
    """VIEW_MESSAGE_BY_ID, sent to the address inside the offset id."""

    topic: str | None = None
    phy_offset: Int64
