"""Headers of administering a broker itself: its configuration, statistics, replication, container."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int64, wire_names

__all__ = [
    "AddBrokerRequestHeader",
    "ExchangeHAInfoRequestHeader",
    "ExchangeHAInfoResponseHeader",
    "GetBrokerConfigResponseHeader",
    "RemoveBrokerRequestHeader",
    "ResetMasterFlushOffsetHeader",
    "SetCommitLogReadModeRequestHeader",
    "SwitchTimerEngineRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
]


class GetBrokerConfigResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_BROKER_CONFIG; `version` is a DataVersion as JSON text."""

    version: str


class ViewBrokerStatsDataRequestHeader(CommandHeader, kw_only=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class AddBrokerRequestHeader(CommandHeader, kw_only=True):
    """ADD_BROKER, to a container."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(CommandHeader, kw_only=True):
    """REMOVE_BROKER, to a container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ExchangeHAInfoRequestHeader(CommandHeader, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(CommandHeader, kw_only=True):
    """Response to EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(CommandHeader, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET."""

    master_flush_offset: Int64


class SetCommitLogReadModeRequestHeader(
    CommandHeader, kw_only=True, rename=wire_names(read_ahead_mode="READ_AHEAD_MODE")
):
    """SET_COMMITLOG_READ_MODE: "0" as the kernel does by default, "1" for random reads."""

    read_ahead_mode: str


class SwitchTimerEngineRequestHeader(CommandHeader, kw_only=True, rename=wire_names(engine_type="E_T")):
    """SWITCH_TIMER_ENGINE of 5.5: R for the timeline in RocksDB, F for the time wheel in files."""

    engine_type: str
