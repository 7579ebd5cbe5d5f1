"""LiveGroups: the groups whose backlog counts, for retention and for overflow policies.

A group is live in a topic that it has offsets of, while it has members, and for `unreadGroupReservedTime`
after its offsets of the topic moved for the last time. At the start of a broker all have just moved: what
happened before is not known, and nothing is deleted on a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.offsets import ConsumerOffsetManager

_MS_PER_HOUR: Final = 3_600_000


class LiveGroups:
    """The live groups of one broker; times are monotonic."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._offsets = offsets
        self._consumers = consumers
        self._monotonic_ms = monotonic_ms
        # What the offsets of `topic@group` added up to, and since when.
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self) -> None:
        """Compare the offsets with those of the last look. To be called every minute or so."""
        now_ms, seen = self._monotonic_ms(), {}
        for key, offsets in self._offsets.offset_table.items():
            total = sum(offsets.values())
            before = self._seen.get(key)
            seen[key] = before if before is not None and before[0] == total else (total, now_ms)
        self._seen = seen

    def is_live(self, topic: str, group: str) -> bool:
        """Whether what `group` has not consumed of `topic` counts."""
        if self._consumers.get(group) is not None:
            return True
        now_ms = self._monotonic_ms()
        oldest_ms = now_ms - self._config.current.unread_group_reserved_time * _MS_PER_HOUR
        return self._seen.get(f"{topic}@{group}", (0, now_ms))[1] >= oldest_ms

    def of_topic(self, topic: str) -> list[str]:
        """The live groups that have offsets of `topic`, by name."""
        return [group for group in sorted(self._offsets.groups_of(topic)) if self.is_live(topic, group)]
