"""Atomic publish on the wire: its id, its parts, its participants.

    id = <producer id>:<epoch>:<number>

Producer id and epoch are those of OPEN_KOUROU_PRODUCER at the coordinator, the number counts the producer's
publishes. A part is a number that is chosen by the program that stages it, unique in its publish and broker.

The body of a part is MessagePack: an array of groups, each an array of topic, queue_id, sysFlag, born
timestamp, and the messages as a batch body (batch.py). Every published copy has the property
`__KOUROU_ATOMIC` = `<id>:<n>`, where n counts the messages of the publish at this broker, from 0.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol.layout import I4, I8
from kourou.protocol.producer_sequence import MAX_EPOCH, MAX_NAME_LENGTH, MAX_SEQUENCE

ATOMIC_PROPERTY: Final = "__KOUROU_ATOMIC"
MAX_PART: Final = 2**62
MAX_PARTS: Final = 4_096
"""Parts of one publish at one broker."""
MAX_STAGED_BYTES: Final = 4 * 1024**3
"""Bytes of one publish at one broker."""
MAX_TIMEOUT_MS: Final = 24 * 3_600_000
MAX_OPEN: Final = 64
"""Publishes of one producer, from the oldest that is undecided to the newest: as many outcomes are kept."""
MAX_BROKER_NAME: Final = 255
"""Characters of the name of a coordinator."""
MAX_SINK_TEXT: Final = 255
"""Characters of a sink id or a query id."""
_ID: Final = re.compile(
    rf"((?:@[A-Za-z0-9._-]{{1,{MAX_NAME_LENGTH}}}|[0-9a-f]{{16}})):(0|[1-9][0-9]{{0,15}}):(0|[1-9][0-9]{{0,18}})"
)
_MIN_ENTRY_BYTES: Final = 1


class Outcome(enum.StrEnum):
    """What has become of a publish."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolledBack"
    ALREADY_COMMITTED = "alreadyCommitted"
    """Of a sink: another publish has committed this batch, or a later one. This one is not committed."""
    OVER = "over"
    """It was ended at all brokers that have parts of it: a part that is left was not listed, or is late."""


class AtomicId(NamedTuple):
    """The id of one atomic publish.

    >>> str(AtomicId("@loader-7", 3, 41))
    '@loader-7:3:41'
    """

    producer_id: str
    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}:{self.number}"


def parse_atomic_id(text: str) -> AtomicId:
    """The parts of an id; ProtocolError if it is malformed.

    >>> parse_atomic_id("@loader-7:3:41")
    AtomicId(producer_id='@loader-7', epoch=3, number=41)
    """
    found = _ID.fullmatch(text)
    if found is None or int(found[2]) > MAX_EPOCH or int(found[3]) > MAX_SEQUENCE:
        shown = text if len(text) <= 100 else text[:100] + "…"
        raise ProtocolError(f"atomic publish {shown!r}: the id must be <producer id>:<epoch>:<number>")
    return AtomicId(found[1], int(found[2]), int(found[3]))


class StagedGroup(msgspec.Struct, array_like=True, frozen=True):
    """Messages of a part that go to one queue, one after the other."""

    topic: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=I4.high)]
    sys_flag: Annotated[int, msgspec.Meta(ge=0, le=I4.high)]
    born_timestamp: Annotated[int, msgspec.Meta(ge=I8.low, le=I8.high)]
    entries: Annotated[bytes, msgspec.Meta(min_length=_MIN_ENTRY_BYTES)]
    """A batch body."""


def encode_groups(groups: Sequence[StagedGroup]) -> bytes:
    """The body of a part."""
    return msgspec.msgpack.encode(groups)


def decode_groups(body: bytes) -> list[StagedGroup]:
    """The groups of a part; ProtocolError if the body is malformed. Entries are not looked at."""
    try:
        return msgspec.msgpack.decode(body, type=list[StagedGroup])
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a part of an atomic publish: {error}") from None


_Part = Annotated[int, msgspec.Meta(ge=0, le=MAX_PART)]
_Parts = Annotated[list[_Part], msgspec.Meta(max_length=MAX_PARTS)]


def encode_participants(participants: Mapping[str, Sequence[int]]) -> bytes:
    """The parts of each broker, in the order in which they are published: the body of a decision."""
    return msgspec.json.encode(dict(participants))


def decode_participants(body: bytes) -> dict[str, list[int]]:
    """The reverse; ProtocolError if it is malformed."""
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, _Parts])
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the participants of an atomic publish: {error}") from None


def encode_parts(parts: Sequence[int]) -> bytes:
    """The parts of one broker."""
    return msgspec.json.encode(list(parts))


def decode_parts(body: bytes) -> list[int]:
    """The reverse; ProtocolError if it is malformed."""
    try:
        return msgspec.json.decode(body or b"[]", type=_Parts)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the parts of an atomic publish: {error}") from None
