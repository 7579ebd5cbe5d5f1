"""What was made or changed, in words for the log: fields by their names in RocketMQ's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec


def describe_fields(body: msgspec.Struct) -> str:
    """Every field with its value.

    >>> from kourou.protocol.bodies import MessageQueue
    >>> describe_fields(MessageQueue("T", "broker-a", 1))
    'topic="T", brokerName="broker-a", queueId=1'
    """
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in _fields(body).items())


def describe_change(old: msgspec.Struct, new: msgspec.Struct) -> str:
    """The fields that differ, each with its new value and its old one."""
    before = _fields(old)
    changed = (
        f"{name}={json.dumps(value)} (was {json.dumps(before.get(name))})"
        for name, value in _fields(new).items()
        if before.get(name) != value
    )
    return ", ".join(changed) or "nothing"


def queue_words(queues: Mapping[int, int]) -> str:
    """Offsets by queue.

    >>> queue_words({0: 7, 1: 0})
    'queue 0 at 7, queue 1 at 0'
    """
    return ", ".join(f"queue {queue_id} at {queue_offset}" for queue_id, queue_offset in queues.items())


def _fields(body: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(body)
    return fields
