"""Headers of keeping track of clients, and of calling them through the broker."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, wire_names

__all__ = [
    "ConsumeMessageDirectlyResultRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerListByGroupRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetProducerConnectionListRequestHeader",
    "HeartbeatResponseHeader",
    "NotifyConsumerIdsChangedRequestHeader",
    "UnregisterClientRequestHeader",
]


class HeartbeatResponseHeader(
    CommandHeader,
    kw_only=True,
    rename=wire_names(is_support_heart_beat_v2="IS_SUPPORT_HEART_BEAT_V2", is_sub_change="IS_SUB_CHANGE"),
):
    """Response to HEART_BEAT in 5.x. RocketMQ has the first two names but no class; the third name is ours
    (features.py)."""

    is_support_heart_beat_v2: bool | None = None
    is_sub_change: bool | None = None
    kourou_features: str | None = None


class UnregisterClientRequestHeader(CommandHeader, kw_only=True, rename=wire_names(client_id="clientID")):
    """UNREGISTER_CLIENT. C++ sends the group it does not mean as an empty text."""

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(CommandHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(CommandHeader, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED, broker to consumers."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(CommandHeader, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(CommandHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(CommandHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO, passed on by the broker to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(CommandHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY, passed on by the broker with the message in the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
