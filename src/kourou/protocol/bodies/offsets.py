"""Tables of offsets: on the broker by group, by delay level, and in a consumer's own file."""

from __future__ import annotations

from msgspec import field

from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import Body, Int32, Int64
from kourou.protocol.bodies.topics import DataVersion


class GroupFloors(Body):
    """What an overflow policy has taken from the backlog of a group in one topic: below `floors`, by queue
    id, the group gets no message. The counts are of all messages since the first one."""

    floors: dict[Int32, Int64] = {}
    dropped: Int64 = 0
    dead_lettered: Int64 = 0


class ConsumerOffsetSerializeWrapper(Body):
    """Consumer offsets (43): `topic@group` to queue id to offset. Kourou's own: `popped_from`, as in
    consumerOffset.json, and `floors`, where groups have any."""

    offset_table: dict[str, dict[Int32, Int64]] = {}
    data_version: DataVersion | None = None
    popped_from: dict[str, dict[Int32, Int64]] | None = field(default=None, name="__kourouPoppedFrom")
    floors: dict[str, GroupFloors] | None = field(default=None, name="__kourouFloors")


class DelayOffsetSerializeWrapper(Body):
    """How far each delay level has been delivered (45): level to queue offset."""

    offset_table: dict[Int32, Int64] = {}
    data_version: DataVersion | None = None


class OffsetSerializeWrapper(Body):
    """What a broadcasting consumer keeps in its own offsets file."""

    offset_table: dict[MessageQueue, Int64] = {}


class QueryCorrectionOffsetBody(Body):
    """Queue id to the offset another group should be set to (308)."""

    correction_offsets: dict[Int32, Int64] = {}


class OffsetMovedEvent(Body):
    """A message of OFFSET_MOVED_EVENT: a group requested deleted messages, and its offset was moved."""

    consumer_group: str = ""
    message_queue: MessageQueue | None = None
    offset_request: Int64 = 0
    offset_new: Int64 = 0
