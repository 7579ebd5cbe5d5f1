"""Headers of sending: SEND_MESSAGE in its two forms, replies, send back, recall.

The two forms of a send carry the same fields; the second has letters for names. Both have the same
attributes here, so that code which handles a send need not distinguish them. Letters: layout.py.
`kourou_sequenced`: the messages carry sequences of an idempotent producer (producer_sequence.py).
"""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64, wire_names
from kourou.protocol.layout import SEND_FIELDS

__all__ = [
    "ConsumerSendMsgBackRequestHeader",
    "RecallMessageRequestHeader",
    "RecallMessageResponseHeader",
    "ReplyMessageRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
]

_V2_NAMES = {field.name: field.letter for field in SEND_FIELDS} | {"kourou_sequenced": "kourouSequenced"}


class SendMessageRequestHeader(CommandHeader, kw_only=True, rename=wire_names(broker_name="bname")):
    """SEND_MESSAGE and SEND_REPLY_MESSAGE. A `queue_id` below 0 lets the broker choose."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = None
    kourou_sequenced: bool | None = None


class SendMessageRequestHeaderV2(CommandHeader, kw_only=True, rename=_V2_NAMES):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2.

    `batch` says whether the body is a batch; the request code does not.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = None
    kourou_sequenced: bool | None = None


class SendMessageResponseHeader(
    CommandHeader, kw_only=True, rename=wire_names(msg_region="MSG_REGION", trace_on="TRACE_ON")
):
    """Response to every kind of send. `msg_id` is an offset id, of a batch a list joined by commas.

    For a repeat of an idempotent producer `kourou_msg_ids` is the id that the producer gave the original. For
    a batch with repeats it is one for each message, empty for a new one, beside the queue_offset of each."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = None
    trace_on: bool | None = None
    kourou_msg_ids: str | None = None
    kourou_queue_offsets: str | None = None


class ReplyMessageRequestHeader(CommandHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT, from the broker to the requester; hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


class ConsumerSendMsgBackRequestHeader(CommandHeader, kw_only=True, rename=wire_names(phy_offset="offset")):
    """CONSUMER_SEND_MSG_BACK: the message stored at `phy_offset` failed and is to come again."""

    phy_offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class RecallMessageRequestHeader(CommandHeader, kw_only=True):
    """RECALL_MESSAGE: take a timer message back before it is delivered."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(CommandHeader, kw_only=True):
    """Response to RECALL_MESSAGE."""

    msg_id: str
