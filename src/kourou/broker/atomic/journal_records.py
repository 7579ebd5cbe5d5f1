"""What the journal of atomic publishes holds: rmq_sys_kourou_atomic/0, one of these in each record.

The body is MessagePack, an array that begins with a letter. The property `__KOUROU_BEGIN` of a record is the
queue_offset from which on the journal has to be read to know all that was live when the record was put: the
last record says where recovery begins. Records that are live for long are put again (journal.py), so that
this stays near the end.

A broker that has parts (participant.py):
    S  a part is staged                C  its publish is committed: parts are being put into their queues
    F  the publish is over here: published, or dropped            P  publishes of a producer that are over
The coordinator (coordinator.py):
    D  a decision                      E  all participants have confirmed it
    H  outcomes of a producer          K  the last batch of a sink         N  where a name is coordinated
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol.atomic import StagedGroup
from kourou.protocol.batch import split_batch
from kourou.protocol.properties import property_pair

BEGIN_PROPERTY: Final = "__KOUROU_BEGIN"


class Staged(msgspec.Struct, array_like=True, tag="S", frozen=True):
    """A part. `deadline_ms`: from then on the coordinator is queried. `messages`: of all groups;
    the records of an earlier version do not have it, and it is counted when they are decoded."""

    atomic_id: str
    part: int
    coordinator: str
    producer_group: str
    staged_ms: int
    deadline_ms: int
    born_host: bytes
    groups: list[StagedGroup]
    messages: int = -1


class Committed(msgspec.Struct, array_like=True, tag="C", frozen=True):
    """The parts that are published, in this order; others are dropped. `published` of their messages are
    in the log before this record, the others behind it or not yet."""

    atomic_id: str
    parts: list[int]
    published: int = 0


class Finished(msgspec.Struct, array_like=True, tag="F", frozen=True):
    """No part is left, and none is taken any more."""

    atomic_id: str
    is_commit: bool
    finished_ms: int


class Decided(msgspec.Struct, array_like=True, tag="D", frozen=True):
    """A decision. `is_abandoned`: by the coordinator, since there was none in time."""

    atomic_id: str
    is_commit: bool
    participants: dict[str, list[int]]
    decided_ms: int
    is_abandoned: bool = False
    sink_id: str | None = None
    query_id: str = ""
    batch_id: int = -1


class Ended(msgspec.Struct, array_like=True, tag="E", frozen=True):
    """All participants have confirmed the decision."""

    atomic_id: str


class OutcomesKept(msgspec.Struct, array_like=True, tag="H", frozen=True):
    """The last outcomes of a producer, by number: true for committed."""

    producer_id: str
    epoch: int
    used_ms: int
    outcomes: dict[int, bool]


class FinishedKept(msgspec.Struct, array_like=True, tag="P", frozen=True):
    """The last publishes of a producer that are over at this broker, by number: true for committed."""

    producer_id: str
    epoch: int
    used_ms: int
    outcomes: dict[int, bool]


class SinkKept(msgspec.Struct, array_like=True, tag="K", frozen=True):
    """The last batch of a sink."""

    sink_id: str
    query_id: str
    batch_id: int


class NameClaimed(msgspec.Struct, array_like=True, tag="N", frozen=True):
    """A broker, this one or another, coordinates the publishes of a named producer."""

    name: str
    coordinator: str


JournalRecord: TypeAlias = (
    Staged | Committed | Finished | FinishedKept | Decided | Ended | OutcomesKept | SinkKept | NameClaimed
)

_decoder: Final[msgspec.msgpack.Decoder[JournalRecord]] = msgspec.msgpack.Decoder(JournalRecord)
encode_journal_record: Final = msgspec.msgpack.Encoder().encode


def decode_journal_record(body: bytes) -> JournalRecord:
    """What a record of the journal says; ProtocolError if it is malformed."""
    try:
        record = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a record of the journal of atomic publishes: {error}") from None
    if isinstance(record, Staged) and record.messages < 0:
        messages = sum(len(split_batch(group.entries)) for group in record.groups)
        record = msgspec.structs.replace(record, messages=messages)
    return record


def begin_property(queue_offset: int) -> bytes:
    """The properties of a record."""
    return property_pair(BEGIN_PROPERTY, queue_offset).encode()
