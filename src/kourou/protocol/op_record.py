"""Op records: what RMQ_SYS_TRANS_OP_HALF_TOPIC says of the halves of transactions."""

from __future__ import annotations

from typing import Final

from kourou.protocol.message import MessageExt

# A queue_offset has 64 bits; longer numbers are no offsets.
_MAX_DIGITS: Final = 18


def ended_halves(op: MessageExt) -> list[int]:
    """The queue_offsets of the halves that an op record ends: one, or (5.x) many with a comma behind each."""
    words = op.stored_body.decode("ascii", "replace").split(",")
    return [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS]
