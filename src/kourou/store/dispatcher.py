"""Dispatcher: keeps ConsumeQueues and index up with the CommitLog.

Two ways in. `publish` takes a batch that was just written, in the same cycle, from what the
appender knows. `dispatch` takes a record as it lies in the log: after recovery, and on a
slave. Both end in the same files; records that are there already are passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kourou.store.index.index_service import IndexService
from kourou.store.kernel import ReadRecords
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.put_batch import GrownQueue, PutBatch
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import UNIT, UNIT_BYTES

_log = logging.getLogger(__name__)

ArrivalHook = Callable[[Iterable[ConsumeQueue]], None]
PublishHook = Callable[[Sequence[GrownQueue], int, int], None]
"""Called with the queues that grew, the number of messages, and their store time."""

_unpack_unit = UNIT.unpack_from


class Polls(Protocol):
    """Requests that wait for messages; most of the time there are none."""

    held_count: int

    def arrived(self, queues: Iterable[ConsumeQueue], /) -> None:
        """These queues have grown."""
        ...


class Dispatcher:
    """Owned by the store's thread. `dispatched_phy_offset`: the log is derived up to there.
    `queued_phy_offset`: records below it that are dispatched again are for the index only. The queues
    have them, or have lost them with their topic.

    Hooks, called after each batch or run: `on_publish`; with the queues that grew `polls` that hold requests
    and `on_arrival`; with a queue of its topic that of `on_arrival_in`.
    """

    def __init__(self, queues: ConsumeQueues, index: IndexService | None) -> None:
        self._queues = queues
        self._index = index
        self.dispatched_phy_offset = 0
        self.dispatched_timestamp = 0
        self.queued_phy_offset = 0
        self.polls: Sequence[Polls] = ()
        self.on_arrival: list[ArrivalHook] = []
        self.on_arrival_in: dict[str, ArrivalHook] = {}
        self.on_publish: list[PublishHook] = []

    def publish(self, batch: PutBatch) -> None:
        """Make a written batch visible to readers.

        Batches have to come in log order, each of them: units take the next place of their queue.
        """
        if self._index is not None:
            self._index.collect_many(batch.indexed, batch.hashed_keys)
        self.publish_run(batch.grown(), b"", batch.message_count, batch.end_phy_offset, batch.store_timestamp)

    def publish_run(
        self,
        grown: Sequence[GrownQueue],
        hashed_keys: bytes,
        messages: int,
        end_phy_offset: int,
        store_timestamp: int,
    ) -> None:
        """The same for so many messages of one run, with rows of `HASHED_KEYS`."""
        queues = []
        for queue, queue_offset, units in grown:
            if queue.max_queue_offset != queue_offset:
                self._check_gone(queue, queue_offset)
            last_phy_offset, last_size, _ = _unpack_unit(units, len(units) - UNIT_BYTES)
            queue.append_units(units, len(units) // UNIT_BYTES, last_phy_offset + last_size)
            queues.append(queue)
        if self._index is not None:
            self._index.collect_hashed(hashed_keys)
        self.dispatched_phy_offset = end_phy_offset
        self.dispatched_timestamp = store_timestamp
        for published in self.on_publish:
            try:
                published(grown, messages, store_timestamp)
            except Exception:
                _log_failed_hook(published)
        self.arrived(queues)

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """Call what waits for messages: these queues have grown."""
        for polls in self.polls:
            if polls.held_count:
                _call(polls.arrived, queues)
        by_topic = self.on_arrival_in
        for queue in queues:
            if queue.topic in by_topic:
                _call(by_topic[queue.topic], (queue,))
        for hook in self.on_arrival:
            _call(hook, queues)

    def _check_gone(self, queue: ConsumeQueue, queue_offset: int) -> None:
        # Its topic was deleted between put and publish: what is appended to it is never read.
        is_gone = self._queues.find(queue.topic, queue.queue_id) is not queue
        assert is_gone, f"{queue} is to get unit {queue_offset}: a batch was not published in its turn"

    def dispatch(self, request: DispatchRequest) -> ConsumeQueue | None:
        """Take one record of the log; returns its queue when that grew.

        DamageError when its queue_offset cannot be right.
        """
        grown = self._dispatch_to_queue(request)
        if request.phy_offset >= self.dispatched_phy_offset:
            self._dispatch_to_index(request)
            self.dispatched_phy_offset = request.phy_offset + request.size
            self.dispatched_timestamp = request.store_timestamp
        return grown

    @property
    def known_phy_offset(self) -> int:
        """Queues and index may have records below it already; none from there on."""
        indexed = 0 if self._index is None else self._index.end_phy_offset
        return max(self.dispatched_phy_offset, self.queued_phy_offset, indexed)

    def dispatch_read(self, records: ReadRecords, phy_offset: int) -> list[ConsumeQueue]:
        """Take the records from `phy_offset` on, which is not below `known_phy_offset`, as the kernel has
        read them; returns the queues that grew. DamageError as `dispatch`, before the index has any."""
        grown = []
        for topic, queue_id, queue_offset, units in records[3]:
            queue = self._queues.get(topic, queue_id)
            if queue.max_queue_offset == queue_offset and queue.max_phy_offset <= phy_offset:
                last_phy_offset, last_size, _ = UNIT.unpack_from(units, len(units) - UNIT_BYTES)
                queue.append_units(units, len(units) // UNIT_BYTES, last_phy_offset + last_size)
                queue.next_queue_offset = queue.max_queue_offset
            elif not _put_each(queue, queue_offset, units):
                continue
            grown.append(queue)
        self.index_read(records)
        return grown

    def index_read(self, records: ReadRecords) -> None:
        """Take records that the kernel has read for the index alone."""
        self.dispatched_phy_offset, self.dispatched_timestamp, hashed_keys, _, _ = records
        if self._index is not None:
            self._index.collect_hashed(hashed_keys)

    def _dispatch_to_index(self, request: DispatchRequest) -> None:
        index = self._index
        if index is None or not request.keys or not request.in_index:
            return
        # The last record in the index comes again: not all of its keys need be there.
        if request.phy_offset >= index.end_phy_offset:
            index.collect(request.topic, request.keys, request.phy_offset, request.store_timestamp)

    def _dispatch_to_queue(self, request: DispatchRequest) -> ConsumeQueue | None:
        if not request.in_consume_queue or request.phy_offset < self.queued_phy_offset:
            return None
        queue = self._queues.get(request.topic, request.queue_id)
        if queue.put(request.queue_offset, request.phy_offset, request.size, request.tags_code):
            return queue
        return None


def _put_each(queue: ConsumeQueue, queue_offset: int, units: bytes) -> bool:
    """Put units that do not simply continue their queue; whether it grew."""
    puts = [queue.put(queue_offset + row, *unit) for row, unit in enumerate(UNIT.iter_unpack(units))]
    return any(puts)


def _call(hook: ArrivalHook, queues: Iterable[ConsumeQueue]) -> None:
    try:
        hook(queues)
    except Exception:
        _log_failed_hook(hook)


def _log_failed_hook(hook: object) -> None:
    # The batch is stored and visible: a hook that fails must not keep its senders from their responses.
    _log.exception("%r failed after a batch was published", hook)
