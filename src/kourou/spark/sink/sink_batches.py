"""Parcels: what of an Arrow batch travels together, and where to.

Rows go in their order, per queue: those whose queue is chosen (by `sharding_key` or `queue_id`) lie in the
parcels of that queue in the order of the DataFrame's partition. Nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.client.producer.queue_selectors import select_by_hash
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from kourou.protocol.names import is_retry_topic, send_topic_problem
from kourou.spark.sink.batch_entries import (
    ALONE_BYTES,
    Entries,
    Mask,
    Whole,
    encode_entries,
    encode_properties,
    odd_values,
)
from kourou.spark.sink.invalid_rows import row_message
from kourou.spark.sink.row_ids import RowIds
from kourou.spark.sink.sink_columns import Rows, text_at
from kourou.spark.sink.sink_errors import RowPlace, RowRefusedError
from kourou.spark.sink.sink_options import SinkOptions

QueuesOf = Callable[[str], Sequence[MessageQueue]]
"""The queues of a topic."""

_FREE: Final = -1
_NONE: Final = -2


@dataclass(frozen=True, slots=True)
class Scene:
    """One Arrow batch, and where its rows lie in the partition."""

    rows: Rows
    partition: int
    first_row: int

    def place(self, row: int, topic: str | None, last_row: int | None = None) -> RowPlace:
        """Where a row of the batch is in the partition."""
        last = None if last_row is None else self.first_row + last_row
        keys = text_at(self.rows.keys, row)
        return RowPlace(self.partition, self.first_row + row, topic, keys, last)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows of one topic in one batch body: entries `first` to `end` of `entries`."""

    scene: Scene
    topic: str
    queue: MessageQueue | None
    numbers: Whole
    """The row of the Arrow batch that each of the entries is."""
    entries: Entries
    first: int
    end: int

    @property
    def count(self) -> int:
        """How many rows."""
        return self.end - self.first

    @property
    def size_bytes(self) -> int:
        """How many bytes are sent."""
        return int(self.entries.offsets[self.end] - self.entries.offsets[self.first])

    def body(self) -> bytes:
        """The batch body."""
        return self.entries.body(self.first, self.end)

    def place(self) -> RowPlace:
        """Which rows these are."""
        first, last = int(self.numbers[self.first]), int(self.numbers[self.end - 1])
        return self.scene.place(first, self.topic, last)

    def halves(self) -> tuple[Parcel, Parcel]:
        """The same rows in two parcels."""
        middle = (self.first + self.end) // 2
        return self._part(self.first, middle), self._part(middle, self.end)

    def _part(self, first: int, end: int) -> Parcel:
        return Parcel(self.scene, self.topic, self.queue, self.numbers, self.entries, first, end)


@dataclass(frozen=True, slots=True)
class Single:
    """One row that travels alone."""

    scene: Scene
    row: int
    message: Message
    queue: MessageQueue | None

    count: ClassVar[int] = 1

    @property
    def topic(self) -> str:
        """Where to."""
        return self.message.topic

    @property
    def size_bytes(self) -> int:
        """How many bytes are sent, before compression."""
        return len(self.message.body)

    def place(self) -> RowPlace:
        """Which row it is."""
        return self.scene.place(self.row, self.topic)


@dataclass(frozen=True, slots=True)
class Refused:
    """One row that no broker takes."""

    scene: Scene
    row: int
    error: RowRefusedError

    @property
    def size_bytes(self) -> int:
        """How large its value is, which is in memory until the error topic has been told."""
        value = self.scene.rows.value[self.row].as_buffer()
        return 0 if value is None else int(value.size)


