"""Priorities of messages (RIP-80): the property, and the queue that stands for a priority.

Which messages have one is decided by their properties alone, as in RocketMQ 5.5.0: halves of transactions,
delayed messages and those with a sharding key have none.
Not here: the order in which a broker reads queues (broker/pop/pop_plan.py), and in which a consumer handles
what it has pulled (client/core/turns.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kourou.protocol.properties import MessageConst, PropertyScanner, is_prepared, property_start

PRIORITY_START: Final = property_start(MessageConst.PROPERTY_PRIORITY)
MAX_PRIORITY: Final = (1 << 31) - 1
"""An int of Java."""
MESSAGE_TYPE: Final = "message.type"
"""The attribute of a topic that names the type of its messages."""
PRIORITY_TYPE: Final = "PRIORITY"
"""Its value where queues stand for priorities."""

_MAX_DIGITS: Final = 10
_scan: Final = PropertyScanner(MessageConst.PROPERTY_PRIORITY).values
_scan_others: Final = PropertyScanner(
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_SHARDING_KEY,
).values


def parse_priority(text: str | None) -> int | None:
    """The priority that a property says; None if it says none. Any program may have written it.

    >>> parse_priority("7"), parse_priority("-1"), parse_priority("4294967296"), parse_priority(None)
    (7, None, None, None)
    """
    if not text or len(text) > _MAX_DIGITS or not text.isascii() or not text.isdigit():
        return None
    value = int(text)
    return value if value <= MAX_PRIORITY else None


def priority_of(properties: str) -> int | None:
    """The priority of a message with these properties; None if it has none."""
    return parse_priority(_scan(properties)[0]) if PRIORITY_START in properties else None


def is_of_another_type(properties: str) -> bool:
    """Whether a message has no priority, whatever it asks for: it is delayed, or ordered, or the half of a
    transaction."""
    return is_prepared(properties) or any(value is not None for value in _scan_others(properties))


def has_priorities(attributes: Mapping[str, str] | None) -> bool:
    """Whether the queues of a topic with these attributes stand for priorities."""
    return (attributes or {}).get(MESSAGE_TYPE) == PRIORITY_TYPE


def priority_queue(priority: int, write_queue_nums: int) -> int:
    """The queue for a priority: priorities beyond the last queue are equal."""
    return max(0, min(priority, write_queue_nums - 1))
