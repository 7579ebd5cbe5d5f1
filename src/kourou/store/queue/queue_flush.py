"""FlushRound: carries the tails of ConsumeQueues to their files.

A round covers the queues that had units in memory when it began. It comes in batches so that
the owner of the queues is held up for a moment only: the owner copies some tails (`next_batch`),
any thread writes them (`FlushBatch.write`), the owner lets go of what was written (`finish`).
When the round is complete, every unit that was there at its start is in the page cache, and
with `sync` on disk. Not here: how often, and the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT_BYTES
from kourou.store.queue.queue_files import QueueFiles
from kourou.store.steps import Steps, run_steps

_Job = tuple[ConsumeQueue, int, int, bytes]  # queue, epoch, queue_offset, units


class FlushBatch:
    """Some copied tails. `written` counts those that are in the page cache."""

    __slots__ = ("jobs", "written")

    def __init__(self, jobs: list[_Job]) -> None:
        self.jobs = jobs
        self.written = 0

    def write(self) -> None:
        """Write them; an OSError leaves `written` at those before it."""
        for queue, epoch, queue_offset, raw in self.jobs:
            queue.write_units(epoch, queue_offset, raw)
            self.written += 1


class FlushRound:
    """One round. `queue_count` and `unit_count` say what it has written so far."""

    def __init__(
        self,
        files: QueueFiles,
        queues: Iterable[ConsumeQueue],
        mark_dirty: Callable[[ConsumeQueue], None],
        least_bytes: int,
    ) -> None:
        self._files = files
        self._left = list(queues)
        self._mark_dirty = mark_dirty
        self._least_bytes = max(1, least_bytes)
        self._under_way: FlushBatch | None = None
        self.queue_count = 0
        self.unit_count = 0
        self.is_complete = False

    def next_batch(self, max_queues: int = 1000) -> FlushBatch | None:
        """Copy the next tails; None when there are no more. Tails below the least stay for later."""
        assert self._under_way is None, "the batch before is not finished"
        while self._left:
            some, self._left = self._left[:max_queues], self._left[max_queues:]
            jobs = [(queue, *queue.unflushed()) for queue in some if self._is_due(queue)]
            if jobs:
                self._under_way = FlushBatch(jobs)
                return self._under_way
        self.is_complete = True
        return None

    def _is_due(self, queue: ConsumeQueue) -> bool:
        if queue.unflushed_bytes >= self._least_bytes:
            return True
        if queue.unflushed_bytes:
            self._mark_dirty(queue)
        return False

    def finish(self, batch: FlushBatch) -> None:
        """Let go of what `batch` has written."""
        assert batch is self._under_way
        self._under_way = None
        for index, (queue, epoch, queue_offset, raw) in enumerate(batch.jobs):
            if index < batch.written:
                units = len(raw) // UNIT_BYTES
                queue.mark_flushed(epoch, queue_offset + units)
                self.queue_count += 1
                self.unit_count += units
            if queue.unflushed_bytes:
                self._mark_dirty(queue)

    def abandon(self) -> None:
        """Give up: what is not written stays in memory for another round."""
        if self._under_way is not None:
            self.finish(self._under_way)
        for queue in self._left:
            self._mark_dirty(queue)
        self._left = []

    def run(self) -> None:
        """All of it here and now. After an OSError nothing is lost from memory."""
        run_steps(self.steps())

    def steps(self) -> Steps[None]:
        """All of it in steps."""
        try:
            while (batch := self.next_batch()) is not None:
                yield batch.write
                self.finish(batch)
        except BaseException:
            self.abandon()
            raise

    def sync(self) -> None:
        """Everything written in this round and before is on disk on return. In any thread."""
        self._files.sync()
