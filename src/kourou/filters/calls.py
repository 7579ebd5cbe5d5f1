"""What a broker and the process of a filter say to each other over its pipes.

Each message is its length, 4 bytes big-endian, and MessagePack. First the process says that it is ready, by a
Reply without verdicts; then each Call is answered by a Reply, in order.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_MESSAGE_BYTES: Final = 256 * 1024 * 1024
"""More than a batch with the largest record that a broker can hold."""
LENGTH_BYTES: Final = 4

NO: Final = 0
YES: Final = 1
FAILED: Final = 2
"""A verdict of a record that the filter cannot judge: it raised an exception."""


class Call(msgspec.Struct, array_like=True):
    """Judge records for a subscription with these parameters; without records: are they understood."""

    parameters: str
    records: list[bytes]


class ReceivedCall(msgspec.Struct, array_like=True):
    """A Call on the other side, whose records are views."""

    parameters: str
    records: list[memoryview]


class Reply(msgspec.Struct, array_like=True):
    """A byte for each record: NO, YES or FAILED. `bad_parameters`: why these are not understood. `failure`:
    what the filter did last that it should not. `warning`: the
    same, but each record has its verdict."""

    verdicts: bytes = b""
    bad_parameters: str | None = None
    failure: str | None = None
    warning: str | None = None


encode: Final = msgspec.msgpack.Encoder().encode
decode_call: Final = msgspec.msgpack.Decoder(ReceivedCall).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode


def framed(message: Call | Reply) -> tuple[bytes, bytes]:
    """A message as two pieces: its length, its content."""
    content = encode(message)
    return len(content).to_bytes(LENGTH_BYTES, "big"), content
