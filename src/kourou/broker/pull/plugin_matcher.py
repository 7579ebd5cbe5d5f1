"""PluginMatcher: judges the records of one pull by a filter of the operator's, in batches.

The filter runs in a process of its own, so its verdicts come later: `decide` asks for those of the next units
of a queue, and the matcher then knows them. Not here: the process and its limits (filters/plugin_host.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.broker.storage.record_reads import read_records_at
from kourou.store.queue.cq_unit import UNIT, CqUnit

if TYPE_CHECKING:
    from kourou.broker.filters.plugin_host import PluginFilter, PluginHost
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_file import LogFile

BATCH_MESSAGES: Final = 256
_BATCH_BYTES: Final = 1024 * 1024


class PluginMatcher:
    """A record that is not decided ends a step of the read, as one on disk does for a RecordMatcher."""

    cold_file: LogFile | None = None
    """`decide` reads what is on disk."""

    def __init__(
        self, log: CommitLog, records: RecordReader, plugins: PluginHost, wanted: PluginFilter
    ) -> None:
        self._log = log
        self._records = records
        self._plugins = plugins
        self._wanted = wanted
        self._verdicts: dict[int, bool] = {}

    def __call__(self, phy_offset: int, size_bytes: int) -> bool | None:
        """Whether the record matches; None if it is not decided."""
        return self._verdicts.get(phy_offset)

    def renew(self) -> None:
        """Nothing: the records of a step are judged elsewhere."""

    def rest(self) -> None:
        """Forget the verdicts, while a pull waits."""
        self._verdicts = {}

    async def decide(self, units: bytes) -> None:
        """Have the first of these units judged, at most BATCH_MESSAGES of them. RequestError: the filter
        cannot be asked."""
        places = _batch(units)
        records = await read_records_at(self._log, self._records, places)
        # One that cannot be read is for no consumer.
        self._verdicts = dict.fromkeys((place.phy_offset for place in places), False)
        found = [
            (place.phy_offset, raw) for place, raw in zip(places, records, strict=True) if raw is not None
        ]
        verdicts = await self._plugins.judge(self._wanted, [bytes(raw) for _, raw in found])
        self._verdicts.update(zip((phy_offset for phy_offset, _ in found), verdicts, strict=True))


def _batch(units: bytes) -> list[CqUnit]:
    places: list[CqUnit] = []
    size_bytes = 0
    for fields in UNIT.iter_unpack(units):
        place = CqUnit(*fields)
        size_bytes += max(0, place.size)
        if places and (size_bytes > _BATCH_BYTES or len(places) == BATCH_MESSAGES):
            break
        places.append(place)
    return places
