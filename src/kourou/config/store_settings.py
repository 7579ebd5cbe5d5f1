"""The keys of a broker's store and of delayed messages: each is declared here and nowhere else.

The form is that of broker_settings.py. What the values mean on disk is described in `store/`.
Not here: keys without effect (store_without_effect.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.checks import delay_levels, hours, paths
from kourou.config.keys import BOOL, ENUM, INT, LONG, STRING, setting

_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_delays = partial(setting, "Delays")
_files = partial(setting, "Store: folders and files", live=False)
_flushing = partial(setting, "Store: flushing")
_retention = partial(setting, "Store: retention")


# The methods are generated once, for BrokerConfig: there are many fields, and a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StoreSettings:
    """What a broker's store can be configured with."""

    message_delay_level: str = _delays(
        "messageDelayLevel",
        STRING,
        _DELAY_LEVELS,
        "The delays of levels 1, 2, 3 …; retries use them from the third on.",
        live=False,
        check=delay_levels,
    )
    flush_delay_offset_interval: int = _delays(
        "flushDelayOffsetInterval",
        LONG,
        10_000,
        "How often the progress of the levels is written to disk, in ms; a crash causes no second delivery.",
        low=1,
    )
    delay_offset_update_version_step: int = _delays(
        "delayOffsetUpdateVersionStep",
        LONG,
        200,
        "The version of that progress is incremented after so many steps.",
    )
    enable_schedule_message_stats: bool = _delays(
        "enableScheduleMessageStats", BOOL, True, "Include deliveries of the levels in the statistics."
    )
    timer_wheel_enable: bool = _delays(
        "timerWheelEnable",
        BOOL,
        True,
        "Allow messages with a delivery time of their own (`delay_time_ms`).",
        live=False,
    )
    timer_max_delay_sec: int = _delays(
        "timerMaxDelaySec", INT, 259_200, "How far ahead that time may lie, in seconds.", low=1
    )
    timer_precision_ms: int = _delays(
        "timerPrecisionMs",
        INT,
        1_000,
        "Precision of timers: 100, 200, 500 or 1000 ms; other values are rounded down to one of these.",
        low=100,
        high=1_000,
        live=False,
    )
    timer_roll_window_slot: int = _delays(
        "timerRollWindowSlot",
        INT,
        172_800,
        "A message more than so many steps ahead is stored again on the way.",
        low=2,
        high=604_740,
        live=False,
    )
    timer_congest_num_each_slot: int = _delays(
        "timerCongestNumEachSlot", INT, 2_147_483_647, "Maximum number of messages due in one step.", low=1
    )
    timer_stop_enqueue: bool = _delays(
        "timerStopEnqueue", BOOL, False, "Stop adding timer messages to the wheel."
    )
    timer_stop_dequeue: bool = _delays("timerStopDequeue", BOOL, False, "Stop delivering timer messages.")
    timer_flush_interval_ms: int = _delays(
        "timerFlushIntervalMs",
        INT,
        1_000,
        "How often the wheel is written to disk, in ms; a crash loses no timer.",
        low=1,
    )
    mapped_file_size_timer_log: int = _delays(
        "mappedFileSizeTimerLog",
        INT,
        104_857_600,
        "Size of a file of the timer log, in bytes.",
        low=1024,
        live=False,
    )

    store_path_root_dir: str | None = _files(
        "storePathRootDir",
        STRING,
        None,
        "The folder of the store; `store` in the home folder if not set.",
        important=True,
        protected=True,
    )
    store_path_commit_log: str | None = _files(
        "storePathCommitLog",
        STRING,
        None,
        "The folder of the CommitLog if it is elsewhere; several, on several disks, are separated by commas.",
        important=True,
        protected=True,
        check=paths,
    )
    read_only_commit_log_store_paths: str | None = _files(
        "readOnlyCommitLogStorePaths",
        STRING,
        None,
        "Those of these folders that are only read.",
        protected=True,
        check=paths,
    )
    # A record with the longest properties takes half of the smallest file.
    mapped_file_size_commit_log: int = _files(
        "mappedFileSizeCommitLog",
        INT,
        1_073_741_824,
        "Size of a file of the CommitLog, in bytes. An existing store keeps its file sizes.",
        old_names=("mapedFileSizeCommitLog",),
        low=65_536,
    )
    # In bytes, although some documents write 300000 and mean messages.
    mapped_file_size_consume_queue: int = _files(
        "mappedFileSizeConsumeQueue",
        INT,
        6_000_000,
        "Size of a file of a ConsumeQueue, in bytes: 20 for each message.",
        old_names=("mapedFileSizeConsumeQueue",),
        low=1,
    )
    max_hash_slot_num: int = _files("maxHashSlotNum", INT, 5_000_000, "Hash slots of an index file.", low=1)
    max_index_num: int = _files("maxIndexNum", INT, 20_000_000, "Entries of an index file.", low=2)
    message_index_enable: bool = _files(
        "messageIndexEnable", BOOL, True, "Index messages, so that they are found by key and id."
    )

    flush_disk_type: str = _flushing(
        "flushDiskType",
        ENUM,
        "ASYNC_FLUSH",
        "`SYNC_FLUSH` acknowledges a message once it is on disk, `ASYNC_FLUSH` once it is in the page cache "
        "([behavior.md](behavior.md)).",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
        important=True,
    )
    sync_flush_timeout: int = _flushing(
        "syncFlushTimeout",
        INT,
        5_000,
        "How long a send waits for the disk, in ms, before it is answered with FLUSH_DISK_TIMEOUT.",
        low=1,
    )
    flush_interval_commit_log: int = _flushing(
        "flushIntervalCommitLog", INT, 500, "How often the log is flushed under ASYNC_FLUSH, in ms.", low=1
    )
    flush_interval_consume_queue: int = _flushing(
        "flushIntervalConsumeQueue",
        INT,
        1_000,
        "How often the queues are flushed, in ms. They can be rebuilt.",
        low=1,
    )
    flush_consume_queue_thorough_interval: int = _flushing(
        "flushConsumeQueueThoroughInterval",
        INT,
        60_000,
        "How often all queues and the checkpoint are flushed, in ms.",
        low=1,
    )
    check_crc_on_recover: bool = _flushing(
        "checkCRCOnRecover",
        BOOL,
        True,
        "Verify the checksums of message bodies during recovery.",
        live=False,
    )

    file_reserved_time: int = _retention(
        "fileReservedTime",
        INT,
        72,
        "How many hours a file is kept after its last write.",
        low=0,
        important=True,
    )
    delete_when: str = _retention(
        "deleteWhen",
        STRING,
        "04",
        "The hours of the day, in local time and separated by `;`, at which expired files are deleted.",
        important=True,
        check=hours,
    )
    # Apache clamps the ratio without a note.
    disk_max_used_space_ratio: int = _retention(
        "diskMaxUsedSpaceRatio",
        INT,
        75,
        "Above this percentage of the disk, expired files are deleted at any time; clamped to 10 … 95.",
        low=10,
        high=95,
        clamped=True,
    )
    disk_space_clean_forcibly_ratio: int = _retention(
        "diskSpaceCleanForciblyRatio",
        INT,
        85,
        "Above this, files are deleted before they expire.",
        low=1,
        high=100,
    )
    clean_file_forcibly_enable: bool = _retention(
        "cleanFileForciblyEnable", BOOL, True, "Allow files to be deleted before they expire."
    )
    disk_space_warning_level_ratio: int = _retention(
        "diskSpaceWarningLevelRatio",
        INT,
        90,
        "Above this, writes are rejected until there is room; reads continue.",
        low=1,
        high=100,
    )
    clean_resource_interval: int = _retention(
        "cleanResourceInterval", INT, 10_000, "How often these limits are checked, in ms.", low=10
    )
    delete_file_batch_max: int = _retention(
        "deleteFileBatchMax", INT, 10, "Maximum number of files deleted in one round.", low=1
    )
