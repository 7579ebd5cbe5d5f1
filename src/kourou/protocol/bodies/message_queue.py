"""MessageQueue: the one shape that RocketMQ also uses as a map key."""

from __future__ import annotations

import msgspec

from kourou.protocol.bodies.shape import Int32


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker; sorts by topic, broker name, queue id, as in RocketMQ."""

    topic: str = ""
    broker_name: str = ""
    queue_id: Int32 = 0

    def __str__(self) -> str:
        """As messages and logs name it: `topic/broker/queue id`."""
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"
