"""Needs of the usual kinds: to publish to a topic, to consume it, to do something with topic and group.

A retry topic `%RETRY%g` stands for group g: to send to it, as consumers do, needs Sub on the group. Accounts
of RocketMQ 4 have PUB and SUB on topics and groups only; what else is done with a topic or group needs an
administrator there.
Needs are cached by name, as sends and pulls ask for the same few again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from kourou.access.model import Action, Need, Needs, Resource, ResourceType
from kourou.protocol.names import (
    RETRY_GROUP_TOPIC_PREFIX,
    REVIVE_LOG_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TIMER_TOPIC,
    is_retry_topic,
)
from kourou.protocol.producer_sequence import NAME_PREFIX

PUB: Final = frozenset({Action.PUB})
SUB: Final = frozenset({Action.SUB})
GET: Final = frozenset({Action.GET})
CREATE: Final = frozenset({Action.CREATE})
UPDATE: Final = frozenset({Action.UPDATE})
DELETE: Final = frozenset({Action.DELETE})
LIST: Final = frozenset({Action.LIST})
SUB_OR_GET: Final = frozenset({Action.SUB, Action.GET})
SUB_OR_UPDATE: Final = frozenset({Action.SUB, Action.UPDATE})

NOTHING: Final = Needs()
"""A valid signature suffices."""
ADMINISTRATOR: Final = Needs(is_admin_only=True, is_plain_admin_only=True)

SHARED_TOPICS: Final = frozenset(
    {
        RMQ_SYS_SCHEDULE_TOPIC,
        TIMER_TOPIC,
        RMQ_SYS_TRANS_HALF_TOPIC,
        RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    }
)
"""Where messages of all topics wait: a permission for all topics but one would show those of that one."""

_CACHED: Final = 8_192


def is_shared_topic(topic: str) -> bool:
    """Whether messages of all topics wait there, or records that name them."""
    return topic in SHARED_TOPICS or topic.startswith(REVIVE_LOG_TOPIC_PREFIX)


_ATOMIC_SUFFIX: Final = ".atomic"


@lru_cache(maxsize=_CACHED)
def publish(topic: str) -> Needs:
    """To send to a topic."""
    return Needs(auth=(topic_need(topic, PUB),), plain=(topic_need(topic, PUB),))


@lru_cache(maxsize=_CACHED)
def consume(topic: str, group: str) -> Needs:
    """To read a topic as a group."""
    both = topic_and_group(topic, SUB, group, SUB)
    return Needs(auth=both, plain=both)


@lru_cache(maxsize=_CACHED)
def belong(group: str) -> Needs:
    """To be a member of a group."""
    return Needs(auth=(group_need(group, SUB),), plain=(group_need(group, SUB),))


@lru_cache(maxsize=_CACHED)
def look_into(topic: str, actions: frozenset[Action]) -> Needs:
    """To look into a topic, as its consumers do."""
    return Needs(auth=(topic_need(topic, actions),), plain=(topic_need(topic, SUB),))


def read_messages(topic: str, actions: frozenset[Action]) -> Needs:
    """To look at messages of a topic."""
    return ADMINISTRATOR if is_shared_topic(topic) else look_into(topic, actions)


@lru_cache(maxsize=_CACHED)
def follow_offset(topic: str, group: str, actions: frozenset[Action]) -> Needs:
    """To read or write how far a group is in a topic."""
    return Needs(
        auth=topic_and_group(topic, actions, group, actions), plain=topic_and_group(topic, SUB, group, SUB)
    )


@lru_cache(maxsize=_CACHED)
def own(name: str) -> Needs:
    """To act for a named producer or sink: Pub on the group of that name. The atomic publishes of a producer
    have its name with a suffix."""
    need = _need(ResourceType.GROUP, name.removesuffix(_ATOMIC_SUFFIX), PUB)
    return Needs(auth=(need,), plain=(need,))


def act_for(producer_id: str) -> Needs:
    """To act for a producer: of a named one its owner may, of a random id the account that has opened it."""
    if producer_id.startswith(NAME_PREFIX):
        return own(producer_id.removeprefix(NAME_PREFIX))
    return Needs(random_producer=producer_id)


def manage(needs: Iterable[Need]) -> Needs:
    """What RocketMQ 5 has actions for, and RocketMQ 4 leaves to administrators."""
    return Needs(auth=tuple(needs), is_plain_admin_only=True)


def joined(all_needs: Iterable[Needs]) -> Needs:
    """All of them, each need once."""
    listed = list(all_needs)
    return Needs(
        auth=tuple(dict.fromkeys(need for needs in listed for need in needs.auth)),
        plain=tuple(dict.fromkeys(need for needs in listed for need in needs.plain)),
        is_admin_only=any(needs.is_admin_only for needs in listed),
        is_plain_admin_only=any(needs.is_plain_admin_only for needs in listed),
        random_producer=next((needs.random_producer for needs in listed if needs.random_producer), ""),
    )


def topic_need(topic: str, actions: frozenset[Action]) -> Need:
    """A topic; of a retry topic the group."""
    if not is_retry_topic(topic):
        return _need(ResourceType.TOPIC, topic, actions)
    return group_need(topic[len(RETRY_GROUP_TOPIC_PREFIX) :], SUB if actions is PUB else actions)


def group_need(group: str, actions: frozenset[Action]) -> Need:
    """A consumer group."""
    return _need(ResourceType.GROUP, group, actions)


def topic_and_group(
    topic: str, topic_actions: frozenset[Action], group: str, group_actions: frozenset[Action]
) -> tuple[Need, ...]:
    """Both; the group only, if the topic is its own retry topic."""
    both = topic_need(topic, topic_actions), group_need(group, group_actions)
    return tuple(dict.fromkeys(both))


@lru_cache(maxsize=2 * _CACHED)
def _need(kind: ResourceType, name: str, actions: frozenset[Action]) -> Need:
    return Need(Resource(kind, name), actions)
