"""An order, and its message."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from kourou import Message, MessageExt

TOPIC = "Orders"


@dataclass(frozen=True)
class Order:
    """What a customer wants to buy."""

    order_id: str
    cents: int

    def to_message(self, topic: str) -> Message:
        """The message for this order; its key is the order's id."""
        return Message(topic, json.dumps(asdict(self)).encode(), tags="placed", keys=[self.order_id])

    @classmethod
    def of(cls, message: MessageExt) -> Order:
        """The order in a message."""
        return cls(**json.loads(message.body))
