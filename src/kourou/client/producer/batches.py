"""Which messages travel together: batches of one topic, no larger than allowed, in the order given.

A batch has one topic and one wish about waiting for the store. Delayed messages and replies cannot be
in one, nor can messages for a retry topic; they go alone. Pure: nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kourou.protocol.batch import batch_problem
from kourou.protocol.message import Message
from kourou.protocol.properties import MessageConst

# Of an entry of a batch, besides body and properties.
_ENTRY_BYTES: Final = 22
# Room for what a message gets before it is sent: its unique id.
_ADDED_BYTES: Final = 80
_ALONE: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
    MessageConst.PROPERTY_MESSAGE_TYPE,
)


def plan_batches(messages: Sequence[Message], max_batch_bytes: int) -> list[list[int]]:
    """The positions in `messages` of those that travel together. A larger message goes alone.

    >>> a, b = Message("A", b"1"), Message("B", b"2")
    >>> plan_batches([a, b, a], 1000)
    [[0, 2], [1]]
    """
    batches: list[list[int]] = []
    open_batches: dict[tuple[str, bool], tuple[list[int], int]] = {}
    for index, message in enumerate(messages):
        if not _may_join(message):
            batches.append([index])
            continue
        kind = (message.topic, message.wait_store_msg_ok)
        size = entry_bytes(message)
        batch, filled = open_batches.get(kind, ([], max_batch_bytes))
        if filled + size > max_batch_bytes:
            batch, filled = [], 0
            batches.append(batch)
        batch.append(index)
        open_batches[kind] = (batch, filled + size)
    return batches


def entry_bytes(message: Message) -> int:
    """At most so many bytes a message takes in a batch."""
    properties = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    # Not ASCII takes up to three bytes a character; one too many is better than a batch too large.
    if not all(value.isascii() and name.isascii() for name, value in message.properties.items()):
        properties *= 3
    return _ENTRY_BYTES + _ADDED_BYTES + len(message.body) + properties


def _may_join(message: Message) -> bool:
    if any(message.get_property(name) for name in _ALONE):
        return False
    return batch_problem([message]) is None
