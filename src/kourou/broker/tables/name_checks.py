"""Checks of topic and group names that a request carries, answered in the words of Apache's brokers.

Not here: which names are RocketMQ's own (protocol/names.py), and what a client says of a bad name.
"""

from __future__ import annotations

import re
from typing import Final

from kourou.errors import RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import (
    GROUP_MAX_LENGTH,
    RETRY_OR_DLQ_TOPIC_MAX_LENGTH,
    TOPIC_MAX_LENGTH,
    is_dlq_topic,
    is_retry_topic,
)

_LEGAL: Final = re.compile("^[%|a-zA-Z0-9_-]+$")
# A name may be megabytes long; what is shown of it is for reading.
_SHOWN_CHARACTERS: Final = 300


MAX_QUEUE_NUMS: Final = 65_536
"""More queues than any topic needs; each one costs memory, and some requests look at all of them."""


def check_topic_name(topic: str) -> None:
    """RequestError INVALID_PARAMETER if `topic` is no topic name."""
    if is_retry_topic(topic) or is_dlq_topic(topic):
        too_long = f"The specified topic is DLQ or Retry topic: {_shown(topic)}, and it's longer than topic"
        _check("topic", topic, RETRY_OR_DLQ_TOPIC_MAX_LENGTH, too_long)
    else:
        too_long = f"The specified topic: {_shown(topic)}, is longer than topic"
        _check("topic", topic, TOPIC_MAX_LENGTH, too_long)


def check_group_name(group: str) -> None:
    """RequestError INVALID_PARAMETER if `group` is no group name."""
    _check("group", group, GROUP_MAX_LENGTH, f"The specified group: {_shown(group)}, is longer than group")


def _check(kind: str, name: str, max_length: int, too_long: str) -> None:
    if not name.strip():
        raise _invalid(f"The specified {kind} is blank.")
    if not _LEGAL.fullmatch(name):
        legal = f"contains illegal characters, allowing only {_LEGAL.pattern}"
        raise _invalid(f"The specified {kind}: {_shown(name)}, {legal}")
    if len(name) > max_length:
        raise _invalid(f"{too_long} max length: {max_length}")


def _shown(name: str) -> str:
    return name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "…"


def _invalid(remark: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, remark)
