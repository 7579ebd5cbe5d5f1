"""Delay levels: the text of `messageDelayLevel`, when a delayed message is due, and which one a delivered
message was made from."""

from __future__ import annotations

from typing import Final

from kourou.errors import ConfigError
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
DEFAULT_DELAY_LEVEL_TEXT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# What Apache adds when a level is not in its table.
_UNKNOWN_LEVEL_MS: Final = 1_000


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays of levels 1, 2, … in ms.

    >>> parse_delay_levels("1s 5m 2h")
    (1000, 300000, 7200000)
    """
    return tuple(_delay_ms(word, text) for word in text.split())


def _delay_ms(word: str, text: str) -> int:
    number, unit = word[:-1], word[-1:].lower()
    if unit not in _UNIT_MS or not number.isascii() or not number.isdigit():
        raise ConfigError(
            f"messageDelayLevel={text}: '{word}' is not a delay; write a number and s, m, h or d, like 30s"
        )
    return int(number) * _UNIT_MS[unit]


DEFAULT_DELAY_LEVELS: Final = parse_delay_levels(DEFAULT_DELAY_LEVEL_TEXT)


def deliver_timestamp(delay_levels: tuple[int, ...], level: int, store_timestamp: int) -> int:
    """When a message of `level`, stored at `store_timestamp`, is due. Levels above the highest are it."""
    if level < 1 or not delay_levels:
        return store_timestamp + _UNKNOWN_LEVEL_MS
    return store_timestamp + delay_levels[min(level, len(delay_levels)) - 1]


def delivered_level(record: MessageExt) -> int | None:
    """The delay level that a record was delivered from; None if it was not, or the record does not say. Where
    the delayed message lies is its prepared transaction offset, less one."""
    level = record.properties.get(MessageConst.PROPERTY_DELAY_TIME_LEVEL, "")
    is_delivered = record.prepared_transaction_offset and record.topic != SCHEDULE_TOPIC
    return int(level) if is_delivered and level.isascii() and level.isdigit() else None
