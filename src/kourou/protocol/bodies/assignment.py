"""Queues assigned by the broker, and how they are read: by pulling or by POP (400 to 402, 5.x)."""

from __future__ import annotations

import enum

from kourou.protocol.bodies.heartbeat import MessageModel
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import Body, Int32


class MessageRequestMode(enum.StrEnum):
    """How a consumer reads: by pull or POP."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequestBody(Body):
    """Requests the queues that a client should read (400)."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = None
    message_model: MessageModel | None = None


class MessageQueueAssignment(Body):
    """One queue and how to read it."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """The queues (400 response). None, unlike an empty list, means: change nothing this time."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    """How a group reads a topic (401). With `pop_share_queue_num` 0 or less, all clients share all queues."""

    topic: str = ""
    consumer_group: str = ""
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0


class MessageRequestModeSerializeWrapper(Body):
    """All modes: topic to group to mode (402)."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
