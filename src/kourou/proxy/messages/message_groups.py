"""The queue of a message group: the same one that Apache's proxy chooses, so that messages of a group stay in
order where both serve one cluster."""

from __future__ import annotations

from typing import Final

from kourou.protocol.tags import java_hash_code

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1
_TWO_31: Final = float(1 << 31)


def group_bucket(message_group: str, buckets: int) -> int:
    """The bucket of a group: Guava's `Hashing.consistentHash` of Java's `String.hashCode`, which is a jump
    hash.

    >>> [group_bucket(f"order-{number}", 4) for number in range(8)]
    [0, 3, 2, 3, 2, 1, 0, 0]
    """
    state = java_hash_code(message_group) & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        draw = (state >> 33) + 1
        following = int((candidate + 1) / (draw / _TWO_31))
        if following >= buckets or draw == 1 << 31:  # the latter overflows in Java, and ends its search
            return candidate
        candidate = following
