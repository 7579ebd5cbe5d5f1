"""Queue locks of orderly consumers (41, 42)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import V5, Body


class LockBatchRequestBody(Body):
    """The queues that a client wants to lock (41)."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: Annotated[bool, V5] = False


class UnlockBatchRequestBody(LockBatchRequestBody):
    """The queues that a client unlocks (42)."""


class LockBatchResponseBody(Body):
    """The locked queues (41 response); those denied are missing."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")
