"""TransferLimits: how much one read of a queue may bring, by where in the log its messages lie.

As in RocketMQ, the newest bytes of the log, a share of the machine's memory, count as in memory, and the rest
as on disk, whether or not the page cache holds it. A message is added while the limits of its own place leave
room for it; the first one is always given. Not here: reading (get_message.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

MAX_MESSAGES: Final = 16_384
"""A pull gets no more, whatever it asks for: looking at so many units takes some milliseconds."""

_WHOLE_LOG: Final = 1 << 62


class TransferLimits(NamedTuple):
    """Limits of one read; of the log's newest `memory_bytes` other ones than of what is older."""

    memory_messages: int
    memory_transfer_bytes: int
    disk_messages: int
    disk_transfer_bytes: int
    memory_bytes: int

    @classmethod
    def of_bytes(cls, max_bytes: int) -> Self:
        """The same limit for all messages, and as many of them as fit."""
        return cls(MAX_MESSAGES, max_bytes, MAX_MESSAGES, max_bytes, _WHOLE_LOG)

    @property
    def max_messages(self) -> int:
        """No read brings more."""
        return max(self.memory_messages, self.disk_messages)

    def room(self, max_messages: int, max_bytes: int | None, *, is_on_disk: bool) -> tuple[int, int]:
        """Messages and bytes for a reader that asks for so many; no number of bytes asks for all."""
        messages = self.disk_messages if is_on_disk else self.memory_messages
        size_bytes = self.disk_transfer_bytes if is_on_disk else self.memory_transfer_bytes
        return min(messages, max_messages), min(size_bytes, max_bytes) if max_bytes else size_bytes
