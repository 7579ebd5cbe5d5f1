"""Topics of POP: where messages go whose invisible time has ended without an ack.

Such a message is put into a retry topic of its group and topic. RocketMQ has two names for it: V1,
`%RETRY%group_topic`, the default, and V2, `%RETRY%group+topic`. A name of V1 can be split only if the group
is known: both group and topic may contain `_`. Neither is `%RETRY%group`, the retry topic of pull consumers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX, REVIVE_LOG_TOPIC_PREFIX

__all__ = [
    "POP_RETRY_QUEUES",
    "PopTopicKind",
    "pop_retry_topic",
    "pop_retry_topics",
    "popped_topic",
    "retry_groups",
    "revive_topic",
    "topic_of_kind",
]

POP_RETRY_QUEUES: Final = 1
"""Queues of a retry topic."""
_SEPARATOR_V1: Final = "_"
_SEPARATOR_V2: Final = "+"


class PopTopicKind(enum.StrEnum):
    """From which topic a message was popped, as receipt handles and offset lists write it."""

    NORMAL = "0"
    RETRY_V1 = "1"
    RETRY_V2 = "2"

    @classmethod
    def of(cls, topic: str) -> PopTopicKind:
        """The kind of a topic by its name alone, as clients tell them apart."""
        if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return cls.NORMAL
        return cls.RETRY_V2 if _SEPARATOR_V2 in topic else cls.RETRY_V1


def pop_retry_topic(topic: str, group: str, *, is_v2: bool) -> str:
    """The retry topic of `group` for messages of `topic`."""
    return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{_SEPARATOR_V2 if is_v2 else _SEPARATOR_V1}{topic}"


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Both names of that retry topic, V1 first."""
    return pop_retry_topic(topic, group, is_v2=False), pop_retry_topic(topic, group, is_v2=True)


def topic_of_kind(topic: str, group: str, kind: PopTopicKind) -> str:
    """The topic that a message of `topic` was popped from."""
    return (
        topic
        if kind is PopTopicKind.NORMAL
        else pop_retry_topic(topic, group, is_v2=kind is PopTopicKind.RETRY_V2)
    )


def popped_topic(topic: str, group: str) -> str:
    """The topic that a consumer subscribes to, from the one that its message was popped from."""
    for separator in (_SEPARATOR_V2, _SEPARATOR_V1):
        prefix = f"{RETRY_GROUP_TOPIC_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_groups(topics: Iterable[str]) -> tuple[set[str], set[str]]:
    """The groups that these topics are retry topics of, and the names that are ambiguous: `%RETRY%a_b` is of
    group `a_b`, or of group `a` and topic `b`. They are ambiguous only where `a` is a group, too."""
    names = {
        topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        for topic in topics
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) and _SEPARATOR_V2 not in topic
    }
    ambiguous = {
        name
        for name in names
        if any(
            name[:place] in names
            for place, character in enumerate(name)
            if character == _SEPARATOR_V1 and place + 1 < len(name)
        )
    }
    return names - ambiguous, ambiguous


def revive_topic(cluster: str) -> str:
    """The topic of a cluster's brokers that holds what is in flight."""
    return REVIVE_LOG_TOPIC_PREFIX + cluster
