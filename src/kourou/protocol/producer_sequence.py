"""The sequence of an idempotent producer, as a message carries it: the property `__KOUROU_SEQ`.

    __KOUROU_SEQ = <producer id>:<epoch>:<sequence>

The producer id comes from the broker (OPEN_KOUROU_PRODUCER): a random one, or `@` and the name that the
application chose. The last digits of a random one say which account has opened it: consumers see the ids of
producers, and no other account may send as them, or decide their atomic publishes. Each program that opens a
name gets a greater epoch, which no other program ever gets: also if a power loss or a promotion loses an
opening, since it is a time.
Sequences count the messages of one producer in one queue, from 0. The property counts only in a send whose
header says so (`kourouSequenced`); brokers remove it from other sends: a program that forwards a message with
all its properties does not repeat the original. The record of an opening has a word in place of the sequence,
`open` or `open-gaps`, and behind a dot the nonce that the client gave the opening, by which its repeats are
recognized; the record that makes brokers forget a producer has `forget`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.layout import WINDOW_SEQUENCES
from kourou.protocol.properties import (
    RAW_PROPERTY_SEPARATOR,
    get_property,
    properties_from_bytes,
    properties_to_bytes,
    property_start,
    remove_property,
)

SEQUENCE_PROPERTY: Final = "__KOUROU_SEQ"
RAW_SEQUENCE_START: Final = property_start(SEQUENCE_PROPERTY).encode()
"""What precedes the value, as it is stored."""
MAX_SEQUENCE: Final = 2**62
MAX_EPOCH: Final = 2**53
MAX_IN_FLIGHT: Final = WINDOW_SEQUENCES
"""Sequences that a broker remembers for each producer and queue."""
MAX_NAME_LENGTH: Final = 64
NAME_PREFIX: Final = "@"
"""An id that begins with it is a name that an application chose: it does not expire."""
OPENED: Final = "open"
OPENED_WITH_GAPS: Final = "open-gaps"
FORGOTTEN: Final = "forget"
NONCE_BYTES: Final = 8
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME_LENGTH}}}")
_IDENTITY: Final = re.compile(
    rf"(@[A-Za-z0-9._-]{{1,{MAX_NAME_LENGTH}}}|[0-9a-f]{{16}}):(0|[1-9][0-9]{{0,15}})"
)
_SEQUENCE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_NONCE: Final = rf"[0-9a-f]{{{2 * NONCE_BYTES}}}"
_OPENING: Final = re.compile(rf"({OPENED}|{OPENED_WITH_GAPS})(?:\.({_NONCE}))?")


_OWNER_DIGITS: Final = 6
RANDOM_ID_BYTES: Final = 5
"""Of a random id, before the digits of its owner."""


class ProducerSequence(NamedTuple):
    """What a message says of its producer."""

    identity: str
    """Producer id and epoch, joined by a colon."""
    producer_id: str
    epoch: int
    sequence: int


class ProducerOpening(NamedTuple):
    """What the record of an opening says."""

    producer_id: str
    epoch: int
    allows_gaps: bool
    nonce: str | None = None


class ProducerForgotten(NamedTuple):
    """What a record says that makes brokers forget a producer, up to this epoch."""

    producer_id: str
    epoch: int


def identity_of(producer_id: str, epoch: int) -> str:
    """Producer id and epoch in one text.

    >>> identity_of("@loader-7", 3)
    '@loader-7:3'
    """
    return f"{producer_id}:{epoch}"


@lru_cache(maxsize=1_024)
def owner_digits(account: str) -> str:
    """With what the random ids of an account end; of no account, too.

    >>> owner_digits("orders"), owner_digits("")
    ('1c168a', 'e3b0c4')
    """
    return sha256(account.encode()).hexdigest()[:_OWNER_DIGITS]


def format_sequence(identity: str, sequence: int) -> str:
    """The value of the property.

    >>> format_sequence("@loader-7:3", 41)
    '@loader-7:3:41'
    """
    return f"{identity}:{sequence}"


def format_opening(opening: ProducerOpening) -> str:
    """The value of the property in the record of an opening."""
    word = OPENED_WITH_GAPS if opening.allows_gaps else OPENED
    nonce = "" if opening.nonce is None else f".{opening.nonce}"
    return f"{opening.producer_id}:{opening.epoch}:{word}{nonce}"


def format_forgotten(forgotten: ProducerForgotten) -> str:
    """The value of the property in the record that a producer is forgotten."""
    return f"{forgotten.producer_id}:{forgotten.epoch}:{FORGOTTEN}"


def parse_sequence(value: str) -> ProducerSequence:
    """The parts of the property; ProtocolError if it is malformed.

    >>> parse_sequence("@loader-7:3:41")
    ProducerSequence(identity='@loader-7:3', producer_id='@loader-7', epoch=3, sequence=41)
    """
    parsed = parse_property(value)
    if not isinstance(parsed, ProducerSequence):
        raise _malformed(value)
    return parsed


def parse_property(value: str) -> ProducerSequence | ProducerOpening | ProducerForgotten:
    """The property of a stored record, of a message or of a producer; ProtocolError if it is malformed."""
    identity, _, last = value.rpartition(":")
    found = _IDENTITY.fullmatch(identity)
    if found is None:
        raise _malformed(value)
    producer_id, epoch = found[1], int(found[2])
    opening = _OPENING.fullmatch(last)
    if opening is not None:
        return ProducerOpening(producer_id, epoch, opening[1] == OPENED_WITH_GAPS, opening[2])
    if last == FORGOTTEN:
        return ProducerForgotten(producer_id, epoch)
    if epoch > MAX_EPOCH or _SEQUENCE.fullmatch(last) is None or int(last) > MAX_SEQUENCE:
        raise _malformed(value)
    return ProducerSequence(identity, producer_id, epoch, int(last))


def raw_sequence(properties: bytes) -> str | None:
    """The value of the property in properties as they are stored; None if it is absent."""
    at = properties.rfind(RAW_SEQUENCE_START)
    if at < 0:
        return None
    if at and properties[at - 1 : at] != RAW_PROPERTY_SEPARATOR:
        return get_property(properties_from_bytes(properties), SEQUENCE_PROPERTY)
    end = properties.find(RAW_PROPERTY_SEPARATOR, at)
    return properties[at + len(RAW_SEQUENCE_START) : end if end >= 0 else None].decode("utf-8", "replace")


def without_sequence(properties: str) -> str:
    """The properties of a message without its sequence: of a copy, which is no repeat."""
    if SEQUENCE_PROPERTY not in properties:
        return properties
    return remove_property(properties, SEQUENCE_PROPERTY)


def raw_without_sequence(properties: bytes) -> bytes:
    """The same for properties as they are stored."""
    if RAW_SEQUENCE_START not in properties:
        return properties
    return properties_to_bytes(without_sequence(properties_from_bytes(properties)))


def check_producer_name(name: str) -> None:
    """ValueError if no producer can have this name."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"producer name {name!r}: 1 to {MAX_NAME_LENGTH} letters, digits, '.', '_' and '-' are allowed"
        )


def check_nonce(nonce: str) -> None:
    """ValueError if no opening can have this nonce."""
    if re.fullmatch(_NONCE, nonce) is None:
        raise ValueError(f"nonce {nonce[:100]!r}: it must have {2 * NONCE_BYTES} digits from 0 to f")


def _malformed(value: str) -> ProtocolError:
    shown = value if len(value) <= 100 else value[:100] + "…"
    return ProtocolError(
        f"property {SEQUENCE_PROPERTY}={shown!r}: it must be <producer id>:<epoch>:<sequence>, "
        f"with an epoch up to {MAX_EPOCH} and a sequence up to {MAX_SEQUENCE}"
    )
