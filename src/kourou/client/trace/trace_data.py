"""Trace records of sends and deliveries, in the text format of Apache's tools.

The body of a trace message is a sequence of records, each ended by 0x02, its fields separated by 0x01:

    Pub             time, region, group, topic, msgId, tags, keys, storeHost, bodyLength, costMs, msgType,
                    offsetMsgId, success  (old: without offsetMsgId; some: clientHost at the end)
    SubBefore       time, region, group, requestId, msgId, retryTimes, keys
    SubAfter        requestId, msgId, costMs, success, keys, contextCode, time, group  (cloud: without the
                    last two; RocketMQ 4 then also without the 0x02 at the end)
    EndTransaction  time, region, group, topic, msgId, tags, keys, storeHost, msgType, transactionId,
                    state, fromCheck
    Recall          time, region, group, topic, msgId, success

A missing value is written as `null`. SubBefore and SubAfter of one delivery share a request id.
Not here: creating and sending records (producer_trace.py, consume_trace.py).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Final, TypeAlias

from kourou.errors import ProtocolError
from kourou.protocol.properties import KEY_SEPARATOR

FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
_MISSING: Final = "null"


class TraceMessageType(enum.IntEnum):
    """What kind of message was sent."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class TraceContextCode(enum.IntEnum):
    """How a handler ended."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class PubTrace:
    """A message was sent, or could not be."""

    word: ClassVar[str] = "Pub"

    time_ms: int
    region: str | None
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_length: int
    cost_ms: int
    message_type: TraceMessageType
    offset_msg_id: str | None
    is_success: bool
    client_host: str | None = None
    """Only some clients write it."""


@dataclass(frozen=True, slots=True)
class SubBeforeTrace:
    """A message is about to be handed to the application."""

    word: ClassVar[str] = "SubBefore"

    time_ms: int
    region: str | None
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: str | None


@dataclass(frozen=True, slots=True)
class SubAfterTrace:
    """The application has finished with a message. The cloud's format has no time and group."""

    word: ClassVar[str] = "SubAfter"

    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    context_code: TraceContextCode
    time_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransactionTrace:
    """A transaction was committed, rolled back or left open. `state` is a name of LocalTransactionState."""

    word: ClassVar[str] = "EndTransaction"

    time_ms: int
    region: str | None
    group: str
    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    message_type: TraceMessageType
    transaction_id: str | None
    state: str
    is_from_check: bool


@dataclass(frozen=True, slots=True)
class RecallTrace:
    """A delayed message was called back (5.x)."""

    word: ClassVar[str] = "Recall"

    time_ms: int
    region: str | None
    group: str
    topic: str
    msg_id: str
    is_success: bool


TraceRecord: TypeAlias = PubTrace | SubBeforeTrace | SubAfterTrace | EndTransactionTrace | RecallTrace


def encode_trace(records: Iterable[TraceRecord]) -> str:
    """The body of a trace message, as text."""
    return "".join(map(_encode_record, records))


def trace_keys(records: Iterable[TraceRecord]) -> list[str]:
    """The keys of a trace message: ids and keys of the traced messages, each once."""
    words: dict[str, None] = {}
    for record in records:
        words[record.msg_id] = None
        if keys := getattr(record, "keys", None):
            words.update(dict.fromkeys(word for word in keys.split(KEY_SEPARATOR) if word))
    return list(words)


def decode_trace(body: str) -> list[TraceRecord]:
    """The records of a trace body, unknown kinds left out; ProtocolError where one is cut or wrong."""
    records, failures = read_trace(body)
    if failures:
        raise failures[0]
    return records


