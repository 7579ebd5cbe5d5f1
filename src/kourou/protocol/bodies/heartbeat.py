"""HeartbeatData (34): who a client is, what it produces and what it subscribes to.

The C++ client sends enums as ordinals, `subVersion` as text, and leaves out empty sets.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import field

from kourou.protocol.bodies.shape import V5, Body, Int32, Int64


class ConsumeType(enum.StrEnum):
    """Who initiates delivery. Members are in the order of their ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(enum.StrEnum):
    """Whether every consumer of a group gets a message, or one. In the order of their ordinals."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(enum.StrEnum):
    """Where a group without offsets begins. Members stand in the order of their ordinals."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """A group's subscription to one topic. The one with the higher `sub_version` is newer."""

    topic: str = ""
    sub_string: str = ""
    tags_set: list[str] = []
    code_set: list[Int32] = []
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str = ""


class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str = ""
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body):
    """Body of 34. With `without_sub` the broker keeps the subscriptions it knows (5.x)."""

    client_id: str = field(default="", name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Annotated[Int32, V5] = 0
    without_sub: Annotated[bool, V5] = False


class CheckClientRequestBody(Body):
    """Requests whether a subscription compiles (46)."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: Annotated[str | None, V5] = None
