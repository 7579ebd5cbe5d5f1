"""TransferLimits: how much one read of a queue may bring, by where in the log its messages lie.

As in RocketMQ, the newest bytes of the log, a share of the machine's memory, count as in memory, and the rest
as on disk, whether or not the page cache holds it. A message is added while the limits of its own place leave
room for it; the first one is always given. Not here: reading (get_message.py).
"""

from __future__ import annotations

from typing import Final

MAX_MESSAGES: Final = 16_384
"""A pull gets no more, whatever it asks for: looking at so many units takes some milliseconds."""

_WHOLE_LOG: Final = 1 << 62

Room = tuple[int, int]
"""So many messages, of so many bytes together."""


class TransferLimits:
    """Limits of one read: of the log's newest `memory_bytes` other ones than of what is older."""

    __slots__ = ("in_memory", "max_messages", "memory_bytes", "on_disk")

    def __init__(self, in_memory: Room, on_disk: Room, memory_bytes: int) -> None:
        self.in_memory = in_memory
        self.on_disk = on_disk
        self.memory_bytes = memory_bytes
        self.max_messages = max(in_memory[0], on_disk[0])
        """No read brings more."""

    @classmethod
    def of_bytes(cls, max_bytes: int) -> TransferLimits:
        """The same limit for all messages, and as many of them as fit."""
        room = MAX_MESSAGES, max_bytes
        return cls(room, room, _WHOLE_LOG)


def smaller_room(room: Room, max_messages: int, max_bytes: int | None) -> Room:
    """What of a room a reader asks for; no number of bytes asks for all of them."""
    messages, size_bytes = room
    if max_messages < messages:
        messages = max_messages
    if max_bytes and max_bytes < size_bytes:
        size_bytes = max_bytes
    return messages, size_bytes
