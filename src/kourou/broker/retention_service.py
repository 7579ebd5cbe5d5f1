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
        return Retention(services.store, services.files, config, self.unread_phy_offset)

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
                return self._retention.run(self._services.now_ms(), manual=manual)
            except OSError as error:
                _log.error("old files cannot be deleted: %s", error)
                return None

    async def _watch_groups(self) -> None:
        while True:
            self._activity.look(self._services.offsets.offset_table, self._services.now_ms())
            await asyncio.sleep(_LOOK_AT_OFFSETS_S)

    def unread_phy_offset(self) -> int | None:
        """From which byte of the log on some live group has not read, or a message waits for its time;
        None when there is no group."""
        services = self._services
        now_ms = services.now_ms()
        oldest_ms = now_ms - services.config.unread_group_reserved_time * 3_600_000
        unread: int | None = None
        for key, offsets in services.offsets.offset_table.items():
            topic, _, group = key.partition("@")
            is_alive = services.consumers.get(group) is not None
            if is_alive or self._activity.last_moved_ms(key, now_ms) >= oldest_ms:
                for queue_id, queue_offset in offsets.items():
                    phy_offset = self._phy_offset(topic, queue_id, queue_offset)
                    unread = phy_offset if unread is None else min(unread, phy_offset)
        waiting = None if unread is None else waiting_phy_offset(services)
        return unread if unread is None or waiting is None else min(unread, waiting)

    def _phy_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where the message lies that a group reads next; the end of the log when it has read all."""
        queue = self._services.store.queues.find(topic, queue_id)
        end = self._services.store.log.max_phy_offset
        if queue is None:
            return end
        unit = queue.unit(max(queue_offset, queue.min_queue_offset))
        return unit.phy_offset if unit is not None and unit.is_message else end
