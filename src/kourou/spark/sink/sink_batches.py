"""BatchPlan: which rows of an Arrow batch are sent together, and to which queue.

Order is kept per queue: rows that select their queue (by `sharding_key` or `queue_id`) are in the batches of
that queue in the order of the DataFrame's partition. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.client.producer.queue_choice import select_by_hash
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from kourou.protocol.names import is_retry_topic, send_topic_problem
from kourou.spark.sink.batch_entries import (
    ALONE_BYTES,
    Entries,
    Int64s,
    Mask,
    encode_entries,
    encode_properties,
    single_values,
)
from kourou.spark.sink.invalid_rows import row_message
from kourou.spark.sink.row_ids import RowIds
from kourou.spark.sink.sink_columns import Rows, text_at
from kourou.spark.sink.sink_errors import RowLocation, RowRefusedError
from kourou.spark.sink.sink_options import SinkOptions

QueuesOf = Callable[[str], Sequence[MessageQueue]]
"""The queues of a topic."""

_FREE: Final = -1
_NONE: Final = -2


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """One Arrow batch, and its position in the partition."""

    rows: Rows
    partition: int
    first_row: int

    def location(self, row: int, topic: str | None, last_row: int | None = None) -> RowLocation:
        """The location of a row of the batch in the partition."""
        last = None if last_row is None else self.first_row + last_row
        keys = text_at(self.rows.keys, row)
        return RowLocation(self.partition, self.first_row + row, topic, keys, last)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one topic in one batch body: entries `first` to `end` of `entries`."""

    origin: BatchOrigin
    topic: str
    queue: MessageQueue | None
    numbers: Int64s
    """The row in the Arrow batch of each entry."""
    entries: Entries
    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first

    @property
    def size_bytes(self) -> int:
        """The number of bytes sent."""
        return int(self.entries.offsets[self.end] - self.entries.offsets[self.first])

    def body(self) -> memoryview:
        return self.entries.body(self.first, self.end)

    def location(self) -> RowLocation:
        """The location of the rows."""
        first, last = int(self.numbers[self.first]), int(self.numbers[self.end - 1])
        return self.origin.location(first, self.topic, last)

    def halves(self) -> tuple[RowBatch, RowBatch]:
        """The same rows in two batches."""
        middle = (self.first + self.end) // 2
        return self._part(self.first, middle), self._part(middle, self.end)

    def _part(self, first: int, end: int) -> RowBatch:
        return RowBatch(self.origin, self.topic, self.queue, self.numbers, self.entries, first, end)


