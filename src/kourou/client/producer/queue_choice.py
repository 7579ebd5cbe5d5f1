"""QueueChoice: how the sender of a message has its queue chosen, in the names that the sender knows.

Not here: the selectors (queue_selectors.py), the turns that queues take otherwise (fault_tolerance.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from kourou.argument_types import wrong_type
from kourou.client.core.namespaces import Namespace
from kourou.client.producer.pending_send import ChooseQueue
from kourou.client.producer.queue_selectors import QueueSelector, select_by_hash
from kourou.errors import MessageRefusedError
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message
from kourou.protocol.properties import MessageConst


class QueueChoice:
    """Turns what a sender says into a function of the topic's queues."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def __call__(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
    ) -> ChooseQueue | None:
        """None where the sender leaves it to us. A sharding key becomes a property of the message."""
        if queue is None and selector is None and sharding_key is None:
            return None
        if (queue is not None) + (selector is not None) + (sharding_key is not None) > 1:
            raise ValueError("give one of queue, selector and sharding_key, not several")
        if queue is not None:
            return self._fixed(message, queue)
        if selector is not None:
            return self._selecting(message, selector, arg)
        if not sharding_key:
            raise MessageRefusedError(f"topic {message.topic!r}: the sharding key is empty")
        try:
            message.put_user_property(MessageConst.PROPERTY_SHARDING_KEY, sharding_key)
        except TypeError:
            raise wrong_type("sharding_key", "a str", sharding_key) from None
        return self._selecting(message, select_by_hash, sharding_key)

    def _fixed(self, message: Message, queue: MessageQueue) -> ChooseQueue:
        try:
            topic, queue_id = queue.topic, queue.queue_id
        except AttributeError:
            raise wrong_type("queue", "a MessageQueue", queue) from None
        if topic != message.topic:
            raise MessageRefusedError(
                f"the message is for topic {message.topic!r}, the chosen queue is of topic {topic!r}"
            )
        if queue_id < 0:
            raise ValueError(f"the chosen queue has the number {queue_id}; it must be at least 0")
        chosen = self._wrapped(queue)
        return lambda queues: chosen

    def _selecting(self, message: Message, selector: QueueSelector, arg: object) -> ChooseQueue:
        def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
            try:
                chosen = selector(self.shown(message.topic, queues), message, arg)
            except TypeError:
                if callable(selector):
                    raise
                raise wrong_type("selector", "a function", selector) from None
            if not isinstance(chosen, MessageQueue):
                raise TypeError(
                    f"queue selector {selector!r} returned {chosen!r} instead of one of the queues"
                )
            return self._wrapped(chosen)

        return choose

    def shown(self, topic: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Queues as the user knows them."""
        if not self._namespace.name:
            return list(queues)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in queues]

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._namespace.name:
            return queue
        return MessageQueue(self._namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)
