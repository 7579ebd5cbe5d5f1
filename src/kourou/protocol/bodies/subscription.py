"""Subscription groups as brokers configure them (200, 201, 225, 345, 352, 353)."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from msgspec import field

from kourou.protocol.bodies.heartbeat import SubscriptionData
from kourou.protocol.bodies.shape import V5, Body, Int32, Int64
from kourou.protocol.bodies.topics import DataVersion

_MINUTE_MS: Final = 60_000

DEFAULT_RETRY_DELAYS_MS: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
"""The delay levels of a broker, so that groups without a policy of their own keep the old delays."""


class GroupRetryPolicyType(enum.StrEnum):
    """Which of the two policies of a GroupRetryPolicy counts."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Body):
    """Delays in milliseconds that grow by a factor from `initial` up to `max`."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body):
    """Delays in milliseconds, the last one for all further retries."""

    next: list[Int64] = field(default_factory=lambda: list(DEFAULT_RETRY_DELAYS_MS))


class GroupRetryPolicy(Body):
    """How long a failed message of a group waits before the next try (5.x)."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body):
    """A subscription that the operator fixed for a group (5.x)."""

    topic: str = ""
    expression_type: str = "TAG"
    expression: str = ""
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """One consumer group on one broker (200 request, 352 response)."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: Annotated[bool, V5] = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: Annotated[GroupRetryPolicy, V5] = field(default_factory=GroupRetryPolicy)
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Annotated[Int32, V5] = 0
    consume_timeout_minute: Annotated[Int32, V5] = 15
    subscription_data_set: Annotated[list[SimpleSubscriptionData] | None, V5] = None
    attributes: Annotated[dict[str, str], V5] = {}


class SubscriptionGroupWrapper(Body):
    """All groups of a broker (201). `forbidden_table`: group to topic to a mask of bits (5.x)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: Annotated[dict[str, dict[str, Int32]], V5] = {}
    data_version: DataVersion = field(default_factory=DataVersion)


class SubscriptionGroupList(Body):
    """Groups to create in one call (225)."""

    group_config_list: list[SubscriptionGroupConfig] = []


class GroupForbidden(Body):
    """Whether a group may read a topic (353)."""

    group: str = ""
    topic: str = ""
    readable: bool | None = None


class QuerySubscriptionResponseBody(Body):
    """A group's subscription to one topic (345)."""

    group: str = ""
    topic: str = ""
    subscription_data: SubscriptionData | None = None
