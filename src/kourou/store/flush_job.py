"""FlushJob: one round of making the log durable, with the waiting taken out of the owner's thread."""

from __future__ import annotations

from collections.abc import Sequence

from kourou.store.log.log_file import LogFile


class FlushJob:
    """Made by the owner (`start_flush`), run anywhere, taken back by the owner (`finish_flush`).

    Its files stay open in between, also if one of them is deleted.
    """

    __slots__ = ("covers_phy_offset", "error", "log_files", "loss", "store_timestamp")

    def __init__(self, log_files: Sequence[LogFile], covers_phy_offset: int, store_timestamp: int) -> None:
        self.log_files = log_files
        self.covers_phy_offset = covers_phy_offset
        self.store_timestamp = store_timestamp
        self.error: OSError | None = None
        self.loss: str | None = None
        for log_file in log_files:
            log_file.pin()

    def run(self) -> None:
        """Sync the files. On return without `error` and `loss` all bytes below `covers_phy_offset` are on
        disk, in files that were neither removed nor cut short so far."""
        try:
            for log_file in self.log_files:
                log_file.file.sync()
                self.loss = self.loss or log_file.find_loss()
        except OSError as error:
            self.error = error

    def release(self) -> None:
        """Let go of the files; in the owner's thread."""
        for log_file in self.log_files:
            log_file.unpin()
        self.log_files = ()
