"""The batch body: several messages of one topic in one send request.

For each message the head that layout.py describes, with 0 for magic and CRC; then body, properties length,
properties. Topic, queue and sysFlag are the
request's; the broker stores one record for each entry and computes its CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.layout import BATCH_ENTRY, MAX_PROPERTIES_BYTES, MIN_BATCH_ENTRY_BYTES, PROPERTIES_LENGTH
from kourou.protocol.message import Message
from kourou.protocol.names import is_retry_topic
from kourou.protocol.properties import MessageConst, is_prepared, properties_from_bytes, properties_to_bytes

_HEAD: Final = BATCH_ENTRY.struct()
_LENGTH: Final = struct.Struct(f">{PROPERTIES_LENGTH.code}")
_FIXED_BYTES: Final = MIN_BATCH_ENTRY_BYTES
_HEAD_BYTES: Final = BATCH_ENTRY.size
_LENGTH_BYTES: Final = PROPERTIES_LENGTH.size
_PREPARED: Final = MessageConst.PROPERTY_TRANSACTION_PREPARED.encode()
_DELAYS: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
)


class BatchEntry(NamedTuple):
    """One message of a batch body, with its properties as they will be stored."""

    flag: int
    body: bytes
    raw_properties: bytes


def batch_problem(messages: Sequence[Message]) -> str | None:
    """Why these messages cannot travel as one batch, or None."""
    if not messages:
        return "a batch needs at least one message"
    first = messages[0]
    if is_retry_topic(first.topic):
        return f"topic {first.topic!r} is a retry topic, which takes no batches"
    for message in messages:
        if message.topic != first.topic:
            return f"a batch has one topic; this one has {first.topic!r} and {message.topic!r}"
        if message.wait_store_msg_ok != first.wait_store_msg_ok:
            return "all messages of a batch wait for the store, or none does"
        if any(message.get_property(name) for name in _DELAYS):
            return "a batch takes no delayed messages; send them one by one"
    return None


def encode_batch(messages: Sequence[Message]) -> bytes:
    """The batch body of `messages`; ValueError where they cannot be one batch."""
    if problem := batch_problem(messages):
        raise ValueError(problem)
    return encode_batch_entries(
        BatchEntry(message.flag, message.body, properties_to_bytes(message.encode_properties()))
        for message in messages
    )


def encode_batch_entries(entries: Iterable[BatchEntry]) -> bytes:
    """The batch body of `entries`; ValueError where properties are too long."""
    parts: list[bytes] = []
    for flag, body, raw_properties in entries:
        if len(raw_properties) > MAX_PROPERTIES_BYTES:
            raise ValueError(
                f"properties of {len(raw_properties)} bytes do not fit: {MAX_PROPERTIES_BYTES} are allowed"
            )
        size = _FIXED_BYTES + len(body) + len(raw_properties)
        parts += (
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _LENGTH.pack(len(raw_properties)),
            raw_properties,
        )
    return b"".join(parts)


def split_batch(body: bytes) -> list[BatchEntry]:
    """The entries of a batch body; ProtocolError where it is none."""
    entries: list[BatchEntry] = []
    # A batch may have thousands: what is looked up in each round costs a fifth of it.
    add, new, unpack_head, unpack_length = (
        entries.append,
        tuple.__new__,
        _HEAD.unpack_from,
        _LENGTH.unpack_from,
    )
    pos, batch_bytes = 0, len(body)
    try:
        while pos < batch_bytes:
            size, _, _, flag, body_length = unpack_head(body, pos)
            body_pos = pos + _HEAD_BYTES
            body_end = body_pos + body_length
            end = pos + size
            (properties_length,) = unpack_length(body, body_end)
            properties_pos = body_end + _LENGTH_BYTES
            if body_length < 0 or properties_length < 0 or properties_pos + properties_length != end:
                raise _problem(pos, f"its lengths do not add up to its size of {size} bytes")
            if end > batch_bytes:
                raise _problem(pos, f"it is cut off, {end - batch_bytes} bytes of {size} are missing")
            add(new(BatchEntry, (flag, body[body_pos:body_end], body[properties_pos:end])))
            pos = end
    except struct.error as error:
        raise _problem(pos, "it is cut off, or its body length is wrong") from error
    return entries


def has_half(entries: Iterable[BatchEntry]) -> bool:
    """Whether one of them is marked as the half of a transaction, which a batch does not take."""
    return any(
        _PREPARED in entry.raw_properties and is_prepared(properties_from_bytes(entry.raw_properties))
        for entry in entries
    )


def _problem(pos: int, problem: str) -> ProtocolError:
    return ProtocolError(f"no batch entry at byte {pos} of the batch body: {problem}")
