"""Headers of POP consumption (5.x): take messages for a while, acknowledge each."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64, wire_names

__all__ = [
    "AckMessageRequestHeader",
    "ChangeInvisibleTimeRequestHeader",
    "ChangeInvisibleTimeResponseHeader",
    "NotificationRequestHeader",
    "NotificationResponseHeader",
    "PeekMessageRequestHeader",
    "PollingInfoRequestHeader",
    "PollingInfoResponseHeader",
    "PopMessageRequestHeader",
    "PopMessageResponseHeader",
]

_queue_offset = wire_names(queue_offset="offset")


class PopMessageRequestHeader(CommandHeader, kw_only=True):
    """POP_MESSAGE. `queue_id` -1 means any; `init_mode` 0 begins at the oldest, 1 at the newest. `born_time`
    0 is now, as in requests without it."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponseHeader(CommandHeader, kw_only=True):
    """Response to POP_MESSAGE and PEEK_MESSAGE; the three infos say where each message was."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(CommandHeader, kw_only=True):
    """PEEK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


class AckMessageRequestHeader(CommandHeader, kw_only=True, rename=_queue_offset):
    """ACK_MESSAGE; `extra_info` is the message's POP_CK property."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Int64


class ChangeInvisibleTimeRequestHeader(CommandHeader, kw_only=True, rename=_queue_offset):
    """CHANGE_MESSAGE_INVISIBLETIME; `suspend` came with 5.5."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Int64
    invisible_time: Int64
    suspend: bool | None = None


class ChangeInvisibleTimeResponseHeader(CommandHeader, kw_only=True):
    """Response to CHANGE_MESSAGE_INVISIBLETIME."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(CommandHeader, kw_only=True):
    """NOTIFICATION: wait until there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool | None = None
    attempt_id: str | None = None


class NotificationResponseHeader(CommandHeader, kw_only=True):
    """Response to NOTIFICATION."""

    has_msg: bool
    polling_full: bool | None = None


class PollingInfoRequestHeader(CommandHeader, kw_only=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(CommandHeader, kw_only=True):
    """Response to POLLING_INFO."""

    polling_num: Int32
