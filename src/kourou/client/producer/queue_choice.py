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
from kourou.protocol.properties import MessageConst
from kourou.protocol.tags import java_hash_code

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Chooses one of the queues for a message, by what the sender gave as argument: a selector says its type."""


def select_by_hash(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """Equal arguments give the same queue, the one that Java's SelectMessageQueueByHash gives.

    As long as the number of queues stays the same, that is.
    """
    return queues[abs(java_hash_of(arg)) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """Any queue."""
    return random.choice(queues)


def select_by_machine_room(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """Any queue in the room (or one of the rooms) named by `arg`; rooms are those of `room@name` brokers."""
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
    """`hashCode` of what `value` would be in Java: String, Boolean, Integer, Long beyond 32 bits; 0 of None.

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
    raise TypeError(f"{value!r} has no hash that Java would agree on; give text, or a number of 64 bits")


def _long_hash(value: int) -> int:
    folded = (value ^ (value >> 32)) & 0xFFFFFFFF
    return folded - (1 << 32) if folded & 0x80000000 else folded


# A send that took so long (or longer) makes its broker avoided for as long as stands below it.
_LATENCY_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
_AVOIDED_MS: Final = (0, 0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
# What a send that failed counts as: how long it took says nothing then.
_ISOLATION_LATENCY_MS: Final = 10_000


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_at: float
    is_reachable: bool


class LatencyFaults:
    """What is known of each broker's last sends. `now` counts seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._faults: dict[str, _Fault] = {}

    def update(self, broker_name: str, latency_ms: float, *, isolate: bool, reachable: bool = True) -> None:
        """Note how a send to `broker_name` went: `isolate` if it failed.

        A time to avoid it is only ever extended. A broker that is not `reachable` stays so until
        somebody says otherwise here.
        """
        avoided_ms = avoided_for_ms(_ISOLATION_LATENCY_MS if isolate else latency_ms)
        fault = self._faults.get(broker_name)
        if fault is None:
            # Known brokers that answer fast are the rule: they cost one entry and no clock.
            fault = self._faults[broker_name] = _Fault(latency_ms, 0.0, reachable)
        fault.latency_ms = latency_ms
        fault.is_reachable = reachable
        if avoided_ms:
            fault.available_at = max(fault.available_at, self._now() + avoided_ms / 1000)

    def is_available(self, broker_name: str) -> bool:
        """Whether the time to avoid it, if there was one, is over."""
        fault = self._faults.get(broker_name)
        return fault is None or not fault.available_at or self._now() >= fault.available_at

    def is_reachable(self, broker_name: str) -> bool:
        """Whether a connection to it was possible when it was last tried."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def unreachable_brokers(self) -> list[str]:
        """Those to probe: nothing is sent to them until they are said to be reachable."""
        return [name for name, fault in self._faults.items() if not fault.is_reachable]

    def forget(self, broker_name: str) -> None:
        """The broker is gone from all routes."""
        self._faults.pop(broker_name, None)


def avoided_for_ms(latency_ms: float) -> int:
    """For how long a broker is avoided after a send of that latency.

    >>> [avoided_for_ms(latency_ms) for latency_ms in (5, 549, 550, 1_800, 10_000, 60_000)]
    [0, 0, 2000, 5000, 10000, 30000]
    """
    return _AVOIDED_MS[bisect_right(_LATENCY_MS, latency_ms)]


class QueuePicker:
    """Takes a topic's queues in turn, each topic for itself, from a random start.

    Without `faults` only a retry is special: it goes to another broker than the last attempt, if there
    is one. With them, brokers that are to be avoided come last.
    """

    def __init__(self, faults: LatencyFaults | None = None) -> None:
        self._faults = faults
        # One counter for all topics would, with two topics sent to by turns, reach every second queue only.
        self._counters: dict[str, int] = {}

    def pick(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """The queue for the next attempt; `last_broker` is where the attempt before it went, if any."""
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
