"""CommitCycle: the one place that orders write, flush, publish, wake and answer.

A commit cycle gathers what one loop iteration brings (transport/cycles.py). At its end there is one
write for all of it; then, under ASYNC_FLUSH, the messages are visible to readers and
acknowledged to senders. Under SYNC_FLUSH both wait for the sync that covers them: readers see only
what cannot vanish. On a master that waits for slaves (broker/replication) both then wait for those, too.
A master of a fail-over set whose reign has ended acknowledges nothing that it has not acknowledged before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kourou.clock import monotonic_ms
from kourou.store.flusher import AckLine, Flusher
from kourou.store.kernel import EncodedSends
from kourou.store.log.put_batch import PutBatch, PutFailedError
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore

_log = logging.getLogger(__name__)

MAX_CYCLE_BYTES: Final = 1024 * 1024
"""A cycle is written early when it has grown to this: one answer must not wait for everybody's bytes."""


class Replicas(Protocol):
    """What a commit cycle needs to know of slaves."""

    def is_enough(self, end_phy_offset: int) -> bool:
        """Whether as many slaves are in sync as have to acknowledge."""
        ...

    def is_worth_waiting(self, end_phy_offset: int) -> bool:
        """Whether a sender is to wait for slaves at all."""
        ...

    def mark(self, end_phy_offset: int) -> int:
        """How far enough slaves are."""
        ...


class FastSends(Protocol):
    """The sends that the compiled kernel encodes when the commit cycle ends (send/fast_send_path.py)."""

    def put(self, *, is_alone: bool = False) -> EncodedSends | None:
        """Leave them pending, as all other messages of the commit cycle; or return them as a run, if that may
        be alone in it."""
        ...

    def answer(
        self, answered: Sequence[tuple[Any, bytes]], messages: int, cycle_ms: int, status: PutStatus, /
    ) -> None:
        """Answer the senders of a run; never raises."""
        ...


