"""OrderTable: `consumerOrderInfo.json`, which keeps what orderly POP has handed out.

Beside Apache's fields the file notes how far it counts the journal (order_journal.py): what was popped and
acknowledged since is found behind that point. Apache skips the note, and leaves it out when it writes the
file: the journal is then older than the file.
Consumer offsets are written first, so that those on disk are at least as new as the note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kourou.broker.pop.order_info import OrderedPop, OrderedPops, OrderKey, stored_table
from kourou.broker.tables.config_table import ConfigTable
from kourou.store.config_tables import NotedConsumerOrderInfoTable, load_table
from kourou.store.steps import Steps, no_steps

if TYPE_CHECKING:
    from kourou.store.config_file import JsonConfigFile


class JournalPlace(NamedTuple):
    """The record of the journal to be read next. `phy_offset`: where the one before it lies, -1 if there is
    none; a log that was cut and continued has another one there."""

    queue_offset: int
    phy_offset: int = -1


class OrderTable(ConfigTable):
    """The entries, and the file. `place`: they count the journal up to there; None if unknown."""

    def __init__(self, file: JsonConfigFile, now_ms: Callable[[], int], offsets: ConfigTable) -> None:
        super().__init__(file, now_ms)
        self._offsets = offsets
        self.pops = OrderedPops()
        self.place: JournalPlace | None = JournalPlace(0)

    def load(self) -> None:
        stored = self._file.load_as(lambda raw: load_table(raw, NotedConsumerOrderInfoTable))
        if stored is None:
            return
        self.pops.load(stored.table)
        offset = stored.journal_offset
        self.place = None if offset is None else JournalPlace(offset, stored.journal_phy_offset)

    def snapshot(self) -> NotedConsumerOrderInfoTable:
        return self._frozen()()

    def _frozen(self) -> Callable[[], NotedConsumerOrderInfoTable]:
        return partial(_table_of, self.pops.entries(), self.place)

    def _steps_before(self) -> Steps[None]:
        return self._offsets.persist_steps() if self._offsets.is_dirty else no_steps(None)


def _table_of(
    entries: Mapping[OrderKey, OrderedPop], place: JournalPlace | None
) -> NotedConsumerOrderInfoTable:
    table = stored_table(entries)
    if place is None:
        return NotedConsumerOrderInfoTable(table)
    return NotedConsumerOrderInfoTable(
        table, journal_offset=place.queue_offset, journal_phy_offset=place.phy_offset
    )