@dataclass(frozen=True, slots=True)
class SingleRow:
    """One row that is sent alone."""

    origin: BatchOrigin
    row: int
    message: Message
    queue: MessageQueue | None

    count: ClassVar[int] = 1

    @property
    def topic(self) -> str:
        return self.message.topic

    @property
    def size_bytes(self) -> int:
        """The number of bytes sent, before compression."""
        return len(self.message.body)

    def location(self) -> RowLocation:
        """The location of the row."""
        return self.origin.location(self.row, self.topic)


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One row that no broker accepts."""

    origin: BatchOrigin
    row: int
    error: RowRefusedError

    @property
    def size_bytes(self) -> int:
        """The size of its value, which stays in memory until the error topic has stored the report."""
        value = self.origin.rows.value[self.row].as_buffer()
        return 0 if value is None else int(value.size)


class BatchPlan:
    """Splits Arrow batches into sink batches, for one task. `queues_of` may block. `more` are properties of
    every entry."""

    def __init__(self, options: SinkOptions, queues_of: QueuesOf, ids: RowIds, more: bytes = b"") -> None:
        self._options = options
        self._queues_of = queues_of
        self._ids = ids
        self._more = more
        self.queue_count = 1
        """Among how many queues the rows of the last batch were split."""
        # A broker's maxMessageSize applies to the body of a request, and so to a whole batch.
        self._batch_bytes = min(options.batch_bytes, options.max_message_bytes)
        self._alone_bytes = min(ALONE_BYTES, options.batch_bytes, options.max_message_bytes + 1)

    def sink_batches(self, origin: BatchOrigin) -> Iterator[RowBatch | SingleRow | RejectedRow]:
        """All rows of a batch, each in exactly one sink batch."""
        rows = origin.rows
        if not rows.count:
            return
        ids = self._ids.next_ids(rows.count)
        properties = encode_properties(
            rows,
            ids,
            drop_reserved=self._options.drop_reserved_properties,
            more_bytes=len(self._more),
        )
        is_single = single_values(rows, alone_bytes=self._alone_bytes) | properties.is_single
        topics, topic_of = self._topics(rows)
        is_single |= np.isin(
            topic_of, [code for code, topic in enumerate(topics) if not _takes_batches(topic)]
        )
        queues, queue_of = self._targets(rows, topics, topic_of)
        self.queue_count = max(1, len(queues))
        order = _order(topic_of, queue_of)
        entries = encode_entries(rows.value, properties, order, [self._more] if self._more else ())
        if order is None:
            order = np.arange(rows.count)
        topic_of, queue_of, is_single = topic_of[order], queue_of[order], is_single[order]
        for first, end in _runs(topic_of, queue_of):
            topic, target = topics[topic_of[first]], int(queue_of[first])
            queue = queues[target] if target >= 0 else None
            for low, high in _cuts(is_single, first, end):
                if is_single[low]:
                    yield self._single(origin, int(order[low]), topic, queue, is_lost=target == _NONE)
                elif target == _NONE:
                    yield from (_no_queue(origin, int(row), topic) for row in order[low:high])
                else:
                    assert topic is not None  # rows without one are sent singly
                    for start, stop in self._batches(entries.offsets, low, high):
                        yield RowBatch(origin, topic, queue, order, entries, start, stop)

    def _topics(self, rows: Rows) -> tuple[list[str | None], Int64s]:
        """The distinct topics, and the index of each row's topic."""
        if self._options.topic is not None or rows.topic is None:
            return [self._options.topic], np.zeros(rows.count, np.int64)
        codes, topics = _coded(rows.topic)
        return [*(raw.decode("utf-8", "replace") for raw in topics), None], codes

    def _targets(
        self, rows: Rows, topics: list[str | None], topic_of: Int64s
    ) -> tuple[list[MessageQueue], Int64s]:
        """The selected queues, and the index of each row's queue."""
        places: dict[MessageQueue, int] = {}
        target_of = np.full(rows.count, _FREE, np.int64)
        if rows.sharding_key is None and rows.queue_id is None:
            return [], target_of
        queue_keys = _QueueKeys.of(rows)
        for code, topic in enumerate(topics):
            wanted = np.flatnonzero((topic_of == code) & queue_keys.is_set)
            if topic is None or not len(wanted) or send_topic_problem(topic):
                continue
            choose = _QueueOf(topic, self._queues_of(topic))
            keys = queue_keys.codes[wanted]
            target_of_key = np.full(int(keys.max()) + 1, _NONE, np.int64)
            for key in np.flatnonzero(np.bincount(keys)).tolist():
                if queue := choose(queue_keys.key(key)):
                    target_of_key[key] = places.setdefault(queue, len(places))
            target_of[wanted] = target_of_key[keys]
        return list(places), target_of

    def _single(
        self, origin: BatchOrigin, row: int, topic: str | None, queue: MessageQueue | None, *, is_lost: bool
    ) -> SingleRow | RejectedRow:
        location = origin.location(row, topic)
        try:
            message = row_message(origin.rows, row, self._options, location)
        except RowRefusedError as error:
            return RejectedRow(origin, row, error)
        return _no_queue(origin, row, topic) if is_lost else SingleRow(origin, row, message, queue)

    def _batches(self, offsets: Int64s, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Cut rows into batches within the limits on bytes and rows."""
        while low < high:
            limit = offsets[low] + self._batch_bytes
            fits = int(np.searchsorted(offsets, limit, side="right")) - 1
            end = min(max(fits, low + 1), low + self._options.batch_rows, high)
            yield low, end
            low = end


@dataclass(frozen=True, slots=True)
class _QueueKeys:
    """The queue that each row selects: equal `codes` mean equal selections."""

    codes: Int64s
    is_set: Mask
    _first: list[bytes | int]
    """The distinct sharding keys, or queue ids."""
    _second: list[bytes | None]
    """The distinct brokers beside them; None for rows without one."""

    @classmethod
    def of(cls, rows: Rows) -> _QueueKeys:
        column = rows.queue_id if rows.sharding_key is None else rows.sharding_key
        assert column is not None
        codes, first = _coded(column)
        second: list[bytes | None] = [None]
        if rows.sharding_key is None and rows.broker is not None:
            brokers, names = _coded(rows.broker)
            second = [*names, None]
            codes = codes * len(second) + brokers
        return cls(codes, pc.is_valid(column).to_numpy(zero_copy_only=False), first, second)

    def key(self, code: int) -> tuple[bytes | int, bytes | None]:
        """The selection of a code: a sharding key, or a queue id and a broker."""
        first, second = divmod(code, len(self._second))
        return self._first[first], self._second[second]


def _coded(column: pa.Array) -> tuple[Int64s, list[Any]]:
    """Each row's index into the distinct values of a column, and those values; nulls get one past the last
    index."""
    coded = column.dictionary_encode()
    values = coded.dictionary.to_pylist()
    codes = pc.fill_null(coded.indices, len(values)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), values


class _QueueOf:
    """Maps a row's selection to a queue of the topic; None where there is no such queue."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self._queues = queues
        self._message = Message(topic, b"-")

    def __call__(self, key: tuple[bytes | int, bytes | None]) -> MessageQueue | None:
        asked, broker = key
        if isinstance(asked, bytes):
            return select_by_hash(self._queues, self._message, asked.decode()) if self._queues else None
        found = [queue for queue in self._queues if queue.queue_id == asked]
        if broker is not None:
            found = [queue for queue in found if queue.broker_name.encode() == broker]
        # Always the same one, or rows of one key would be spread over several queues.
        return min(found, key=lambda queue: queue.broker_name, default=None)


def _takes_batches(topic: str | None) -> bool:
    return topic is not None and send_topic_problem(topic) is None and not is_retry_topic(topic)


def _no_queue(origin: BatchOrigin, row: int, topic: str | None) -> RejectedRow:
    rows = origin.rows
    queue_id = None if rows.queue_id is None else rows.queue_id[row].as_py()
    broker = text_at(rows.broker, row)
    where = f" at broker {broker!r}" if broker else ""
    reason = f"the topic has no writable queue {queue_id}{where}"
    return RejectedRow(origin, row, RowRefusedError(origin.location(row, topic), reason))


def _order(topic_of: Int64s, queue_of: Int64s) -> Int64s | None:
    """The order of rows by topic and queue, stable; None where they are ordered already."""
    if (topic_of == topic_of[0]).all() and (queue_of == queue_of[0]).all():
        return None
    low, high = int(queue_of.min()), int(queue_of.max())
    places = topic_of * (high - low + 1) + (queue_of - low)
    # Small numbers are sorted by their digits.
    return np.argsort(places.astype(np.min_scalar_type(int(places.max()))), kind="stable")


def _runs(topic_of: Int64s, queue_of: Int64s) -> Iterator[tuple[int, int]]:
    """The runs of rows with the same topic and queue."""
    changes = np.flatnonzero((np.diff(topic_of) != 0) | (np.diff(queue_of) != 0)) + 1
    bounds = [0, *changes.tolist(), len(topic_of)]
    yield from zip(bounds, bounds[1:], strict=False)


def _cuts(is_single: Mask, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The run from `first` to `end` in pieces: single rows alone, the rows between them together."""
    low = first
    for single in (np.flatnonzero(is_single[first:end]) + first).tolist():
        if low < single:
            yield low, single
        yield single, single + 1
        low = single + 1
    if low < end:
        yield low, end
