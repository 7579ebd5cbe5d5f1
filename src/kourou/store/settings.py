"""Settings of a message store. Plain values; files are read in `config`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS


class FlushDiskType(enum.Enum):
    """When a send is answered: after the write, or after the write is on disk (`flushDiskType`)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig:
    """One store. Each default is RocketMQ's unless a comment says otherwise."""

    root: Path  # storePathRootDir
    commit_log_folders: tuple[Path, ...] = ()  # storePathCommitLog; empty: root/commitlog
    read_only_commit_log_folders: tuple[Path, ...] = ()  # readOnlyCommitLogStorePaths
    consume_queue_folder: Path | None = None  # storePathConsumeQueue
    index_folder: Path | None = None  # storePathIndex
    checkpoint_path: Path | None = None  # storeCheckpoint
    abort_path: Path | None = None  # abortFile

    commit_log_file_bytes: int = 1024 * 1024 * 1024  # mappedFileSizeCommitLog
    consume_queue_file_bytes: int = 300_000 * 20  # mappedFileSizeConsumeQueue
    index_slots: int = 5_000_000  # maxHashSlotNum
    index_entries: int = 20_000_000  # maxIndexNum
    index_enable: bool = True  # messageIndexEnable

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    max_message_bytes: int = 4 * 1024 * 1024  # maxMessageSize, of the body
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"  # brokerIP1 and listenPort as records keep them
    delay_levels: tuple[int, ...] = DEFAULT_DELAY_LEVELS  # messageDelayLevel, in ms
    check_crc_on_recover: bool = True  # checkCRCOnRecover

    # Only the newest part of the log is read through a map: a page that is not in memory would
    # stop the whole process there. Older data is read by calls that say so instead.
    read_window_bytes: int = 128 * 1024 * 1024
    # What one read may bring unless it is given other limits, such as those of Apache's for a pull.
    max_transfer_bytes: int = 4 * 1024 * 1024
    max_filter_units: int = 800  # maxFilterMessageSize 16000, in units of 20 bytes

    @property
    def log_folders(self) -> tuple[Path, ...]:
        """Where the files of the CommitLog are."""
        return self.commit_log_folders or (self.root / "commitlog",)

    @property
    def queue_folder(self) -> Path:
        return self.consume_queue_folder or self.root / "consumequeue"

    @property
    def config_folder(self) -> Path:
        """The folder of tables that change slowly."""
        return self.root / "config"

    @property
    def indexes(self) -> Path:
        """The folder of the IndexFiles."""
        return self.index_folder or self.root / "index"

    @property
    def checkpoint(self) -> Path:
        return self.checkpoint_path or self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        """The file that is there while the store is open, and after a crash."""
        return self.abort_path or self.root / "abort"
