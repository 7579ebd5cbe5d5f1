"""LagTable: sums by topic, group and both; the time behind."""

from __future__ import annotations

from kourou.admin.brokers import GroupQueueLag
from kourou.console.lag_table import LagSum, lag_table

NOW_MS = 100_000


def _queue(group: str, topic: str, end: int, at: int, waiting_ms: int = 0) -> GroupQueueLag:
    return GroupQueueLag(topic, group, "broker-a", 0, end, at, waiting_ms)


def test_lag_is_summed_by_group_topic_and_pair() -> None:
    table = lag_table(
        [
            _queue("billing", "Orders", 10, 4),
            _queue("audit", "Orders", 10, 10),
            _queue("audit", "Gifts", 9, 7),
        ],
        NOW_MS,
    )
    assert {name: total.lag for name, total in table.by_group.items()} == {"billing": 6, "audit": 2}
    assert {name: total.lag for name, total in table.by_topic.items()} == {"Orders": 6, "Gifts": 2}
    assert table.by_pair["audit", "Orders"].lag == 0
    assert table.groups_of["Orders"] == ["audit", "billing"]
    assert table.topics_of["audit"] == ["Gifts", "Orders"]


def test_the_oldest_waiting_message_decides_how_far_behind() -> None:
    total = LagSum()
    total.add(_queue("g", "t", 10, 5, waiting_ms=40_000))
    total.add(_queue("g", "t", 10, 5, waiting_ms=70_000))
    total.add(_queue("g", "t", 10, 10, waiting_ms=10))  # all consumed: does not count
    assert total.behind_ms(NOW_MS) == 60_000


def test_a_queue_beyond_its_end_does_not_hide_the_lag_of_others() -> None:
    total = LagSum()
    total.add(_queue("g", "t", 5, 9))
    total.add(_queue("g", "t", 10, 7))
    assert total.lag == 3
    assert total.behind_ms(NOW_MS) is None  # nothing was consumed yet


def test_without_lag_a_group_is_not_behind() -> None:
    assert LagSum().behind_ms(NOW_MS) == 0
