"""What a group has not consumed, in words."""

from __future__ import annotations

from collections import Counter

from kourou.testing.group_lag import GroupLag


def test_messages_that_wait_are_counted_with_what_they_wait_for() -> None:
    one = GroupLag(frozenset({"Orders"}), (), Counter({"%RETRY%gb": 1, "Orders": 1}), members=1)
    assert str(one) == (
        "%RETRY%gb: 1 message waits for redelivery; Orders: 1 message waits for its delivery time"
    )
    two = GroupLag(frozenset({"Orders"}), (), Counter({"%RETRY%gb": 2, "Orders": 2}), members=1)
    assert str(two) == (
        "%RETRY%gb: 2 messages wait for redelivery; Orders: 2 messages wait for their delivery time"
    )
