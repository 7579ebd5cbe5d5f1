"""PublishQueues: the queues of a topic that a proxy may send to, and which one is next.

Round robin over all of them; a broker that has just failed is passed over for some seconds, as long as there
is another. A message group has its queue whether its broker answers or not: order before availability.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from kourou.client.core.routes import topic_route
from kourou.protocol.bodies import MessageQueue, TopicRouteData
from kourou.protocol.bodies.route import MASTER_ID
from kourou.proxy.messages.message_groups import group_bucket
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code

_AVOIDED_S: Final = 5.0
_MAX_TOPICS: Final = 10_000


class TopicQueues:
    """The writable queues of one topic, sorted by broker and id, as Apache's proxy sorts them."""

    __slots__ = ("queues", "route", "turn")

    def __init__(self, topic: str, route: TopicRouteData, turn: int) -> None:
        self.route = route
        self.queues = _writable(topic, route)
        # For each topic: with one counter for all, alternating sends to two topics would use only every
        # second queue.
        self.turn = turn


class PublishQueues:
    """The queues of all topics, as their routes say."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._topics: dict[str, TopicQueues] = {}
        self._avoided: dict[str, float] = {}

    def of(self, topic: str, route: TopicRouteData) -> TopicQueues:
        """The queues of a topic. StatusError: there is none that can be written to."""
        known = self._topics.get(topic)
        if known is None or known.route is not route:
            if len(self._topics) >= _MAX_TOPICS:
                self._topics.clear()
            turn = random.randrange(1 << 30) if known is None else known.turn
            known = self._topics[topic] = TopicQueues(topic, route, turn)
        if not known.queues:
            raise StatusError(Code.FORBIDDEN, f"topic {topic} has no queue that can be written to")
        return known

    def next(self, topic: TopicQueues) -> MessageQueue:
        """The queue whose turn it is."""
        queues = topic.queues
        topic.turn += 1
        queue = queues[topic.turn % len(queues)]
        if not self._avoided:
            return queue
        now = self._loop.time()
        for _ in queues:
            if self._avoided.get(queue.broker_name, now) <= now:
                return queue
            topic.turn += 1
            queue = queues[topic.turn % len(queues)]
        return queue

    def of_group(self, topic: TopicQueues, message_group: str) -> MessageQueue:
        """The queue of a message group."""
        return topic.queues[group_bucket(message_group, len(topic.queues))]

    def failed(self, broker_name: str) -> None:
        """A send to this broker has failed."""
        now = self._loop.time()
        self._avoided = {name: until for name, until in self._avoided.items() if until > now}
        self._avoided[broker_name] = now + _AVOIDED_S


def _writable(topic: str, route: TopicRouteData) -> Sequence[MessageQueue]:
    masters = {broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.broker_addrs}
    queues = topic_route(topic, route).publish_queues
    return sorted({queue for queue in queues if queue.broker_name in masters})
