"""The kind of a topic: what its messages are, or that it belongs to a group or to the brokers."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from kourou.admin.session import BrokerAddress
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.names import is_dlq_topic, is_inner_topic, is_retry_topic, reply_topic
from kourou.protocol.priority import MESSAGE_TYPE


class TopicKind(enum.StrEnum):
    """Kinds of topics; the first ones are the values of the attribute `message.type`."""

    NORMAL = "NORMAL"
    """Also of topics without the attribute, as in Apache's tools."""
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    PRIORITY = "PRIORITY"
    """The queue of a message is its priority."""
    UNSPECIFIED = "UNSPECIFIED"
    RETRY = "RETRY"
    DLQ = "DLQ"
    SYSTEM = "SYSTEM"


MESSAGE_KINDS: Final = tuple(TopicKind)[:7]
"""Those that a topic can be created with."""


def own_topics(brokers: Iterable[BrokerAddress]) -> set[str]:
    """Topics that brokers create for themselves: named after a broker or a cluster."""
    places = list(brokers)
    clusters = {place.cluster for place in places}
    return {place.broker_name for place in places} | clusters | {reply_topic(cluster) for cluster in clusters}


def topic_kind(topic: str, configs: Iterable[TopicConfig], own: set[str]) -> TopicKind:
    """The kind of a topic with these settings on its brokers; `own`: see `own_topics`."""
    if is_retry_topic(topic):
        return TopicKind.RETRY
    if is_dlq_topic(topic):
        return TopicKind.DLQ
    if topic in own or is_inner_topic(topic):
        return TopicKind.SYSTEM
    kinds = {message_kind(config) for config in configs}
    return kinds.pop() if len(kinds) == 1 else TopicKind.UNSPECIFIED


def message_kind(config: TopicConfig) -> TopicKind:
    """The attribute `message.type` of a topic on one broker; UNSPECIFIED if the value is unknown."""
    text = config.attributes.get(MESSAGE_TYPE, TopicKind.NORMAL.value)
    return TopicKind(text) if text in MESSAGE_KINDS else TopicKind.UNSPECIFIED
