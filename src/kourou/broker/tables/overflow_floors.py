"""OverflowFloors: below which messages of its queues a group gets none, kept in `overflowFloors.json`.

An overflow policy moves a floor instead of deleting: the records stay in the log until retention, and other
groups read them. A pull below the floor is answered with PULL_OFFSET_MOVED and the floor, and the group
counts as having consumed up to there. Floors outlive the policy, as committed offsets do; a reset by an
administrator takes a floor back.

A move counts when it is on disk: `moved_steps` writes the file first and changes the table then. So what was
dropped is dropped and counted after a kill too, or neither. One writer at a time: `writing` is held.
Not here: how far a floor is to be moved (broker/overflow/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kourou.broker.tables.config_table import ConfigTable, queue_words
from kourou.protocol.bodies import GroupFloors
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import OverflowFloorTable, dump_table, load_table
from kourou.store.steps import Steps

_log = logging.getLogger(__name__)

_NO_FLOORS: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True)
class FloorMove:
    """A group's floors in one topic are to be at least `floors`, by queue id; so many messages of its backlog
    are below them now."""

    topic: str
    group: str
    floors: Mapping[int, int]
    dropped: int = 0
    dead_lettered: int = 0


class OverflowFloors(ConfigTable):
    """Floors and counts by `topic@group`. `table` is empty where no policy has ever dropped anything."""

    def __init__(self, file: JsonConfigFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file, now_ms)
        self.table: dict[str, GroupFloors] = {}
        self.writing = asyncio.Lock()
        self._removals = 0
        # Called when the table has changed and is to be written.
        self.on_change: Callable[[], None] = _nothing

    def load(self) -> None:
        stored = self._file.load_as(lambda raw: load_table(raw, OverflowFloorTable))
        if stored is not None:
            self.table = dict(stored.floor_table)

    def snapshot(self) -> OverflowFloorTable:
        return OverflowFloorTable(dict(self.table))

    # -- reading ---------------------------------------------------------------------------------

    def floor(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group begins at the earliest; 0 where nothing was dropped."""
        if not self.table:
            return 0
        entry = self.table.get(f"{topic}@{group}")
        return 0 if entry is None else entry.floors.get(queue_id, 0)

    def floors_of(self, key: str) -> Mapping[int, int]:
        """All of one `topic@group`, by queue id."""
        entry = self.table.get(key)
        return _NO_FLOORS if entry is None else entry.floors

    # -- moving ----------------------------------------------------------------------------------

    def moved_steps(self, move: FloorMove) -> Steps[bool]:
        """Move floors up, never down; on disk and in force on return. False: floors were removed or taken
        back meanwhile, and nothing was moved. OSError: nothing was moved."""
        key = f"{move.topic}@{move.group}"
        moved = _moved(self.table.get(key), move)
        snapshot, removals = OverflowFloorTable({**self.table, key: moved}), self._removals
        self.is_dirty = False
        try:
            yield lambda: self._file.store(dump_table(snapshot))
        except BaseException:
            self.is_dirty = True
            raise
        if removals != self._removals:
            self._changed()
            return False
        self.table[key] = moved
        return True

    def take_back(self, topic: str, group: str, queue_id: int, queue_offset: int) -> None:
        """An administrator has set the group's offset: what lies from there on it gets again."""
        self._removals += 1
        key = f"{topic}@{group}"
        entry = self.table.get(key)
        if entry is None or entry.floors.get(queue_id, 0) <= queue_offset:
            return
        _log.info(
            "floor of %s/%d taken back from %d to %d", key, queue_id, entry.floors[queue_id], queue_offset
        )
        self.table[key] = msgspec.structs.replace(entry, floors={**entry.floors, queue_id: queue_offset})
        self._changed()

    def cut(self, queue_end: Callable[[str, int], int]) -> None:
        """Take floors back that lie beyond the end of their queue: the next messages would be skipped."""
        for key, entry in list(self.table.items()):
            topic = key.partition("@")[0]
            cut = {
                queue_id: min(floor, queue_end(topic, queue_id)) for queue_id, floor in entry.floors.items()
            }
            if cut != entry.floors:
                _log.warning(
                    "floors of %s are beyond the ends of its queues, set to %s", key, queue_words(cut)
                )
                self.table[key] = msgspec.structs.replace(entry, floors=cut)
                self._changed()

    def follow(self, table: Mapping[str, GroupFloors]) -> None:
        """Take over a master's floors."""
        self._removals += 1
        if table != self.table:
            self.table = dict(table)
            self._changed()

    # -- topics and groups -----------------------------------------------------------------------

    def remove_topic(self, topic: str) -> None:
        """Forget all floors of a topic."""
        self._remove(lambda key: key.partition("@")[0] == topic)

    def remove_group(self, group: str) -> None:
        """Forget all floors of a group."""
        self._remove(lambda key: key.partition("@")[2] == group)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget the floors of a queue, which starts over at 0."""
        self._removals += 1
        for key, entry in list(self.table.items()):
            if key.partition("@")[0] == topic and queue_id in entry.floors:
                floors = {each: floor for each, floor in entry.floors.items() if each != queue_id}
                self.table[key] = msgspec.structs.replace(entry, floors=floors)
                self._changed()

    def _remove(self, is_gone: Callable[[str], bool]) -> None:
        self._removals += 1
        for key in [key for key in self.table if is_gone(key)]:
            _log.info("floors of %s removed: %s", key, queue_words(self.table.pop(key).floors))
            self._changed()

    def _changed(self) -> None:
        self.is_dirty = True
        self.on_change()


def _moved(entry: GroupFloors | None, move: FloorMove) -> GroupFloors:
    entry = entry or GroupFloors()
    floors = dict(entry.floors)
    for queue_id, floor in move.floors.items():
        floors[queue_id] = max(floor, floors.get(queue_id, 0))
    return GroupFloors(floors, entry.dropped + move.dropped, entry.dead_lettered + move.dead_lettered)


def _nothing() -> None:
    return None
