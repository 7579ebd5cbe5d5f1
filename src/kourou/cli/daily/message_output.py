"""How `kourou tail` prints a message: a line of text, JSON, or the body as it is."""

from __future__ import annotations

import base64
from typing import Any

from kourou.admin.messages.message_view import MessageView
from kourou.cli.admin.screen import printable
from kourou.cli.daily.times import format_time
from kourou.protocol.properties import KEY_SEPARATOR, RESERVED_PROPERTIES


def message_json(message: MessageView) -> dict[str, Any]:
    """A message for JSON. A body that is not UTF-8 is in base64; `body_encoding` says which of them it is."""
    text = _text(message.body)
    return {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tag": message.tags,
        "keys": (message.keys or "").split(KEY_SEPARATOR) if message.keys else [],
        "properties": _own_properties(message),
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host,
        "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
        "body": base64.b64encode(message.body).decode() if text is None else text,
        "body_encoding": "base64" if text is None else "utf-8",
    }


def message_line(message: MessageView) -> str:
    """A message in one line: when and where it was stored, tag, keys and properties, body."""
    text = _text(message.body)
    words = [
        format_time(message.store_timestamp),
        f"{message.broker_name}/{message.queue_id}@{message.queue_offset}",
        *([f"tag={message.tags}"] if message.tags else []),
        *([f"key={key}" for key in message.keys.split(KEY_SEPARATOR)] if message.keys else []),
        *(f"{name}={value}" for name, value in _own_properties(message).items()),
        f"base64:{base64.b64encode(message.body).decode()}" if text is None else text,
    ]
    return "  ".join(printable(word, kept="\t") for word in words)


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _own_properties(message: MessageView) -> dict[str, str]:
    """Those of the application."""
    return {name: text for name, text in message.properties.items() if name not in RESERVED_PROPERTIES}
