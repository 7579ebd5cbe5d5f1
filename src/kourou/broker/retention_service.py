"""RetentionService: lets a broker's old files go, and knows who has not read them yet.

Under disk pressure only what every live group has read may go before its age. A group is alive
while it has members, and for `unreadGroupReservedTime` after its offsets moved for the last time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kourou.broker.settings import retention_config
from kourou.broker.waiting_messages import waiting_phy_offset
from kourou.store.retention import Retention, RetentionRound

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_log = logging.getLogger(__name__)

_LOOK_AT_OFFSETS_S: Final = 60.0


class GroupActivity:
    """When each `topic@group` moved its offsets last. At the start of a broker all have just moved:
    what happened before is not known, and nothing is deleted on a guess."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self, offset_table: dict[str, dict[int, int]], now_ms: int) -> None:
        """Compare with the last look."""
        seen = {}
        for key, offsets in offset_table.items():
            total = sum(offsets.values())
            before = self._seen.get(key)
            seen[key] = before if before is not None and before[0] == total else (total, now_ms)
        self._seen = seen

    def last_moved_ms(self, key: str, now_ms: int) -> int:
        """When the offsets of `topic@group` moved; now, if nobody has looked yet."""
        return self._seen.get(key, (0, now_ms))[1]


class NextUnit:
    """The unit of a queue that a group reads next. Made by the store's owner."""

    __slots__ = ("_phy_offset", "_queue", "_queue_offset")

    def __init__(self, queue: ConsumeQueue | None, queue_offset: int) -> None:
        self._queue = None
        self._queue_offset = queue_offset
        self._phy_offset: int | None = None
        if queue is None:
            return
        self._queue_offset = max(queue_offset, queue.min_queue_offset)
        if self._queue_offset >= queue.flushed_queue_offset:
            self._phy_offset = _phy_offset(queue, self._queue_offset)
        else:
            self._queue = queue

    def phy_offset(self) -> int | None:
        """Where its message lies, None when all are read; in any thread, may wait for the disk."""
        return self._phy_offset if self._queue is None else _phy_offset(self._queue, self._queue_offset)


def _phy_offset(queue: ConsumeQueue, queue_offset: int) -> int | None:
    unit = queue.unit(queue_offset)
    return unit.phy_offset if unit is not None and unit.is_message else None


class RetentionService:
    """Runs retention every `cleanResourceInterval`."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._activity = GroupActivity()
        self._config = services.config
        self._retention = self._make()

    def _make(self) -> Retention:
        services = self._services
        config = retention_config(services.config)
        return Retention(services.store, services.files, config, self.unread_steps)

    def start(self) -> None:
        """Begin the rounds."""
        self._services.start_task(self._clean(), "clean-files")
        self._services.start_task(self._watch_groups(), "watch-groups")

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(self._services.config.clean_resource_interval / 1000)
            await self.run()

    async def run(self, *, manual: bool = False) -> RetentionRound | None:
        """One round; None when the disk does not let files go, which the next round tries again."""
        if self._config is not self._services.config:
            self._config, self._retention = self._services.config, self._make()
        async with self._services.store_work:
            try:
                steps = self._retention.steps(self._services.now_ms(), manual=manual)
                return await self._services.disk.run_steps(steps)
            except OSError as error:
                _log.error("old files cannot be deleted: %s", error)
                return None

    async def _watch_groups(self) -> None:
        while True:
            self._activity.look(self._services.offsets.offset_table, self._services.now_ms())
            await asyncio.sleep(_LOOK_AT_OFFSETS_S)

    def unread_steps(self) -> Steps[int | None]:
        """From which byte of the log on some live group has not read, or a message waits for its time;
        None when there is no group."""
        next_units = self._next_units()
        if not next_units:
            return None
        search = UnreadSearch(self._services.store.log.max_phy_offset, next_units)
        yield search.run
        waiting = waiting_phy_offset(self._services)
        return search.phy_offset if waiting is None else min(search.phy_offset, waiting)

    def _next_units(self) -> dict[tuple[str, int], NextUnit]:
        """Of each queue that a live group reads: the unit that the slowest of them reads next."""
        services = self._services
        slowest: dict[tuple[str, int], int] = {}
        for key, offsets in services.offsets.offset_table.items():
            topic, _, group = key.partition("@")
            if self._is_alive(key, group):
                for queue_id, queue_offset in offsets.items():
                    place = topic, queue_id
                    slowest[place] = min(queue_offset, slowest.get(place, queue_offset))
        queues = services.store.queues
        return {place: NextUnit(queues.find(*place), offset) for place, offset in slowest.items()}

    def _is_alive(self, key: str, group: str) -> bool:
        now_ms = self._services.now_ms()
        oldest_ms = now_ms - self._services.config.unread_group_reserved_time * 3_600_000
        has_members = self._services.consumers.get(group) is not None
        return has_members or self._activity.last_moved_ms(key, now_ms) >= oldest_ms
