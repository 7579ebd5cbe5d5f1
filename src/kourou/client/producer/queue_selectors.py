"""Queue selectors: which queue a message goes to when its sender decides.

A selector gets the topic's queues, the message and the argument given to the send, and returns one of
the queues. There is no second try on another queue: messages that belong together stay together.
Not here: the choice of queues for ordinary sends (fault_tolerance.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from kourou.client.core.strategies import machine_room
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message
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
