"""The queues that one pop looks at, and in which order. Pure: randomness is passed in.

A retry topic comes first for some pops, last for the others, so that messages which failed neither wait
behind a backlog nor hold up new ones. Of its two names one pop reads one: the answer cannot tell their
queues apart. Orderly POP has no retry topics.

A topic of type PRIORITY is read by priority, and its retries with it: those of a priority come beside its
other messages, not behind all of them, which is where RocketMQ 5.5.0 has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kourou.broker.tables.attributes import priority_factor
from kourou.protocol.pop.retry_topics import pop_retry_topic

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.config.broker import BrokerConfig

__all__ = ["CHANCES", "PlannedQueue", "PriorityRules", "QueuePlans", "RetryRules", "plan_queues"]

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


class PriorityRules(NamedTuple):
    """How pops read a topic whose queues are priorities: `factor` of `CHANCES` by priority, the others as any
    topic. `first_chances`: when all retries come first."""

    factor: int
    first_chances: int
    is_ascending: bool
    """Whether the last queue has the highest priority."""

    def in_order(self, queues: Iterable[PlannedQueue]) -> list[PlannedQueue]:
        """The highest priority first; queues of the same stay as they are."""
        return sorted(queues, key=lambda queue: -queue.queue_id if self.is_ascending else queue.queue_id)


class QueuePlans:
    """Plans the pops of one broker. `random_below` returns a random number below its argument."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        random_below: Callable[[int], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self.random_below = random_below

    def steps(self, topic: str, group: str, queue_id: int, *, is_orderly: bool) -> list[PlannedQueue]:
        """The queues that a pop looks at now."""
        return plan_queues(
            topic,
            group,
            queue_id,
            is_orderly=is_orderly,
            chance=self.random_below(CHANCES),
            rules=RetryRules.of(self._config.current),
            priorities=self._priorities(topic, group) if self._topics.has_priorities(topic) else None,
            read_queues=self._topics.read_queues,
        )

    def _priorities(self, topic: str, group: str) -> PriorityRules:
        config, group_config = self._config.current, self._groups.table.get(group)
        return PriorityRules(
            priority_factor(None if group_config is None else group_config.attributes),
            config.pop_from_retry_probability_for_priority,
            config.priority_order_asc,
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
    priorities: PriorityRules | None = None,
) -> list[PlannedQueue]:
    """The queues for a pop of `topic`; a negative `queue_id` is any. `read_queues` of a topic are 0 where
    there is none. `chance` is a random number below `CHANCES`. `priorities` None: the topic has none."""
    # From any queue on downwards: else one of the highest priority would come next for most.
    is_down = priorities is not None and priorities.is_ascending and not is_orderly
    if priorities is not None and (is_orderly or chance >= priorities.factor):
        priorities = None
    if queue_id < 0:
        queues = _from(chance, topic, read_queues(topic), is_retry=False, is_down=is_down)
    else:
        queues = [PlannedQueue(topic, queue_id, False)]
    if is_orderly:
        return queues
    is_v2 = rules.is_v2 and not (rules.reads_v1_too and chance % 2 == 0)
    retry_topic = pop_retry_topic(topic, group, is_v2=is_v2)
    retries = _from(chance, retry_topic, read_queues(retry_topic), is_retry=True, is_down=is_down)
    both = retries + queues if chance < rules.first_chances else queues + retries
    return both if priorities is None else _by_priority(queues, retries, both, chance, priorities)


def _from(chance: int, topic: str, count: int, *, is_retry: bool, is_down: bool) -> list[PlannedQueue]:
    order = range(chance - 1, chance - 1 - count, -1) if is_down else range(chance, chance + count)
    return [PlannedQueue(topic, number % count, is_retry) for number in order]


def _by_priority(
    queues: list[PlannedQueue],
    retries: list[PlannedQueue],
    both: list[PlannedQueue],
    chance: int,
    priorities: PriorityRules,
) -> list[PlannedQueue]:
    in_order = priorities.in_order
    if chance < priorities.first_chances:
        return in_order(retries) + in_order(queues)
    # One queue has retries of all priorities, as RocketMQ 5.5.0 stores them: it reads them last, too.
    return in_order(both) if len(retries) > 1 else in_order(queues) + retries
