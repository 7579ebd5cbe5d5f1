"""PullNotes: counts the pulls that the fast path has answered, several at a time.

The compiled kernel notes each answered pull in a row (PULL_NOTE) of its target. Counting one pull by itself
would take longer than answering it. Rows are counted together once enough are waiting, and before anything is
read that depends on them: statistics (`BrokerStatsManager.settle`), metrics, and how far groups have been
given messages (`ConsumerOffsetManager.settle_pulls`). So figures are exact, but for answers of the thread for
old messages (cold_answers.py), which are noted some milliseconds after they were sent.
Not here: offsets that pulls commit, which are recorded at once (fast_pull_path.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.protocol.layout import PULL_NOTE

if TYPE_CHECKING:
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.tables.offsets import ConsumerOffsetManager

_rows = PULL_NOTE.struct().iter_unpack
# So much waits at most: a few runs, and below a millisecond to count them.
_MAX_WAITING: Final = 512


class KnownPull(NamedTuple):
    """A group that may pull from a topic. The compiled kernel reads the fields by position.

    `slow_broker_id`: the broker to ask for messages that are no longer in memory here. `codes`: of the wanted
    tags; None: all messages are wanted. `notes`: its answered pulls that are not counted yet.
    """

    group: str
    topic: str
    queue_nums: int
    topic_sys_flag: int
    broker_id: int
    slow_broker_id: int
    codes: tuple[int, ...] | None
    notes: bytearray


class PullNotes:
    """The notes of one broker. Owned by the loop's thread."""

    def __init__(self, stats: BrokerStatsManager, offsets: ConsumerOffsetManager) -> None:
        self._stats = stats
        self._offsets = offsets
        self._waiting = 0
        # Of each run: how many pulls it had, and how long it took.
        self._runs: list[tuple[int, float]] = []
        # Those that have notes: the kernel adds each when it gets its first.
        self.noted: list[KnownPull] = []
        # Called for each run with its number of pulls, and how long it took; and for each pull with the age
        # of its first message in ms, and its number of messages.
        self.on_answered: Callable[[int, float], None] = _ignore
        self.on_delivered: Callable[[int, int], None] = _ignore
        stats.settlers.append(self.settle)
        offsets.settle_pulls = self.settle

    def answered(self, pulls: int, elapsed_s: float) -> None:
        """The pulls of a run are answered and noted."""
        self._runs.append((pulls, elapsed_s))
        self._waiting += pulls
        if self._waiting >= _MAX_WAITING:
            self.settle()

    def add(self, known: KnownPull, row: bytes) -> None:
        """Note a pull that the kernel has not noted, in a row of its own."""
        if not known.notes:
            self.noted.append(known)
        known.notes.extend(row)

    def settle(self) -> None:
        """Count the pulls that wait."""
        if not self.noted:
            return
        # The kernel has this list: it stays the same.
        noted = self.noted[:]
        self.noted.clear()
        runs, self._runs = self._runs, []
        self._waiting = 0
        for known in noted:
            self._count(known)
        for pulls, elapsed_s in runs:
            self.on_answered(pulls, elapsed_s)

    def _count(self, known: KnownPull) -> None:
        rows = bytes(known.notes)
        known.notes.clear()
        times = messages = size_bytes = 0
        next_offsets: dict[int, int] = {}
        for queue_id, count, record_bytes, next_queue_offset, store_timestamp, answered_ms in _rows(rows):
            times += 1
            messages += count
            size_bytes += record_bytes
            next_offsets[queue_id] = next_queue_offset
            self.on_delivered(answered_ms - store_timestamp, count)
        self._offsets.record_pulls(known.group, known.topic, next_offsets)
        self._stats.pulled(known.group, known.topic, messages, size_bytes, times)


def _ignore(_: int, __: float) -> None:
    return None
