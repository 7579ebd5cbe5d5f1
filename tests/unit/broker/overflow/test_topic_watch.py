"""TopicWatch: when a topic has to be measured again."""

from __future__ import annotations

from typing import cast

from kourou.broker.overflow.backlog_meter import BacklogMeter, GroupBacklog, QueueBacklog
from kourou.broker.overflow.topic_watch import TopicWatch
from kourou.protocol.overflow_rule import OverflowPolicy, OverflowRule
from kourou.store.queue.consume_queue import ConsumeQueue

QUEUE = cast(ConsumeQueue, None)


def watch(**limits: int) -> TopicWatch:
    return TopicWatch("T", OverflowRule(OverflowPolicy.REJECT, **limits), cast(BacklogMeter, None))


def backlog(group: str, messages: int, size_bytes: int = 0) -> GroupBacklog:
    return GroupBacklog(group, [QueueBacklog(QUEUE, 0, messages, size_bytes)])


def test_a_limit_of_messages_is_looked_at_when_as_many_have_come_as_there_is_room_for() -> None:
    watched = watch(messages=100)
    watched.measured([backlog("A", 70), backlog("B", 90)], log_end=0)
    assert (watched.group, watched.share) == ("B", 0.9)
    watched.arrived = 9
    assert not watched.is_due(1 << 40)
    watched.arrived = 10
    assert watched.is_due(0)


def test_a_limit_of_bytes_is_looked_at_when_the_log_has_grown_by_the_room() -> None:
    watched = watch(size_bytes=1_000)
    watched.measured([backlog("A", 5, 400)], log_end=7_000)
    watched.arrived = 1 << 40
    assert not watched.is_due(7_599)
    assert watched.is_due(7_600)


def test_at_the_limit_each_message_counts_and_without_a_group_none() -> None:
    watched = watch(messages=100)
    watched.measured([backlog("A", 130)], log_end=0)
    watched.arrived = 1
    assert watched.is_due(0)
    watched.measured([], log_end=0)
    watched.arrived = 1 << 40
    assert not watched.is_due(1 << 40)
    assert (watched.share, watched.group) == (0.0, "")
