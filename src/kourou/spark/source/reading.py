"""Reading: the messages of ranges as Arrow batches; runs on Spark's workers.

Only the connections of the process are kept from task to task. Not here: which ranges (planning.py), how
columns are built (columns.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kourou.client.core.subscription import subscription_data
from kourou.errors import KourouError
from kourou.protocol.names import is_lmq
from kourou.protocol.record_spans import RecordSpans
from kourou.spark.source.arrow_batches import BatchBuilder
from kourou.spark.source.data_loss import GO_ON, DataLossError
from kourou.spark.source.options import SourceOptions
from kourou.spark.source.planning import QueueRange
from kourou.spark.source.source_client import ReadState, SourceClient, shared_client
from kourou.spark.worker_process import make_worker_ready

_log = logging.getLogger(__name__)


def read_ranges(options: SourceOptions, builder: BatchBuilder, ranges: Sequence[QueueRange]) -> Iterator[Any]:
    """Batches of all messages of these ranges, in order. DataLossError where some are gone, unless
    `failOnDataLoss` is off."""
    client = shared_client(options.connection)
    make_worker_ready()
    for piece in ranges:
        yield from _RangeReader(client, options, builder, piece).batches()


class _RangeReader:
    def __init__(
        self, client: SourceClient, options: SourceOptions, builder: BatchBuilder, piece: QueueRange
    ) -> None:
        self._client = client
        self._options = options
        self._builder = builder
        self._piece = piece
        self._state = ReadState(piece.begin)
        self._next_offset = piece.begin
        # Records of a light queue carry the offsets of another queue.
        self._is_counted = not options.is_filtered and not is_lmq(piece.queue.topic)
        self._tags: frozenset[str] = frozenset()
        if options.is_filtered and options.expression_type == "TAG":
            self._tags = frozenset(subscription_data(piece.queue.topic, options.expression).tags_set)

    def batches(self) -> Iterator[Any]:
        bodies: list[bytes] = []
        size_bytes = 0
        for chunk in self._client.chunks(self._piece, self._options, self._state):
            if not self._is_counted:
                self._report_gaps()
            bodies.append(chunk.body)
            size_bytes += len(chunk.body)
            # Better a small batch than one of twice the size whose bytes are joined.
            if size_bytes + len(chunk.body) // 2 >= self._options.batch_bytes:
                yield from self._built(bodies)
                bodies, size_bytes = [], 0
        if bodies:
            yield from self._built(bodies)
        self._check_end()

    def _built(self, bodies: list[bytes]) -> Iterator[Any]:
        records = RecordSpans.of(bodies[0] if len(bodies) == 1 else b"".join(bodies))
        if self._is_counted:
            self._check_offsets(records)
        queue = self._piece.queue
        return self._builder.batches(records, topic=queue.topic, broker=queue.broker_name, tags=self._tags)

    # -- what is missing -------------------------------------------------------------------------

    def _report_gaps(self) -> None:
        while self._state.gaps:
            self._lost(*self._state.gaps.pop(0))

    def _check_offsets(self, records: RecordSpans) -> None:
        """Check that offsets are contiguous."""
        found = records.field("queue_offset")
        expected = self._next_offset + np.arange(len(found))
        while not (found == expected).all():
            row = int((found != expected).argmax())
            if found[row] < expected[row]:
                raise KourouError(
                    f"{self._piece.queue}: the broker sent offset {found[row]} after {expected[row] - 1}; "
                    "its queue is out of order, see `kourou store check`"
                )
            self._lost(int(expected[row]), int(found[row]))
            expected[row:] += found[row] - expected[row]
        self._next_offset = int(expected[-1]) + 1

    def _check_end(self) -> None:
        end = self._piece.end
        if not self._is_counted:
            self._report_gaps()
            self._next_offset = self._state.position
        if self._next_offset < end:
            self._lost(self._next_offset, end)

    def _lost(self, begin: int, end: int) -> None:
        error = DataLossError(self._piece.queue, begin, end, self._cause(begin, end))
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("%s", str(error).removesuffix(f"; {GO_ON}"))

    def _cause(self, begin: int, end: int) -> str:
        """Why offsets are missing, as far as the broker can tell."""
        queue = self._piece.queue
        try:
            low, high = self._client.min_offset(queue), self._client.max_offset(queue)
        except KourouError as error:
            return f"The cause is unknown, as the broker does not answer ({error})"
        if low >= end or low > begin:
            return (
                f"Retention deleted them before they were read (the queue begins at {low} now); read more "
                "often, or keep messages longer"
            )
        if high < end:
            return (
                f"The queue ends at {high} now: the topic was deleted and recreated, or its broker lost its "
                "last messages"
            )
        return "The broker has a gap there: its store is damaged, see `kourou store check`"
