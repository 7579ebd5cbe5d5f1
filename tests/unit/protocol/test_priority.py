"""The priority of a message, read from its properties, and the queue that stands for it."""

from __future__ import annotations

import pytest

from kourou.protocol.priority import is_of_another_type, parse_priority, priority_of, priority_queue


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("0", 0),
        ("7", 7),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-1", None),
        ("", None),
        ("high", None),
        ("٣", None),
        ("9" * 5_000, None),
        (None, None),
    ],
)
def test_a_property_of_any_program_is_read(text: str | None, priority: int | None) -> None:
    assert parse_priority(text) == priority


def test_a_name_that_ends_like_the_property_is_another_one() -> None:
    assert priority_of("my_SYS_MSG_PRIORITY_\x013\x02") is None
    assert priority_of("a\x01b\x02_SYS_MSG_PRIORITY_\x013\x02") == 3


@pytest.mark.parametrize(
    ("properties", "is_other"),
    [
        ("TRAN_MSG\x01true\x02", True),
        ("TRAN_MSG\x01false\x02", False),
        ("DELAY\x013\x02", True),
        ("TIMER_DELIVER_MS\x011\x02", True),
        ("TIMER_DELAY_SEC\x011\x02", True),
        ("TIMER_DELAY_MS\x011\x02", True),
        ("__SHARDINGKEY\x01k\x02", True),
        ("KEYS\x01DELAY\x02", False),
        ("", False),
    ],
)
def test_halves_and_delayed_and_ordered_messages_are_of_another_type(properties: str, is_other: bool) -> None:
    assert is_of_another_type(properties) == is_other


def test_priorities_beyond_the_last_queue_are_equal() -> None:
    assert [priority_queue(priority, 8) for priority in (0, 7, 8, 2147483647)] == [0, 7, 7, 7]
    assert priority_queue(3, 0) == 0
