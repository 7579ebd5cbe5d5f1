"""StreamDriver: where each batch of a stream ends, and the stream's lag.

Runs in one process for the lifetime of a query. Spark's checkpoint is the only source of truth: state kept
here only saves requests. Progress is committed to the group, if there is one, and never read back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Set
from typing import Any, Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from kourou.errors import KourouError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.record_fields import record_positions
from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.data_loss import GO_ON, DataLossError
from kourou.spark.source.offset_spec import LATEST_SPEC
from kourou.spark.source.offsets import Positions, QueueOffsets, nested
from kourou.spark.source.options import SourceOptions
from kourou.spark.source.planning import limited_end
from kourou.spark.source.queue_lookup import QueueLookup, offsets_or_raise
from kourou.spark.source.source_client import SourceClient

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.01
_LAST_PAUSE_S: Final = 0.05
_SAMPLE_AGE_S: Final = 60.0
_PUBLISH_AGAIN_S: Final = 5.0
"""The interval between attempts to commit progress to unreachable brokers."""
_MAX_LAG_SAMPLES: Final = 64
"""Queues whose oldest unread message is fetched for one report, to keep reports cheap."""


class StreamDriver:
    """Plans the batches of one query."""

    def __init__(
        self,
        client: SourceClient,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._options = options
        self._lookup = QueueLookup(client, options)
        self._clock = clock
        self._now_s = now_s
        self._initial: Positions | None = None
        self._queues: list[MessageQueue] = []
        self._discovered_at = float("-inf")
        self._target: QueueOffsets | None = None
        self._published: QueueOffsets = {}
        self._publish_from = float("-inf")
        self._row_bytes: dict[MessageQueue, tuple[float, float]] = {}
        self._ends: QueueOffsets = {}
        self._position: QueueOffsets = {}
        self._failing: Set[MessageQueue] = frozenset()
        self._left_out: Set[MessageQueue] = frozenset()
        self._last_batch_at = clock()

    # -- where to begin --------------------------------------------------------------------------

    def initial(self) -> Positions:
        """Where a query without a checkpoint begins. Idempotent."""
        if self._initial is None:
            queues = self._find_queues()
            offsets = self._lookup.resolve(queues, self._options.starting or LATEST_SPEC)
            self._initial = Positions(offsets, is_initial=True)
        return self._initial

    def _find_queues(self) -> list[MessageQueue]:
        """All queues, refreshed periodically: there may be new topics, brokers and queues."""
        if self._clock() - self._discovered_at >= self._options.discovery_interval_ms / 1000:
            self._queues = self._lookup.queues()
            self._discovered_at = self._clock()
        return self._queues

    def stop_at_now(self) -> None:
        """End the query at the current ends of the queues."""
        self._discovered_at = float("-inf")
        self._target = offsets_or_raise(self._client.max_offsets(self._find_queues()))

    # -- where a batch ends ----------------------------------------------------------------------

    def default_limit(self) -> ReadLimit:
        """The limit that Spark passes to `batch_end`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def batch_end(self, start: Positions, limit: ReadLimit) -> Positions | None:
        """Where the batch that begins at `start` ends; None if nothing arrives within `pollTimeoutMs`."""
        self._publish(start)
        deadline = self._clock() + self._options.poll_timeout_ms / 1000
        pause_s = _FIRST_PAUSE_S
        while True:
            end = self._end_now(start, limit)
            if end is not None:
                self._position = end.offsets
                self._last_batch_at = self._clock()
                return end
            # With a fixed end, nothing more can arrive.
            if self._target is not None or self._clock() >= deadline:
                self._position = start.offsets
                return None
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LAST_PAUSE_S)

    def _end_now(self, start: Positions, limit: ReadLimit) -> Positions | None:
        ends = self._available(start)
        moved = self._moved_begins(start, ends)
        began = self._new_begins(start, ends) | moved
        begin = start.offsets | began
        available = {queue: max(begin[queue], ends.get(queue, 0)) for queue in begin}
        # A moved queue is recorded at once, by an empty batch if need be: by the next poll the queue may have
        # grown past the old position, and the loss would go unnoticed.
        if not moved and self._waits_for_more(sum(available.values()) - sum(begin.values())):
            return None
        end = limited_end(begin, available, **self._limits(begin, available, limit))
        # A new and empty queue would make an empty batch.
        if not moved and all(end[queue] == begin[queue] for queue in begin):
            return None
        if start.is_initial:
            began = begin
        return Positions(end, began)

    def _waits_for_more(self, rows: int) -> bool:
        """Whether to wait for more rows than these. With a fixed end, everything is read at once."""
        least = self._options.min_offsets_per_trigger
        if least is None or rows >= least or self._target is not None:
            return False
        return self._clock() - self._last_batch_at < self._options.max_trigger_delay_ms / 1000

    def _available(self, start: Positions) -> QueueOffsets:
        """The ends of the queues whose brokers answer; the others have nothing for now."""
        selected = self._selected(start)
        if self._target is not None:
            self._ends = self._target
            return self._target
        try:
            queues = self._find_queues()
        except KourouError as error:
            _log.warning("cannot look for new queues: %s", error)
            self._discovered_at = self._clock()  # an unreachable name server is not queried at every poll
            queues = self._queues
        wanted = sorted({*queues, *selected})
        answers = self._client.max_offsets(wanted)
        failed = {queue: answer for queue, answer in answers.items() if isinstance(answer, KourouError)}
        if failed.keys() - self._failing:  # logged once, not at every poll
            queue, reason = next(iter(failed.items()))
            _log.warning("%d of %d queues are unavailable: %s: %s", len(failed), len(wanted), queue, reason)
        self._failing = failed.keys()
        self._ends = {queue: answer for queue, answer in answers.items() if isinstance(answer, int)}
        return self._ends

    def _selected(self, start: Positions) -> list[MessageQueue]:
        """The queues of `start` that the options select. Others were read with other options; they stay in
        the checkpoint, so that a query that selects them again continues there."""
        selected = list(filter(self._lookup.selects, start.offsets))
        left_out = start.offsets.keys() - set(selected)
        if left_out - self._left_out:  # logged once, not at every poll
            _log.warning(
                "%d of %d queues in the checkpoint are not read, as the options no longer select them: %s",
                len(left_out),
                len(start.offsets),
                ", ".join(sorted({queue.topic for queue in left_out})),
            )
        self._left_out = left_out
        return selected

    def _new_begins(self, start: Positions, ends: QueueOffsets) -> QueueOffsets:
        """New queues are read from their first message."""
        new = [queue for queue, end in ends.items() if end and queue not in start.offsets]
        begins = self._client.min_offsets(new)
        return {queue: low for queue, low in begins.items() if isinstance(low, int) and low < ends[queue]}

    def _moved_begins(self, start: Positions, ends: QueueOffsets) -> QueueOffsets:
        """Queues that end before the position of the query: recreated, or truncated. The end of a slave does
        not show that: it may be behind its master."""
        moved = [
            queue
            for queue, end in ends.items()
            if end < start.offsets.get(queue, end) and queue not in self._client.slave_ends
        ]
        if moved and self._options.fail_on_data_loss:
            raise _moved_error(moved[0], start, ends)
        answers = self._client.min_offsets(moved)
        # A broker that has just become unreachable is queried again at the next poll; so is one that
        # contradicts itself, or each poll would make an empty batch.
        begins = {
            queue: low
            for queue, low in answers.items()
            if isinstance(low, int) and low < start.offsets[queue]
        }
        for queue in begins:
            _log.warning("%s", str(_moved_error(queue, start, ends)).removesuffix(f"; {GO_ON}"))
        return begins

    def _limits(self, begin: QueueOffsets, available: QueueOffsets, limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return {}
        max_rows, max_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            max_rows = min(limit.max_rows, max_rows or limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            max_bytes = min(limit.max_bytes, max_bytes or limit.max_bytes)
        sizes = self._sizes(begin, available) if max_bytes is not None else None
        return {"max_rows": max_rows, "max_bytes": max_bytes, "row_bytes": sizes}

    def _sizes(self, begin: QueueOffsets, available: QueueOffsets) -> Mapping[MessageQueue, float]:
        """The approximate size of messages, from a few of each queue."""
        now = self._clock()
        wanted = {
            queue: offset
            for queue, offset in begin.items()
            if offset < available[queue]
            and now - self._row_bytes.get(queue, (0.0, float("-inf")))[1] > _SAMPLE_AGE_S
        }
        for queue, result in self._client.samples(wanted).items():
            count = len(record_positions(result.body)) - 1
            if count:
                self._row_bytes[queue] = len(result.body) / count, now
        return {queue: size for queue, (size, _) in self._row_bytes.items()}

    # -- progress and lag ------------------------------------------------------------------------

    def _publish(self, start: Positions) -> None:
        """Commit the group's progress to the brokers: everything before `start` is in Spark's checkpoint."""
        if self._options.group_id is None or start.is_initial:
            return
        new = {
            queue: at
            for queue, at in start.offsets.items()
            if self._published.get(queue) != at and self._lookup.selects(queue)
        }
        if not new or self._clock() < self._publish_from:
            return
        told = self._client.publish(new)
        self._published |= told
        if len(told) < len(new):
            self._publish_from = self._clock() + _PUBLISH_AGAIN_S

    def report(self) -> dict[str, Any] | None:
        """The ends of all queues, and the lag in messages, bytes (approximate) and seconds, once the batch
        planned last has been read."""
        if not self._ends:
            return None
        behind = {
            queue: end - self._position[queue]
            for queue, end in self._ends.items()
            if queue in self._position and end > self._position[queue]
        }
        lags = self._lags(behind)
        return {
            **Positions(self._ends).to_json(),
            "lag": {
                "messages": sum(behind.values()),
                "bytes": sum(lag["bytes"] for lag in lags.values()),
                "seconds": max((lag["seconds"] for lag in lags.values()), default=0.0),
                "queues": nested(lags),
            },
        }

    def _lags(self, behind: QueueOffsets) -> dict[MessageQueue, dict[str, Any]]:
        """The lag of each queue, from the next few messages of those with the largest lag: the age of the
        first, and their size."""
        most = sorted(behind, key=lambda queue: -behind[queue])[:_MAX_LAG_SAMPLES]
        samples = self._client.samples({queue: self._position[queue] for queue in most})
        found = {queue: RecordSpans.of(result.body) for queue, result in samples.items() if result.body}
        sizes = {queue: len(records.raw) / len(records) for queue, records in found.items()}
        usual = sum(sizes.values()) / len(sizes) if sizes else 0.0
        return {
            queue: {
                "messages": behind.get(queue, 0),
                "bytes": round(behind.get(queue, 0) * sizes.get(queue, usual)),
                "seconds": self._age_s(found[queue]) if queue in found else 0.0,
            }
            for queue in self._ends
        }

    def _age_s(self, records: RecordSpans) -> float:
        return round(max(0.0, self._now_s() - int(records.store_timestamps[0]) / 1000), 3)


def _moved_error(queue: MessageQueue, start: Positions, ends: QueueOffsets) -> DataLossError:
    at, end = start.offsets[queue], ends[queue]
    cause = (
        f"The query is at offset {at}, but the queue ends at {end}: the topic was deleted and recreated, or "
        "its broker lost its last messages"
    )
    return DataLossError(queue, end, at, cause)
