"""Single rows, looked at one by one: those that travel alone, and those that no broker takes.

A row that is refused is told where it is and why, or becomes a message of the error topic: JSON with
`error`, `topic`, `keys`, `tags`, `partition`, `row`, `size_bytes`, and the beginning of the value in Base64.
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
"""At most so much of a refused value is kept in the error topic: brokers may take less than we think."""
ERROR_TAG: Final = "RowRefused"


def row_message(rows: Rows, row: int, options: SinkOptions, location: RowLocation) -> Message:
    """The message that a row is; RowRefusedError if no broker would take it. `row` counts in `rows`."""
    try:
        message = _message(rows, row, options)
        check_message(message, max_message_bytes=options.max_message_bytes)
        checked_properties(message)
    except (ValueError, TypeError, MessageRefusedError) as error:
        # The place names the topic already.
        raise RowRefusedError(location, str(error).removeprefix(f"topic {location.topic!r}: ")) from None
    return message


def _message(rows: Rows, row: int, options: SinkOptions) -> Message:
    value = rows.value[row].as_py()
    if value is None:
        raise ValueError("the value is null; a message has at least one byte")
    limit = options.max_message_bytes
    if len(value) > limit:
        raise ValueError(
            f"the value has {len(value)} bytes; at most {limit} are taken: split it, give an errorTopic for "
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
        # Not by Message(tags=…), which refuses `||`: rows may be copies of what another client has sent.
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
        raise ValueError(f"{part}: the bytes are no UTF-8") from None


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
    """What the error topic gets in place of a row."""
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
