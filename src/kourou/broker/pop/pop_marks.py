"""RevivePopMarks: where the records of pops end, for `consumerOffset.json`, and having them on disk before
it.

Without the record of a pop its messages are not delivered again: offsets that count it must not outlive it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kourou.protocol.names import TIMER_TOPIC

if TYPE_CHECKING:
    from kourou.broker.pop.in_flight import PopCounts
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.message_store import MessageStore
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.steps import Steps


class RevivePopMarks:
    """Of one broker, whose revive topic is `topic`."""

    def __init__(
        self, *, topic: str, store: MessageStore, log: CommitLog, queues: ConsumeQueues, counts: PopCounts
    ) -> None:
        self._topic = topic
        self._store = store
        self._log = log
        self._queues = queues
        self._counts = counts
        self._durable_count = 0

    def ends(self) -> dict[str, dict[int, int]]:
        """The ends of the timer topic and the revive queues; those that are not there are empty."""
        timers = self._queues.find(TIMER_TOPIC, 0)
        revive = (self._queues.get(self._topic, each) for each in self._queues.queue_ids(self._topic))
        return {
            TIMER_TOPIC: {0: 0 if timers is None else timers.max_queue_offset},
            self._topic: {queue.queue_id: queue.max_queue_offset for queue in revive},
        }

    def durable_steps(self) -> Steps[None]:
        """Have the records of all pops so far on disk, and what was revived: the progress of the revive
        queues counts it. OSError: they are not."""
        counts = self._counts
        count = counts.check_points + counts.revived + counts.dead_letters
        if count == self._durable_count:
            return
        log_end = self._log.max_phy_offset
        yield from self._store.flush_steps()
        if self._log.flushed_phy_offset < log_end:
            raise OSError(errno.EIO, "the records of pops are not on disk, so the offsets are not written")
        self._durable_count = count
