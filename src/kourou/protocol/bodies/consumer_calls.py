"""Requests from brokers to consumers, and their responses (220, 221, 307, 309).

Clients differ here more than anywhere else: C++ knows the reset table only as a list, Go also
writes it as pairs, and Go spells `dropped` where Java and C++ write `droped`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from msgspec import field

from kourou.errors import ProtocolError
from kourou.protocol.bodies.heartbeat import SubscriptionData
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import V5, Body, Int32, Int64, ReshapedBody, renamed
from kourou.protocol.fastjson import ObjectKey

_QUEUE_NAMES: Final = ("brokerName", "queueId", "topic")


class ResetOffsetBody(ReshapedBody):
    """Offsets to reset to (220 request, 222 response). Reads all three forms."""

    offset_table: dict[MessageQueue, Int64] = {}

    @classmethod
    def reshape(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Turn Go's pairs and C++'s list into the map."""
        table = tree.get("offsetTable")
        if not isinstance(table, list):
            return tree
        return {"offsetTable": dict(_reset_entry(item) for item in table)}

    def for_c(self) -> ResetOffsetBodyForC:
        """The form for C++ consumers, which read no other."""
        return ResetOffsetBodyForC(
            [
                MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, queue_offset)
                for queue, queue_offset in self.offset_table.items()
            ]
        )


class MessageQueueForC(Body):
    """A queue and the queue offset to reset to."""

    topic: str = ""
    broker_name: str = ""
    queue_id: Int32 = 0
    queue_offset: Int64 = field(default=0, name="offset")


class ResetOffsetBodyForC(Body):
    """ResetOffsetBody as C++ consumers read it."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body):
    """A consumer's offsets: its own (221), or of every client by id (223)."""

    message_queue_table: dict[MessageQueue, Int64] = {}
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class ProcessQueueInfo(ReshapedBody):
    """A consumer's state of one queue."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    dropped: bool = field(default=False, name="droped")
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0

    @classmethod
    def reshape(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Accept the spelling of Go clients, too."""
        return renamed(tree, {"dropped": "droped"})


class PopProcessQueueInfo(ReshapedBody):
    """A consumer's state of one queue that it reads by POP (5.x)."""

    wait_ack_count: Int32 = 0
    dropped: bool = field(default=False, name="droped")
    last_pop_timestamp: Int64 = 0

    @classmethod
    def reshape(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Accept the spelling of Go clients, too."""
        return renamed(tree, {"dropped": "droped"})


class ConsumeStatus(Body):
    """How fast a consumer pulls and consumes one topic; RT in milliseconds."""

    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body):
    """A consumer's settings and state (307)."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: Annotated[dict[MessageQueue, PopProcessQueueInfo], V5] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: Annotated[dict[str, str], V5] = {}
    jstack: str | None = None


class CMResult(enum.StrEnum):
    """The result of consuming one message. Members stand in the order of their ordinals."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body):
    """The response of a consumer to which one message was delivered (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0


def _reset_entry(item: object) -> tuple[ObjectKey, object]:
    """Key and offset of one item of either list form."""
    if isinstance(item, list) and len(item) == 2 and isinstance(item[0], dict):
        key, queue_offset = item
    elif isinstance(item, dict):
        key, queue_offset = item, item.get("offset")
    else:
        raise ProtocolError(
            "offsetTable: expected each item to be [queue, offset] or a queue with its offset"
        )
    return ObjectKey.of({name: _plain(key.get(name)) for name in _QUEUE_NAMES}), queue_offset


def _plain(value: Any) -> str | int | None:
    if value is None or isinstance(value, str | int):
        return value
    raise ProtocolError("offsetTable: expected the fields of each queue to be plain values")