class CommitCycle:
    """Ends the cycles of one broker. Whether they wait for the flush, and how long, may be changed."""

    def __init__(
        self,
        store: MessageStore,
        *,
        sync_flush_timeout_ms: int,
        waits_for_flush: bool,
        count_failed: Callable[[int], None] = lambda _: None,
        monotonic_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._store = store
        self.begin = store.begin_cycle
        """Fix the time of the commit cycle."""
        self.sync_flush_timeout_ms = sync_flush_timeout_ms
        self.waits_for_flush = waits_for_flush
        self._count_failed = count_failed
        self._monotonic_ms = monotonic_ms
        self._flushing = AckLine()
        self._replicating = AckLine()
        # The slaves that senders wait for; None: they wait for none.
        self.replicas: Replicas | None = None
        self.slave_timeout_ms = 3_000
        # Whether this broker may acknowledge; None: always (replication/reign.py).
        self.may_acknowledge: Callable[[], bool] | None = None
        self._flusher: Flusher | None = None
        self.waiting_bytes = 0
        self.waiting_messages = 0
        self.written_messages = 0
        # Called once, before the open commit cycle is written: they put what was collected for it. Each adds
        # itself when it collects the first of that, also while others are called.
        self.before_write: list[Callable[[], None]] = []
        # The sends that were collected for the open commit cycle, if any were; like `before_write`, but what
        # is alone in its commit cycle takes fewer steps.
        self.fast_sends: FastSends | None = None
        # Called after the log has grown.
        self.after_write: list[Callable[[], None]] = []
        # What the last write failed of; None: it did not.
        self.write_problem: str | None = None

    def attach(self, flusher: Flusher) -> None:
        """Whom to ask for a sync; its result comes to `flushed`."""
        self._flusher = flusher

    def end(self) -> None:
        """Write what the commit cycle has gathered, and do what follows from that."""
        before_write, sends = self.before_write, self.fast_sends
        if sends is not None:
            self.fast_sends = None
            is_alone = not (
                before_write
                or self.waits_for_flush
                or self.waiting_messages
                or self.replicas is not None
                or self.may_acknowledge is not None
            )
            run = sends.put(is_alone=is_alone)
            if run is not None:
                self._end_run(sends, run)
                return
        while before_write:
            before_write.pop(0)()
        try:
            batch = self._store.write_cycle()
        except PutFailedError as failed:
            self._fail(failed)
            return
        if batch is None:
            return
        self.written_messages += batch.message_count
        self._written()
        # While older ones wait, newer ones do too: readers see messages in the order of the log.
        if not (self.waits_for_flush or self.waiting_messages or self.replicas is not None):
            self._confirm(batch)
        elif self.waits_for_flush or self._flushing:
            self._wait(batch)
            self._flushing.hold(batch, self._monotonic_ms() + self.sync_flush_timeout_ms)
            assert self._flusher is not None
            self._flusher.request_nowait()
        else:
            self._wait(batch)
            self._replicate(batch)

    def _end_run(self, sends: FastSends, run: EncodedSends) -> None:
        """End a commit cycle that is one run of sends, for which nothing waits: `end` in fewer steps."""
        _, messages, records, hashed_keys, answers, grown, _ = run
        store = self._store
        cycle_ms = store.cycle_ms
        try:
            end_phy_offset = store.write_run(messages, records, hashed_keys, grown)
        except PutFailedError as failed:
            self._fail(failed)
            sends.answer(answers, messages, cycle_ms, failed.status)
            return
        self.written_messages += messages
        if self.after_write or self.write_problem is not None:
            self._written()
        store.publish_run(grown, hashed_keys, messages, end_phy_offset, cycle_ms)
        sends.answer(answers, messages, cycle_ms, PutStatus.PUT_OK)

    def _fail(self, failed: PutFailedError) -> None:
        self.write_problem = str(failed)
        self._count_failed(failed.batch.message_count)
        failed.batch.answer(failed.status)

    def _written(self) -> None:
        self.write_problem = None
        for grown in tuple(self.after_write):  # a slave that is gone may leave it
            grown()

    def _wait(self, batch: PutBatch) -> None:
        batch.answer_unwaited(PutStatus.PUT_OK)
        self.waiting_bytes += batch.size_bytes
        self.waiting_messages += batch.message_count

    def flushed(self, phy_offset: int) -> None:
        """The log is durable up to here. To be called inside a commit cycle: answers leave at its end."""
        for batch in self._flushing.advance(phy_offset):
            if self.replicas is None and not self._replicating:
                self._release(batch)
            else:
                self._replicate(batch)
        if self._store.is_fenced:
            self.give_up()

    def expire(self, now_ms: int) -> None:
        """Answer senders whose sync takes too long; their messages are stored all the same. `now_ms` of the
        monotonic clock."""
        for batch in self._flushing.expire(now_ms):
            batch.answer(PutStatus.FLUSH_DISK_TIMEOUT)
        for batch in self._replicating.expire(now_ms):
            batch.answer(PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.replicated()

    def status_of(self, end_phy_offset: int) -> PutStatus:
        """What the sender of a record that ends here, and that readers see, would be answered now."""
        if self.may_acknowledge is not None and not self.may_acknowledge():
            return PutStatus.SERVICE_NOT_AVAILABLE
        replicas = self.replicas
        if replicas is None or replicas.mark(self._store.max_phy_offset) >= end_phy_offset:
            return PutStatus.PUT_OK
        return PutStatus.SLAVE_NOT_AVAILABLE

    # -- slaves ----------------------------------------------------------------------------------

    def _replicate(self, batch: PutBatch) -> None:
        """Let a batch that is as durable as it has to be wait for slaves."""
        replicas, end = self.replicas, batch.end_phy_offset
        now_ms = self._monotonic_ms()
        if replicas is not None and not replicas.is_worth_waiting(end):
            batch.answer(PutStatus.SLAVE_NOT_AVAILABLE)
            self._replicating.hold(batch, now_ms)
            self._replicating.expire(now_ms)
        else:
            self._replicating.hold(batch, now_ms + self.slave_timeout_ms)
        self.replicated()

    def replicated(self) -> None:
        """Slaves have acknowledged more, or are gone. To be called inside a commit cycle. A message whose
        sender has its answer is visible as soon as there are not enough slaves."""
        if not self._replicating:
            return
        replicas, log_end = self.replicas, self._store.max_phy_offset
        mark = log_end if replicas is None else replicas.mark(log_end)
        if replicas is not None and self._replicating.is_late and not replicas.is_enough(log_end):
            mark = max(mark, self._replicating.late_phy_offset)
        for batch in self._replicating.advance(mark):
            self._release(batch)

    @property
    def is_waiting(self) -> bool:
        """Whether senders wait for a sync, or for slaves."""
        return len(self._flushing) > 0 or len(self._replicating) > 0

    @property
    def is_late(self) -> bool:
        """Whether a sync has timed out for its sends and is still not done."""
        return self._flushing.is_late

    def _release(self, batch: PutBatch) -> None:
        self.waiting_bytes -= batch.size_bytes
        self.waiting_messages -= batch.message_count
        self._confirm(batch)

    def _confirm(self, batch: PutBatch) -> None:
        if self.may_acknowledge is not None and not self.may_acknowledge():
            self._count_failed(batch.message_count)
            batch.answer(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        self._store.publish(batch)
        batch.answer(PutStatus.PUT_OK)

    def give_up(self) -> None:
        """Answer all senders that wait that their messages are not stored, as far as is known. To be called
        inside a commit cycle."""
        # They may or may not be on disk: they were never visible, and must not become so.
        for batch in (*self._replicating.fail(), *self._flushing.fail()):
            self._count_failed(batch.message_count)
            batch.answer(PutStatus.SERVICE_NOT_AVAILABLE)
        self.waiting_bytes = self.waiting_messages = 0
