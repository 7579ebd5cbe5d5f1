"""Flusher: group commit. One sync under way at most, in a thread of its own; each answers every
sender it covers.

The owner's thread holds all lists; the flusher's thread sees only files. What a job ended with
goes back to the owner through `post`, which on an event loop is `call_soon_threadsafe`.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from queue import SimpleQueue

from kourou.store.flush_job import FlushJob
from kourou.store.log.put_batch import PutBatch
from kourou.store.message_store import MessageStore

Post = Callable[[Callable[[], None]], object]


class AckLine:
    """Batches in log order, waiting for one mark (flushed, or replicated) to pass their end.

    Each batch comes out of `advance` or `fail` once, whether its time was over or not: it still has
    to be published in its turn.
    """

    __slots__ = ("_expired", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[PutBatch, int]] = deque()
        self._expired = 0  # so many of the first have come out of `expire`

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_late(self) -> bool:
        """Whether some have come out of `expire` and wait still."""
        return self._expired > 0

    @property
    def late_phy_offset(self) -> int:
        """The end of what has come out of `expire` and waits still; -1: nothing."""
        return self._waiting[self._expired - 1][0].end_phy_offset if self._expired else -1

    def hold(self, batch: PutBatch, deadline_ms: int) -> None:
        """Let `batch` wait; its senders do so until `deadline_ms`."""
        self._waiting.append((batch, deadline_ms))

    def advance(self, phy_offset: int) -> list[PutBatch]:
        """The batches that the mark has reached, in order."""
        reached = []
        while self._waiting and self._waiting[0][0].end_phy_offset <= phy_offset:
            reached.append(self._waiting.popleft()[0])
        self._expired = max(0, self._expired - len(reached))
        return reached

    def expire(self, now_ms: int) -> list[PutBatch]:
        """The batches whose time is over and was not before: their sends time out. They stay
        in line. Deadlines are in log order, as the commit cycle fixed them."""
        late = []
        for batch, deadline_ms in islice(self._waiting, self._expired, None):
            if deadline_ms > now_ms:
                break
            late.append(batch)
        self._expired += len(late)
        return late

    def fail(self) -> list[PutBatch]:
        """All that wait: the mark will never move again."""
        waiting = [batch for batch, _ in self._waiting]
        self._waiting.clear()
        self._expired = 0
        return waiting


class Flusher:
    """Makes a store durable on request. `on_flushed` gets the flushed offset, in the owner's thread; a
    failed sync fences the store first, and `on_flushed` is called, too."""

    def __init__(self, store: MessageStore, post: Post, on_flushed: Callable[[int], None]) -> None:
        self._store = store
        self._post = post
        self._on_flushed = on_flushed
        self._jobs: SimpleQueue[FlushJob | None] = SimpleQueue()
        self._busy = False
        self._is_wanted = False  # asked for while a sync was under way
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="commit-log-flusher", daemon=True)
        self._thread.start()

    def request_nowait(self) -> None:
        """Have everything written so far made durable; never waits. Requests while a sync is
        under way are served by the next one, all together. A fenced store is not synced again."""
        if self._busy:
            self._is_wanted = True
        elif not self._stopped and not self._store.appender.is_fenced:
            self._start()

    def stop(self) -> None:
        """Wait for the sync under way and end the thread; the owner still gets its result."""
        self._stopped = True
        self._jobs.put(None)
        self._thread.join()

    def _start(self) -> None:
        self._busy = True
        self._jobs.put(self._store.start_flush())

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.run()
            except Exception as error:  # our bug; senders wait, and nothing may count as durable
                job.error = OSError(errno.EIO, repr(error))
            self._post(partial(self._finished, job))

    def _finished(self, job: FlushJob) -> None:
        self._busy = False
        self._store.finish_flush(job)
        # The disk first, then the answers: the next sync runs while they are written. What nobody asked to be
        # made durable is left to the next one that is asked for.
        is_wanted, self._is_wanted = self._is_wanted, False
        if is_wanted and self._store.log.max_phy_offset > job.covers_phy_offset:
            self.request_nowait()
        self._on_flushed(self._store.log.flushed_phy_offset)
