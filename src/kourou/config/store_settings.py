"""The attributes of a message store's configuration: one a key that is honoured.

Names, types, defaults and reasons are those of `store_keys.py`; here they get the types that the
type checker knows. A test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kourou.config.keys import setting
from kourou.config.store_keys import STORE_KEYS

_KEYS: Final = {key.name: key for key in STORE_KEYS}


def _of(name: str) -> Any:
    return setting(_KEYS[name])


# The methods are made once, for BrokerConfig: there are many fields, and a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StoreSettings:
    """What a broker's store may be told."""

    # folders
    store_path_root_dir: str | None = _of("storePathRootDir")
    store_path_commit_log: str | None = _of("storePathCommitLog")
    read_only_commit_log_store_paths: str | None = _of("readOnlyCommitLogStorePaths")

    # files and messages
    mapped_file_size_commit_log: int = _of("mappedFileSizeCommitLog")
    mapped_file_size_consume_queue: int = _of("mappedFileSizeConsumeQueue")
    max_hash_slot_num: int = _of("maxHashSlotNum")
    max_index_num: int = _of("maxIndexNum")
    message_index_enable: bool = _of("messageIndexEnable")
    max_message_size: int = _of("maxMessageSize")
    max_filter_message_size: int = _of("maxFilterMessageSize")

    # flushing
    flush_disk_type: str = _of("flushDiskType")
    flush_interval_commit_log: int = _of("flushIntervalCommitLog")
    flush_interval_consume_queue: int = _of("flushIntervalConsumeQueue")
    flush_consume_queue_thorough_interval: int = _of("flushConsumeQueueThoroughInterval")
    sync_flush_timeout: int = _of("syncFlushTimeout")
    check_crc_on_recover: bool = _of("checkCRCOnRecover")
    flush_delay_offset_interval: int = _of("flushDelayOffsetInterval")

    # retention
    delete_when: str = _of("deleteWhen")
    file_reserved_time: int = _of("fileReservedTime")
    disk_max_used_space_ratio: int = _of("diskMaxUsedSpaceRatio")
    disk_space_warning_level_ratio: int = _of("diskSpaceWarningLevelRatio")
    disk_space_clean_forcibly_ratio: int = _of("diskSpaceCleanForciblyRatio")
    clean_resource_interval: int = _of("cleanResourceInterval")
    delete_file_batch_max: int = _of("deleteFileBatchMax")
    clean_file_forcibly_enable: bool = _of("cleanFileForciblyEnable")

    # reading
    max_transfer_bytes_on_message_in_memory: int = _of("maxTransferBytesOnMessageInMemory")
    max_transfer_count_on_message_in_memory: int = _of("maxTransferCountOnMessageInMemory")
    max_transfer_bytes_on_message_in_disk: int = _of("maxTransferBytesOnMessageInDisk")
    max_transfer_count_on_message_in_disk: int = _of("maxTransferCountOnMessageInDisk")
    access_message_in_memory_max_ratio: int = _of("accessMessageInMemoryMaxRatio")
    default_query_max_num: int = _of("defaultQueryMaxNum")

    # replication
    broker_role: str = _of("brokerRole")
    ha_listen_port: int | None = _of("haListenPort")

    # delayed messages
    message_delay_level: str = _of("messageDelayLevel")
    enable_schedule_message_stats: bool = _of("enableScheduleMessageStats")
    timer_wheel_enable: bool = _of("timerWheelEnable")
    timer_stop_enqueue: bool = _of("timerStopEnqueue")
    timer_stop_dequeue: bool = _of("timerStopDequeue")
    timer_precision_ms: int = _of("timerPrecisionMs")
    timer_roll_window_slot: int = _of("timerRollWindowSlot")
    timer_max_delay_sec: int = _of("timerMaxDelaySec")
    timer_flush_interval_ms: int = _of("timerFlushIntervalMs")
    timer_congest_num_each_slot: int = _of("timerCongestNumEachSlot")
    mapped_file_size_timer_log: int = _of("mappedFileSizeTimerLog")
