"""Rows handled one by one: those sent alone, and those that no broker accepts.

A rejected row fails the write with its location and the reason, or becomes a message in the error topic: JSON
with `error`, `topic`, `keys`, `tags`, `partition`, `row`, `size_bytes`, and the start of the value in Base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from kourou.client.core.message_checks import check_message, checked_properties
from kourou.errors import MessageRefusedError
from kourou.protocol.message import Message
from kourou.protocol.properties import RESERVED_PROPERTIES, MessageConst
from kourou.spark.sink.sink_columns import Rows, text_at
from kourou.spark.sink.sink_errors import RowLocation, RowRefusedError
from kourou.spark.sink.sink_options import SinkOptions

KEPT_BYTES: Final = 16 * 1024
"""The most of a rejected value that is kept in the error topic: a broker's limit may be lower than ours."""
ERROR_TAG: Final = "RowRefused"


def row_message(rows: Rows, row: int, options: SinkOptions, location: RowLocation) -> Message:
    """The message for a row; RowRefusedError if no broker would accept it. `row` is the index in `rows`."""
    try:
        message = _message(rows, row, options)
        check_message(message, max_message_bytes=options.max_message_bytes)
        checked_properties(message)
    except (ValueError, TypeError, MessageRefusedError) as error:
        # The location already names the topic.
        raise RowRefusedError(location, str(error).removeprefix(f"topic {location.topic!r}: ")) from None
    return message


def _message(rows: Rows, row: int, options: SinkOptions) -> Message:
    value = rows.value[row].as_py()
    if value is None:
        raise ValueError("the value is null; a message needs at least one byte")
    limit = options.max_message_bytes
    if len(value) > limit:
        raise ValueError(
            f"the value has {len(value)} bytes, more than the limit of {limit}: split it, set errorTopic for "
            "such rows, or raise maxMessageBytes here and maxMessageSize at the broker"
        )
    topic = options.topic if options.topic is not None else _text(rows, "topic", row)
    if topic is None:
        raise ValueError("the topic is null")
    message = Message(
        topic,
        value,
        keys=_keys(rows, row),
        properties=_own(rows, row, options),
        delay_time_ms=_cell(rows, "delay_ms", row) or 0,
    )
    if tags := _text(rows, "tags", row):
        # Not by Message(tags=…), which rejects `||`: rows may be copies of another client's messages.
        message.put_property(MessageConst.PROPERTY_TAGS, tags)
    sharding_key = _text(rows, "sharding_key", row)
    if sharding_key is not None:
        message.put_user_property(MessageConst.PROPERTY_SHARDING_KEY, sharding_key)
    return message


def _cell(rows: Rows, part: str, row: int) -> Any:
    column = getattr(rows, part)
    return None if column is None else column[row].as_py()


def _text(rows: Rows, part: str, row: int) -> str | None:
    value = _cell(rows, part, row)
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise ValueError(f"{part}: not valid UTF-8") from None


def _keys(rows: Rows, row: int) -> str | list[str]:
    keys = _cell(rows, "keys", row)
    if not isinstance(keys, list):
        return _text(rows, "keys", row) or ""
    if any(word is None for word in keys):
        raise ValueError("one of the keys is null")
    return keys


def _own(rows: Rows, row: int, options: SinkOptions) -> dict[str, str]:
    pairs: list[tuple[str, str | None]] = _cell(rows, "properties", row) or []
    if options.drop_reserved_properties:
        pairs = [(name, value) for name, value in pairs if name not in RESERVED_PROPERTIES]
    for name, value in pairs:
        if value is None:
            raise ValueError(f"property {name!r} is null")
    return {name: str(value) for name, value in pairs}


def error_message(
    topic: str, rows: Rows, row: int, refusal: RowRefusedError, *, max_message_bytes: int
) -> Message:
    """The message for the error topic that stands for a row."""
    location = refusal.location
    value = rows.value[row].as_py() or b""
    report = {
        "error": refusal.reason,
        "topic": location.topic,
        "keys": location.keys,
        "tags": text_at(rows.tags, row),
        "partition": location.partition,
        "row": location.row,
        "size_bytes": len(value),
        "value_base64": base64.b64encode(value[: min(KEPT_BYTES, max_message_bytes // 4)]).decode(),
    }
    return Message(topic, json.dumps(report, ensure_ascii=False).encode(), tags=ERROR_TAG)
