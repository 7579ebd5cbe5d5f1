"""Which queue a message goes to: chosen by the caller, or round robin.

Selectors and QueueChoice: the caller decides, and no other queue is tried, so that messages that belong
together stay together. QueuePicker: queues in turn, skipping brokers that failed or were slow according to
LatencyFaults, by the table of Apache's 5.x client.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kourou.argument_types import wrong_type
from kourou.client.core.namespaces import Namespace
from kourou.client.core.strategies import machine_room
from kourou.client.producer.pending_send import ChooseQueue
from kourou.errors import MessageRefusedError
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message
from kourou.protocol.priority import priority_queue
from kourou.protocol.properties import MessageConst
from kourou.protocol.tags import java_hash_code

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Chooses one of the queues for a message; the third argument is the caller's `arg`."""


def select_by_hash(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """The same queue for equal arguments, as long as the number of queues does not change.

    It is the queue that Java's SelectMessageQueueByHash chooses.
    """
    return queues[abs(java_hash_of(arg)) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """A random queue."""
    return random.choice(queues)


def select_by_machine_room(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """A random queue in the room, or one of the rooms, in `arg`; a broker named `room@name` is in a room."""
    rooms = (arg,) if isinstance(arg, str) else arg
    if not isinstance(rooms, Collection):
        raise TypeError(f"a machine room is text, and several are a list; {arg!r} is neither")
    inside = [queue for queue in queues if machine_room(queue) in rooms]
    if not inside:
        brokers = ", ".join(sorted({queue.broker_name for queue in queues}))
        raise ValueError(
            f"topic {message.topic!r} has no queue in machine room {arg!r}; its brokers are {brokers}, "
            "and a broker is in a room if it is named room@name"
        )
    return random.choice(inside)


def java_hash_of(value: object) -> int:
    """Java's `hashCode` of `value` as String, Boolean, Integer, or Long beyond 32 bits; 0 for None.

    >>> java_hash_of("order-1"), java_hash_of(7), java_hash_of(True), java_hash_of(1 << 32)
    (-1207111310, 7, 1231, 1)
    """
    if value is None:
        return 0
    if isinstance(value, str):
        return java_hash_code(value)
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return value if -(1 << 31) <= value < 1 << 31 else _long_hash(value)
    raise TypeError(f"{value!r} has no equivalent hash in Java; give text, or a number of 64 bits")


def _long_hash(value: int) -> int:
    folded = (value ^ (value >> 32)) & 0xFFFFFFFF
    return folded - (1 << 32) if folded & 0x80000000 else folded


# A broker is avoided for the time in the second row after a send of at least the latency in the first.
_LATENCY_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
_AVOIDED_MS: Final = (0, 0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
# The latency that a failed send counts as.
_ISOLATION_LATENCY_MS: Final = 10_000


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_at: float
    is_reachable: bool


class LatencyFaults:
    """The latency and failures of recent sends, by broker. `now` returns seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._faults: dict[str, _Fault] = {}

    def update(self, broker_name: str, latency_ms: float, *, isolate: bool, reachable: bool = True) -> None:
        """Record the result of a send to `broker_name`; `isolate` if it failed.

        The time for which a broker is avoided is only ever extended. A broker that is not `reachable` stays
        so until the next update.
        """
        avoided_ms = avoided_for_ms(_ISOLATION_LATENCY_MS if isolate else latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None:
            # Fast brokers are the usual case: they cost one entry, and no reading of the clock.
            fault = self._faults[broker_name] = _Fault(latency_ms, 0.0, reachable)
        fault.latency_ms = latency_ms
        fault.is_reachable = reachable
        if avoided_ms:
            fault.available_at = max(fault.available_at, self._now() + avoided_ms / 1000)

    def is_available(self, broker_name: str) -> bool:
        """Whether the broker is not to be avoided at present."""
        fault = self._faults.get(broker_name)
        return fault is None or not fault.available_at or self._now() >= fault.available_at

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last attempt to connect succeeded."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def unreachable_brokers(self) -> list[str]:
        """The brokers to probe: nothing is sent to them until they are reachable again."""
        return [name for name, fault in self._faults.items() if not fault.is_reachable]

    def forget(self, broker_name: str) -> None:
        """The broker is gone from all routes."""
        self._faults.pop(broker_name, None)


def avoided_for_ms(latency_ms: float) -> int:
    """How long a broker is avoided after a send of that latency.

    >>> [avoided_for_ms(latency_ms) for latency_ms in (5, 549, 550, 1_800, 10_000, 60_000)]
    [0, 0, 2000, 5000, 10000, 30000]
    """
    return _AVOIDED_MS[bisect_right(_LATENCY_MS, latency_ms)]


class QueuePicker:
    """Round robin over the queues of each topic, from a random start.

    A retry goes to another broker than the last attempt, if there is one. With `faults`, brokers to be
    avoided are chosen last.
    """

    def __init__(self, faults: LatencyFaults | None = None) -> None:
        self._faults = faults
        # With one counter for all topics, alternating sends to two topics would use only every second queue.
        self._counters: dict[str, int] = {}

    def pick(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """The queue for the next attempt; `last_broker` is that of the previous attempt, if any."""
        if self._faults is None:
            found = self._next_where(queues, last_broker, _any) if last_broker else None
            return found or self._next(queues)
        for is_fit in (self._faults.is_available, self._faults.is_reachable):
            if found := self._next_where(queues, last_broker, is_fit):
                return found
        return self._next(queues)

    def _next(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        topic = queues[0].topic
        counter = self._counters.get(topic)
        if counter is None:
            counter = random.randrange(1 << 30)
        self._counters[topic] = counter + 1
        return queues[counter % len(queues)]

    def _next_where(
        self, queues: Sequence[MessageQueue], last_broker: str | None, is_fit: Callable[[str], bool]
    ) -> MessageQueue | None:
        for _ in queues:
            queue = self._next(queues)
            if queue.broker_name != last_broker and is_fit(queue.broker_name):
                return queue
        return None


def _any(broker_name: str) -> bool:
    return True


def queue_of_priority(queues: Sequence[MessageQueue], broker_name: str, priority: int) -> MessageQueue:
    """Of the queues of a topic, that of a broker which stands for a priority."""
    own = [queue for queue in queues if queue.broker_name == broker_name]
    return own[priority_queue(priority, len(own))]


class QueueChoice:
    """Turns the caller's arguments into a function of the topic's queues."""

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
        """None if the caller does not choose. A sharding key becomes a property of the message."""
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
            raise ValueError(f"queue_id is {queue_id}; it must be at least 0")
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
