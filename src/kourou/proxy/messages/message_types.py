"""Message types: which one a message has, and which ones a topic takes.

The type follows from the properties, whatever the client calls it. The attribute `message.type` of a topic
names the one type that it takes; MIXED takes all. Remoting clients are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kourou.protocol.names import is_dlq_topic, is_retry_topic
from kourou.protocol.priority import MESSAGE_TYPE
from kourou.protocol.properties import RESERVED_PROPERTIES, MessageConst
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code, MessageType

LITE_TOPIC_PROPERTY: Final = "__LITE_TOPIC"
"""Names the lite topic of a message within its topic, in RocketMQ 5.5."""
SYSTEM_PROPERTIES: Final = RESERVED_PROPERTIES | {LITE_TOPIC_PROPERTY, MessageConst.PROPERTY_ORIGIN_GROUP}
"""Names that are no user properties to clients of 5.5; to those of 4.9 some are."""
_NORMAL: Final = MessageType.NORMAL.name
_MIXED: Final = "MIXED"
_TYPES: Final = {kind.name: kind for kind in MessageType if kind is not MessageType.MESSAGE_TYPE_UNSPECIFIED}
_OF_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_DELAYS: Final = frozenset(
    {
        MessageConst.PROPERTY_DELAY_TIME_LEVEL,
        MessageConst.PROPERTY_TIMER_DELIVER_MS,
        MessageConst.PROPERTY_TIMER_DELAY_SEC,
        MessageConst.PROPERTY_TIMER_DELAY_MS,
    }
)


def type_of_properties(properties: Mapping[str, str]) -> MessageType:
    """The type of a message with these properties, as RocketMQ 5.5 determines it."""
    if properties.get(MessageConst.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    if MessageConst.PROPERTY_SHARDING_KEY in properties:
        return MessageType.FIFO
    if MessageConst.PROPERTY_PRIORITY in properties:
        return MessageType.PRIORITY
    return MessageType.LITE if LITE_TOPIC_PROPERTY in properties else MessageType.NORMAL


def accepted_types(attributes: Mapping[str, str] | None) -> tuple[MessageType, ...]:
    """The types that clients may send to a topic with these attributes; None: they are not known."""
    if attributes is None:
        return _OF_MIXED
    name = attributes.get(MESSAGE_TYPE, _NORMAL)
    if name == _MIXED:
        return _OF_MIXED
    return (_TYPES.get(name, MessageType.MESSAGE_TYPE_UNSPECIFIED),)


def check_type(topic: str, attributes: Mapping[str, str] | None, kind: MessageType) -> None:
    """StatusError: the topic does not take messages of this type."""
    if attributes is None:
        return
    name = attributes.get(MESSAGE_TYPE, _NORMAL)
    if _TYPES.get(name) is kind or name == _MIXED or is_retry_topic(topic) or is_dlq_topic(topic):
        return
    raise StatusError(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"topic {topic} takes messages of type {name}, this one is {kind.name}; "
        f"mqadmin updateTopic -a +{MESSAGE_TYPE}={kind.name} changes that",
    )