def read_trace(body: str) -> tuple[list[TraceRecord], list[ProtocolError]]:
    """The records of a trace body that can be decoded, unknown kinds left out, and errors for the others."""
    records: list[TraceRecord] = []
    failures: list[ProtocolError] = []
    for text in body.split(RECORD_SEPARATOR):
        for part in _GLUED.split(text) if text.startswith(SubAfterTrace.word) else (text,):
            word, *fields = part.split(FIELD_SEPARATOR)
            decode = _DECODERS.get(word)
            if decode is not None:
                try:
                    records.append(_decode_record(decode, word, fields))
                except ProtocolError as error:
                    failures.append(error)
    return records, failures


def _encode_record(record: TraceRecord) -> str:
    values = astuple(record)
    if isinstance(record, SubAfterTrace) and record.time_ms is None:
        values = values[:-2]
    elif isinstance(record, PubTrace) and record.client_host is None:
        values = values[:-1]
    return FIELD_SEPARATOR.join([record.word, *map(_field, values)]) + RECORD_SEPARATOR


def _field(value: str | int | bool | None) -> str:
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(int(value))


def _decode_record(decode: Callable[[list[str]], TraceRecord], word: str, fields: list[str]) -> TraceRecord:
    try:
        return decode(fields)
    except (ValueError, IndexError):
        shown = FIELD_SEPARATOR.join(fields)[:200]
        raise ProtocolError(
            f"trace record {word} with {len(fields)} fields cannot be read: {shown!r}"
        ) from None


def _text(field: str) -> str | None:
    return None if field == _MISSING else field


def _flag(field: str) -> bool:
    return field == "true"


def _typed(kinds: list[Callable[[str], Any]], fields: list[str]) -> list[Any]:
    """The first fields by their kinds; more may follow from newer clients."""
    if len(fields) < len(kinds):
        raise IndexError
    return [kind(field) for kind, field in zip(kinds, fields, strict=False)]


_PUB_HEAD: Final[list[Callable[[str], Any]]] = [
    *(int, _text, str, str, str, _text, _text, _text),
    *(int, int, lambda field: TraceMessageType(int(field))),
]


def _pub(fields: list[str]) -> PubTrace:
    # Old clients wrote no offsetMsgId.
    if len(fields) == len(_PUB_HEAD) + 1:
        fields = [*fields[:-1], _MISSING, fields[-1]]
    kinds = [*_PUB_HEAD, _text, _flag]
    return PubTrace(*_typed([*kinds, _text] if len(fields) > len(kinds) else kinds, fields))


def _sub_before(fields: list[str]) -> SubBeforeTrace:
    return SubBeforeTrace(*_typed([int, _text, str, str, str, int, _text], fields))


def _sub_after(fields: list[str]) -> SubAfterTrace:
    request_id, msg_id, cost_ms, is_success, keys = _typed([str, str, int, _flag, _text], fields)
    # The oldest clients sent only success or failure.
    code = int(fields[5]) if len(fields) > 5 else int(not is_success) * TraceContextCode.FAILED
    is_local = len(fields) > 7
    return SubAfterTrace(
        request_id,
        msg_id,
        cost_ms,
        is_success,
        keys,
        TraceContextCode(code),
        int(fields[6]) if is_local else None,
        fields[7] if is_local else None,
    )


def _end_transaction(fields: list[str]) -> EndTransactionTrace:
    return EndTransactionTrace(*_typed([*_PUB_HEAD[:8], _PUB_HEAD[-1], _text, str, _flag], fields))


def _recall(fields: list[str]) -> RecallTrace:
    return RecallTrace(*_typed([int, _text, str, str, str, _flag], fields))


_DECODERS: Final[dict[str, Callable[[list[str]], TraceRecord]]] = {
    PubTrace.word: _pub,
    SubBeforeTrace.word: _sub_before,
    SubAfterTrace.word: _sub_after,
    EndTransactionTrace.word: _end_transaction,
    RecallTrace.word: _recall,
}
# Records of RocketMQ 4 on the cloud channel lack the separator after the code of a SubAfter.
_GLUED: Final = re.compile(rf"(?<={FIELD_SEPARATOR}[0-4])(?=(?:{'|'.join(_DECODERS)}){FIELD_SEPARATOR})")
