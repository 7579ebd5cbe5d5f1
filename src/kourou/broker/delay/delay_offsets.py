"""How far each delay level has been delivered, and `config/delayOffset.json`, which keeps it.

Beside Apache's fields the file notes how long the CommitLog was when it was written: deliveries
that the table does not count yet lie behind that point (deliveries.py). Apache passes over
the note, and leaves it out when it writes the file.
Not here: delivering (schedule_service.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.broker.tables.config_table import ConfigTable
from kourou.protocol.bodies import DataVersion
from kourou.protocol.bodies.offsets import DelayOffsetSerializeWrapper
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import NotedDelayOffsetTable, load_table
from kourou.store.disk.files import Files

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig


class DelayOffsetManager(ConfigTable):
    """Delay level, from 1 on, to the next queue offset to deliver.

    `noted_phy_offset`: up to there every delivery in the log is counted by what was loaded or dumped
    last; None if unknown.
    """

    def __init__(
        self,
        files: Files,
        root: Path,
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
        log_end: Callable[[], int],
    ) -> None:
        super().__init__(JsonConfigFile(files, root / "config" / "delayOffset.json"), now_ms)
        self._config = config
        self.log_end = log_end
        self._updates = 0
        self.table: dict[int, int] = {}
        self.noted_phy_offset: int | None = 0
        self.data_version = DataVersion()

    def load(self) -> None:
        stored = self._file.load_as(lambda raw: load_table(raw, NotedDelayOffsetTable))
        if stored is not None:
            self.table = dict(stored.offset_table)
            self.noted_phy_offset = stored.log_phy_offset
            self.data_version = stored.data_version or self.data_version

    def snapshot(self) -> NotedDelayOffsetTable:
        if not self._config().is_slave:
            self.noted_phy_offset = self.log_end()
        return NotedDelayOffsetTable(dict(self.table), self.data_version, self.noted_phy_offset)

    def follow(self, wrapper: DelayOffsetSerializeWrapper, noted_phy_offset: int | None) -> None:
        """Take over a master's progress, which counts the deliveries in its log up to `noted_phy_offset`;
        this log has them too."""
        if (wrapper.offset_table, noted_phy_offset) != (self.table, self.noted_phy_offset):
            self.table, self.noted_phy_offset = dict(wrapper.offset_table), noted_phy_offset
            self.is_dirty = True
        self.data_version = wrapper.data_version or self.data_version

    def store(self, raw: bytes) -> None:
        """Write what `dump` gave; on disk on return. In any thread."""
        self._file.store(raw)

    def advance(self, level: int, queue_offset: int) -> None:
        """What lies below `queue_offset` is delivered, and in the log."""
        self.table[level] = queue_offset
        self.is_dirty = True
        self._updates += 1
        if self._updates % max(1, self._config().delay_offset_update_version_step) == 0:
            self._next_version()
