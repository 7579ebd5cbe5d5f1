"""Checks before anything is sent: what no broker would accept is rejected here, with the reason.

What a Message checks when it is created (characters of the topic, reserved and blank properties) is checked
again where the result depends on the sender, or may have changed since.
Not here: the names and limits themselves (protocol/names.py, protocol/properties.py).
"""

from __future__ import annotations

from typing import Final

from kourou.argument_types import check_str
from kourou.errors import MessageRefusedError, NameRefusedError
from kourou.protocol.message import Message
from kourou.protocol.names import send_topic_problem, topic_problem, user_group_problem
from kourou.protocol.properties import (
    MAX_SENT_PROPERTIES_BYTES,
    encode_properties,
    properties_to_bytes,
    property_problem,
)

DEFAULT_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""A broker's default too (`maxMessageSize`)."""
# No character has more bytes in UTF-8: short text need not be encoded to be measured.
_MAX_CHARACTER_BYTES: Final = 4


def check_topic(topic: str) -> None:
    """NameRefusedError if `topic` is not a valid topic name, TypeError if it is not text."""
    check_str("topic", topic)
    if problem := topic_problem(topic):
        raise NameRefusedError(problem)


def check_group(group: str) -> None:
    """NameRefusedError if a client may not use `group`, TypeError if it is not text."""
    check_str("group", group)
    if problem := user_group_problem(group):
        raise NameRefusedError(problem)


def check_user_property(name: str, value: str) -> None:
    """MessageRefusedError if an application may not set this property."""
    _refuse(property_problem(name, value))


def check_message(message: Message, *, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
    """MessageRefusedError if no broker would accept the topic or the body."""
    if not isinstance(message, Message):
        raise TypeError(f"send takes a Message, not {type(message).__name__}: Message(topic, body)")
    _refuse(send_topic_problem(message.topic))
    check_body(message.topic, message.body, max_message_bytes=max_message_bytes)


def check_body(topic: str, body: bytes, *, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
    """MessageRefusedError if the body, before compression, is empty or too long. A batch is one body."""
    if not body:
        raise MessageRefusedError(f"topic {topic!r}: the body is empty; a message has at least one byte")
    if len(body) > max_message_bytes:
        raise MessageRefusedError(
            f"topic {topic!r}: the body has {len(body)} bytes; at most {max_message_bytes} are allowed; "
            "split it, or raise max_message_bytes here and maxMessageSize at the broker"
        )


def checked_properties(message: Message) -> str:
    """The property string to send; MessageRefusedError if it is too long or could not be read back."""
    try:
        text = encode_properties(message.properties)
    except ValueError as error:
        raise MessageRefusedError(f"topic {message.topic!r}: {error}; encode the value first") from None
    if len(text) * _MAX_CHARACTER_BYTES > MAX_SENT_PROPERTIES_BYTES:
        size_bytes = len(properties_to_bytes(text))
        if size_bytes > MAX_SENT_PROPERTIES_BYTES:
            raise MessageRefusedError(
                f"topic {message.topic!r}: the properties have {size_bytes} bytes in all; at most "
                f"{MAX_SENT_PROPERTIES_BYTES} are allowed; put large values into the body"
            )
    return text


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise MessageRefusedError(problem)
