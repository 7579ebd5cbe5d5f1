"""The body of the response to GET_KOUROU_SEQUENCES.

{"epoch": 3, "sequences": {"0": 41, "7": 12}}
"""

from __future__ import annotations

import msgspec

from kourou.errors import ProtocolError


class ProducerSequences(msgspec.Struct, frozen=True):
    """How far a producer is in a topic."""

    epoch: int
    """Of the program that opened it last; -1: no program has."""
    sequences: dict[int, int]
    """The highest sequence stored, by queue_id; a queue without messages of the producer is absent."""

    def encode(self) -> bytes:
        """The body."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes) -> ProducerSequences:
        """What a body says; ProtocolError if it is malformed."""
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"producer sequences: {error}") from None
