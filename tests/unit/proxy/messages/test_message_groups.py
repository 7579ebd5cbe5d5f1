"""The queue of a message group is Apache's, or groups lose their order where both kinds of proxies serve."""

from __future__ import annotations

import pytest

from kourou.proxy.messages.message_groups import group_bucket

# What Guava 32 returns for consistentHash(text.hashCode(), buckets).
BUCKETS = (1, 2, 3, 4, 8, 16, 1000)
OF_GUAVA = {
    "order-1": [0, 0, 0, 3, 3, 3, 489],
    "order-2": [0, 0, 2, 2, 2, 11, 184],
    "a": [0, 0, 0, 0, 0, 0, 346],
    "Bestellung-ü": [0, 1, 2, 3, 3, 3, 51],
    "订单": [0, 1, 1, 1, 7, 7, 50],
    "group-0123456789": [0, 0, 0, 0, 0, 9, 664],
    "zzzzzz": [0, 1, 1, 3, 3, 14, 901],
    "FIFO": [0, 0, 0, 0, 0, 12, 277],
    "\U0001f600": [0, 1, 1, 1, 4, 4, 748],
}


@pytest.mark.parametrize("group", OF_GUAVA)
def test_bucket(group: str) -> None:
    assert [group_bucket(group, buckets) for buckets in BUCKETS] == OF_GUAVA[group]
