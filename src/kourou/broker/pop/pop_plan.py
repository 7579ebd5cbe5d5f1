"""The queues that one pop looks at, and in which order. Pure: randomness is passed in.

A retry topic comes first for some pops, last for the others, so that messages which failed neither wait
behind a backlog nor hold up new ones. Of its two names one pop reads one: the answer cannot tell their
queues apart. Orderly POP has no retry topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kourou.protocol.pop.retry_topics import pop_retry_topic

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

__all__ = ["CHANCES", "PlannedQueue", "RetryRules", "plan_queues"]

CHANCES: Final = 100
"""A pop draws a number below this one."""


class PlannedQueue(NamedTuple):
    """One queue that a pop looks at."""

    topic: str
    queue_id: int
    is_retry: bool


class RetryRules(NamedTuple):
    """When a retry topic comes first, in so many of `CHANCES`, and which of its names are in use."""

    first_chances: int
    is_v2: bool
    reads_v1_too: bool

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """The rules of a broker."""
        return cls(
            config.pop_from_retry_probability,
            config.enable_retry_topic_v2,
            config.retrieve_message_from_pop_retry_topic_v1,
        )


def plan_queues(
    topic: str,
    group: str,
    queue_id: int,
    *,
    is_orderly: bool,
    chance: int,
    rules: RetryRules,
    read_queues: Callable[[str], int],
) -> list[PlannedQueue]:
    """The queues for a pop of `topic`; a negative `queue_id` is any. `read_queues` of a topic are 0 where
    there is none. `chance` is a random number below `CHANCES`."""
    if queue_id < 0:
        count = read_queues(topic)
        queues = [PlannedQueue(topic, (chance + n) % count, False) for n in range(count)]
    else:
        queues = [PlannedQueue(topic, queue_id, False)]
    if is_orderly:
        return queues
    is_v2 = rules.is_v2 and not (rules.reads_v1_too and chance % 2 == 0)
    retry_topic = pop_retry_topic(topic, group, is_v2=is_v2)
    retry_count = read_queues(retry_topic)
    if not retry_count:
        return queues
    retries = [PlannedQueue(retry_topic, (chance + n) % retry_count, True) for n in range(retry_count)]
    return retries + queues if chance < rules.first_chances else queues + retries
