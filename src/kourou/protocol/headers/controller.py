"""Headers of the controller (5.x): who is master, who is in sync, which broker ids are taken; and of promises
between the members of a fail-over set."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32, Int64

__all__ = [
    "AlterSyncStateSetRequestHeader",
    "AlterSyncStateSetResponseHeader",
    "ApplyBrokerIdRequestHeader",
    "ApplyBrokerIdResponseHeader",
    "CleanControllerBrokerDataRequestHeader",
    "ElectMasterRequestHeader",
    "ElectMasterResponseHeader",
    "GetMetaDataResponseHeader",
    "GetNextBrokerIdRequestHeader",
    "GetNextBrokerIdResponseHeader",
    "GetReplicaInfoRequestHeader",
    "GetReplicaInfoResponseHeader",
    "NotifyBrokerRoleChangedRequestHeader",
    "PromiseRequestHeader",
    "PromiseResponseHeader",
    "RegisterBrokerToControllerRequestHeader",
    "RegisterBrokerToControllerResponseHeader",
]


class AlterSyncStateSetRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET; the set is in the body."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 | None = None


class AlterSyncStateSetResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_ALTER_SYNC_STATE_SET."""

    new_sync_state_set_epoch: Int32


class ElectMasterRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_ELECT_MASTER."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64 | None = None


class ElectMasterResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_ELECT_MASTER."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerToControllerRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_REGISTER_BROKER."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 | None = None


class RegisterBrokerToControllerResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_REGISTER_BROKER."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_GET_REPLICA_INFO; the sync state set is in the body."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetMetaDataResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_GET_METADATA_INFO."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


class NotifyBrokerRoleChangedRequestHeader(CommandHeader, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED, controller to brokers."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class CleanControllerBrokerDataRequestHeader(CommandHeader, kw_only=True):
    """CLEAN_BROKER_DATA; ids are joined by semicolons."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool | None = None
    invoke_time: Int64 | None = None


class GetNextBrokerIdRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerIdRequestHeader(CommandHeader, kw_only=True):
    """CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(CommandHeader, kw_only=True):
    """Response to CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


class PromiseRequestHeader(CommandHeader, kw_only=True):
    """PROMISE_KOUROU_MASTER: the master of a fail-over set asks a member not to take over for a while.
    `kourou_asked_id` is the number of the member that is asked."""

    cluster_name: str
    broker_name: str
    kourou_set_id: str
    kourou_member_id: Int64
    kourou_asked_id: Int64
    kourou_epoch: Int64
    kourou_asked_ms: Int64


class PromiseResponseHeader(CommandHeader, kw_only=True):
    """For how long it has been promised, from when the request arrived."""

    kourou_granted_ms: Int64
