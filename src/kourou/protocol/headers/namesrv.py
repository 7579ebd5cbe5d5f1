"""Headers of the name server's requests, and of those it sends to brokers."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64, wire_names

__all__ = [
    "AddWritePermOfBrokerRequestHeader",
    "AddWritePermOfBrokerResponseHeader",
    "BrokerHeartbeatRequestHeader",
    "DeleteKVConfigRequestHeader",
    "DeleteTopicFromNamesrvRequestHeader",
    "GetBrokerMemberGroupRequestHeader",
    "GetKVConfigRequestHeader",
    "GetKVConfigResponseHeader",
    "GetKVListByNamespaceRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "NotifyMinBrokerIdChangeRequestHeader",
    "PutKVConfigRequestHeader",
    "QueryDataVersionRequestHeader",
    "QueryDataVersionResponseHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "RegisterTopicRequestHeader",
    "UnRegisterBrokerRequestHeader",
    "WipeWritePermOfBrokerRequestHeader",
    "WipeWritePermOfBrokerResponseHeader",
]

_zone_names = wire_names(zone_name="__ZONE_NAME", zone_mode="__ZONE_MODE")


class PutKVConfigRequestHeader(CommandHeader, kw_only=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CommandHeader, kw_only=True):
    """GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_KV_CONFIG."""

    value: str | None = None


class DeleteKVConfigRequestHeader(CommandHeader, kw_only=True):
    """DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandHeader, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class RegisterBrokerRequestHeader(CommandHeader, kw_only=True, rename=_zone_names):
    """REGISTER_BROKER; the topic table is in the body. `body_crc32` 0 means not computed."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0
    zone_name: str | None = None


class RegisterBrokerResponseHeader(CommandHeader, kw_only=True):
    """Response to REGISTER_BROKER; both addresses are the master's, for slaves only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(CommandHeader, kw_only=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetRouteInfoRequestHeader(CommandHeader, kw_only=True, rename=_zone_names):
    """GET_ROUTEINFO_BY_TOPIC. With `zone_mode` only brokers of `zone_name` are wanted (5.x)."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = None
    zone_name: str | None = None


class WipeWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    """Response to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    """Response to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


class DeleteTopicFromNamesrvRequestHeader(CommandHeader, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV; without a cluster the topic goes from all of them."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(CommandHeader, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV; the route is in the body."""

    topic: str


class GetTopicsByClusterRequestHeader(CommandHeader, kw_only=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class QueryDataVersionRequestHeader(CommandHeader, kw_only=True):
    """QUERY_DATA_VERSION; the broker's DataVersion is in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(CommandHeader, kw_only=True):
    """Response to QUERY_DATA_VERSION."""

    changed: bool


class GetBrokerMemberGroupRequestHeader(CommandHeader, kw_only=True):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(CommandHeader, kw_only=True):
    """BROKER_HEARTBEAT; the timeout's wire name ends in `Mills`, unlike that of REGISTER_BROKER."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class NotifyMinBrokerIdChangeRequestHeader(CommandHeader, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE, name server to brokers."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
