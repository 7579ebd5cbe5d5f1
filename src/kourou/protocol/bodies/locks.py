"""Locks on queues, by which an orderly consumer keeps others away (41, 42)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import V5, Body


class LockBatchRequestBody(Body):
    """The queues a client wants to hold (41)."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: Annotated[bool, V5] = False


class UnlockBatchRequestBody(LockBatchRequestBody):
    """The queues a client lets go (42)."""


class LockBatchResponseBody(Body):
    """The queues it now holds (41 response); those refused are just missing."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")