class ParcelPlan:
    """Makes parcels of Arrow batches, for one task. `queues_of` may wait."""

    def __init__(self, options: SinkOptions, queues_of: QueuesOf, ids: RowIds) -> None:
        self._options = options
        self._queues_of = queues_of
        self._ids = ids
        self._alone_bytes = min(ALONE_BYTES, options.batch_bytes, options.max_message_bytes + 1)

    def parcels(self, scene: Scene) -> Iterator[Parcel | Single | Refused]:
        """All rows of a batch, each in one parcel."""
        rows = scene.rows
        if not rows.count:
            return
        ids = self._ids.column(rows.count)
        properties = encode_properties(rows, ids, drop_reserved=self._options.drop_reserved_properties)
        is_odd = odd_values(rows, alone_bytes=self._alone_bytes) | properties.is_odd
        topics, topic_of = self._topics(rows)
        is_odd |= np.isin(topic_of, [code for code, topic in enumerate(topics) if not _takes_batches(topic)])
        queues, queue_of = self._targets(rows, topics, topic_of)
        order = _order(topic_of, queue_of)
        values, texts = rows.value, properties.texts
        if order is None:
            order = np.arange(rows.count)
        else:
            values, texts = values.take(pa.array(order)), texts.take(pa.array(order))
        entries = encode_entries(values, texts)
        topic_of, queue_of, is_odd = topic_of[order], queue_of[order], is_odd[order]
        for first, end in _runs(topic_of, queue_of):
            topic, target = topics[topic_of[first]], int(queue_of[first])
            queue = queues[target] if target >= 0 else None
            for low, high in _cuts(is_odd, first, end):
                if is_odd[low]:
                    yield self._single(scene, int(order[low]), topic, queue, is_lost=target == _NONE)
                elif target == _NONE:
                    yield from (_no_queue(scene, int(row), topic) for row in order[low:high])
                else:
                    assert topic is not None  # rows without one are odd
                    for start, stop in self._batches(entries.offsets, low, high):
                        yield Parcel(scene, topic, queue, order, entries, start, stop)

    def _topics(self, rows: Rows) -> tuple[list[str | None], Whole]:
        """The topics there are, and which of them each row goes to."""
        if self._options.topic is not None or rows.topic is None:
            return [self._options.topic], np.zeros(rows.count, np.int64)
        codes, topics = _coded(rows.topic)
        return [*(raw.decode("utf-8", "replace") for raw in topics), None], codes

    def _targets(
        self, rows: Rows, topics: list[str | None], topic_of: Whole
    ) -> tuple[list[MessageQueue], Whole]:
        """The queues that rows ask for, and which of them each row gets."""
        targets: list[MessageQueue] = []
        target_of = np.full(rows.count, _FREE, np.int64)
        if rows.sharding_key is None and rows.queue_id is None:
            return targets, target_of
        places: dict[MessageQueue, int] = {}
        wishes = _Wishes.of(rows)
        for code, topic in enumerate(topics):
            wanted = np.flatnonzero((topic_of == code) & wishes.is_given)
            if topic is None or not len(wanted) or send_topic_problem(topic):
                continue
            choose = _QueueOf(topic, self._queues_of(topic))
            found, wish_of = np.unique(wishes.codes[wanted], return_inverse=True)
            queues = [choose(wishes.wish(int(wish))) for wish in found]
            chosen = [_NONE if queue is None else places.setdefault(queue, len(places)) for queue in queues]
            target_of[wanted] = np.array(chosen, np.int64)[wish_of]
        return list(places), target_of

    def _single(
        self, scene: Scene, row: int, topic: str | None, queue: MessageQueue | None, *, is_lost: bool
    ) -> Single | Refused:
        place = scene.place(row, topic)
        try:
            message = row_message(scene.rows, row, self._options, place)
        except RowRefusedError as error:
            return Refused(scene, row, error)
        return _no_queue(scene, row, topic) if is_lost else Single(scene, row, message, queue)

    def _batches(self, offsets: Whole, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Cut rows into batches that are neither too large nor too many."""
        while low < high:
            limit = offsets[low] + self._options.batch_bytes
            fits = int(np.searchsorted(offsets, limit, side="right")) - 1
            end = min(max(fits, low + 1), low + self._options.batch_rows, high)
            yield low, end
            low = end


@dataclass(frozen=True, slots=True)
class _Wishes:
    """Which queue rows ask for: `codes` are the same where rows ask for the same."""

    codes: Whole
    is_given: Mask
    _first: list[bytes | int]
    """What the rows say: sharding keys, or ids of queues."""
    _second: list[bytes | None]
    """The brokers beside them; None for none."""

    @classmethod
    def of(cls, rows: Rows) -> _Wishes:
        column = rows.queue_id if rows.sharding_key is None else rows.sharding_key
        assert column is not None
        codes, first = _coded(column)
        second: list[bytes | None] = [None]
        if rows.sharding_key is None and rows.broker is not None:
            brokers, names = _coded(rows.broker)
            second = [*names, None]
            codes = codes * len(second) + brokers
        return cls(codes, pc.is_valid(column).to_numpy(zero_copy_only=False), first, second)

    def wish(self, code: int) -> tuple[bytes | int, bytes | None]:
        """What the rows with this code say: a sharding key, or the id of a queue and a broker."""
        first, second = divmod(code, len(self._second))
        return self._first[first], self._second[second]


def _coded(column: pa.Array) -> tuple[Whole, list[Any]]:
    """The values of a column, and which of them each row has; the number of values for a row with none."""
    coded = column.dictionary_encode()
    values = coded.dictionary.to_pylist()
    codes = pc.fill_null(coded.indices, len(values)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), values


class _QueueOf:
    """Which queue of a topic is meant by what a row says; None where there is no such queue."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self._queues = queues
        self._message = Message(topic, b"-")

    def __call__(self, wish: tuple[bytes | int, bytes | None]) -> MessageQueue | None:
        asked, broker = wish
        if isinstance(asked, bytes):
            return select_by_hash(self._queues, self._message, asked.decode()) if self._queues else None
        found = [queue for queue in self._queues if queue.queue_id == asked]
        if broker is not None:
            found = [queue for queue in found if queue.broker_name.encode() == broker]
        # Always the same one, or rows of one queue would lie in several.
        return min(found, key=lambda queue: queue.broker_name, default=None)


def _takes_batches(topic: str | None) -> bool:
    return topic is not None and send_topic_problem(topic) is None and not is_retry_topic(topic)


def _no_queue(scene: Scene, row: int, topic: str | None) -> Refused:
    rows = scene.rows
    queue_id = None if rows.queue_id is None else rows.queue_id[row].as_py()
    broker = text_at(rows.broker, row)
    where = f" at broker {broker!r}" if broker else ""
    reason = f"the topic has no queue {queue_id}{where} that can be written to"
    return Refused(scene, row, RowRefusedError(scene.place(row, topic), reason))


def _order(topic_of: Whole, queue_of: Whole) -> Whole | None:
    """The rows by topic and queue, otherwise as they are; None where they lie so already."""
    if (topic_of == topic_of[0]).all() and (queue_of == queue_of[0]).all():
        return None
    return np.lexsort((queue_of, topic_of))


def _runs(topic_of: Whole, queue_of: Whole) -> Iterator[tuple[int, int]]:
    """From where to where topic and queue are the same."""
    changes = np.flatnonzero((np.diff(topic_of) != 0) | (np.diff(queue_of) != 0)) + 1
    bounds = [0, *changes.tolist(), len(topic_of)]
    yield from zip(bounds, bounds[1:], strict=False)


def _cuts(is_odd: Mask, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The run from `first` to `end` in pieces: odd rows alone, those between them together."""
    low = first
    for odd in (np.flatnonzero(is_odd[first:end]) + first).tolist():
        if low < odd:
            yield low, odd
        yield odd, odd + 1
        low = odd + 1
    if low < end:
        yield low, end
