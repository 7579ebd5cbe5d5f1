"""CheckWindow: what queues and index must hold for a stretch of the CommitLog.

Records come in piece by piece and are kept as numbers only, some hundred bytes each; a check takes a
window of them at a time, so that its memory does not grow with the store.
Not here: comparing (check_queues.py, check_index.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from kourou.protocol.properties import MessageConst
from kourou.protocol.property_columns import PropertyColumns, Spans
from kourou.protocol.record_spans import Bools, Int64s
from kourou.protocol.tags import java_hash_code
from kourou.store.check.span_hashes import Codes, HashCodes, SpanHashes, key_hashes
from kourou.store.delay_levels import SCHEDULE_TOPIC, deliver_timestamp
from kourou.store.log.record_columns import RecordColumns
from kourou.store.store_layout import QueueKey

MAX_RECORDS: Final = 500_000
_INNER_BATCH: Final = 0x80
_LMQ_PREFIX: Final = "%LMQ%"


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Records of one queue in the order of the log: what their units must say."""

    queue_offsets: Int64s
    phy_offsets: Int64s
    sizes: Int64s
    tags_codes: Int64s

    def __len__(self) -> int:
        return len(self.queue_offsets)

    def part(self, first: int, last: int | None = None) -> QueueRows:
        """The rows from `first` on, up to `last`."""
        return self.select(slice(first, last))

    def select(self, rows: slice | NDArray[np.intp]) -> QueueRows:
        """The rows at these positions, or of this mask."""
        return QueueRows(
            self.queue_offsets[rows], self.phy_offsets[rows], self.sizes[rows], self.tags_codes[rows]
        )


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Keys of records in the order of the log: what index entries must say.

    `is_tag` marks what only Apache 5.5 indexes.
    """

    hashes: Int64s
    phy_offsets: Int64s
    store_timestamps: Int64s
    is_tag: Bools

    def __len__(self) -> int:
        return len(self.hashes)

    def select(self, rows: Bools) -> KeyRows:
        """The rows at these positions, or of this mask."""
        return KeyRows(
            self.hashes[rows], self.phy_offsets[rows], self.store_timestamps[rows], self.is_tag[rows]
        )


class _Topics:
    """Topics by number, and what they contribute to the hashes of keys."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.names: list[str] = []
        self.key_prefixes: Codes = np.empty(0, np.uint32)
        self.tag_prefixes: Codes = np.empty(0, np.uint32)

    def numbers(self, raw_topics: list[bytes]) -> Int64s:
        """The number of each; new ones get one."""
        for raw in set(raw_topics).difference(self._numbers):
            self._add(raw)
        return np.fromiter(map(self._numbers.__getitem__, raw_topics), np.int64, len(raw_topics))

    def _add(self, raw: bytes) -> None:
        name = raw.decode("utf-8", "replace")
        self._numbers[raw] = len(self.names)
        self.names.append(name)
        self.key_prefixes = np.append(self.key_prefixes, _code(f"{name}#"))
        self.tag_prefixes = np.append(self.tag_prefixes, _code(f"{name}#T#"))


def _code(text: str) -> np.uint32:
    return np.uint32(java_hash_code(text) & 0xFFFFFFFF)


class CheckWindow:
    """Collects records. Empty it with `take` when it `is_full`."""

    def __init__(self, delay_levels: tuple[int, ...]) -> None:
        self._delay_levels = delay_levels
        self._topics = _Topics()
        self._clear()

    def _clear(self) -> None:
        self._records = 0
        self._queue_numbers: list[Int64s] = []
        self._queue_rows: list[QueueRows] = []
        self._key_rows: list[KeyRows] = []

    @property
    def is_full(self) -> bool:
        """Time to compare what is in it."""
        return self._records >= MAX_RECORDS

    # -- filling ---------------------------------------------------------------------------------

    def add(self, columns: RecordColumns) -> None:
        """Take records, which follow those of before."""
        self._records += len(columns)
        properties = PropertyColumns.of(columns.properties)
        hashes = SpanHashes(properties.joined)
        topics = self._topics.numbers(columns.topics)
        tags = properties.spans(MessageConst.PROPERTY_TAGS)
        tags_codes = hashes.codes(tags)
        self._add_units(columns, properties, topics, self._tags_codes(columns, properties, tags, tags_codes))
        self._add_keys(columns, properties, hashes, topics, tags, tags_codes)

    def _add_units(
        self, columns: RecordColumns, properties: PropertyColumns, topics: Int64s, codes: Int64s
    ) -> None:
        kind = columns.sys_flags & TRANSACTION_MASK
        is_in_queue = (
            (kind != TRANSACTION_PREPARED)
            & (kind != TRANSACTION_ROLLBACK)
            & (columns.sys_flags & _INNER_BATCH == 0)
        )
        rows = np.flatnonzero(is_in_queue)
        every = QueueRows(columns.queue_offsets, columns.phy_offsets, columns.sizes, codes)
        self._queue_numbers.append(_queue_numbers(topics, columns.queue_ids)[rows])
        self._queue_rows.append(every.select(rows))
        self._add_multi(every, columns.queue_ids, properties)

    def _tags_codes(
        self, columns: RecordColumns, properties: PropertyColumns, tags: Spans, tags_codes: HashCodes
    ) -> Int64s:
        """The tags code of each record; delivery times where messages are delayed."""
        codes = np.zeros(len(columns), np.int64)
        codes[tags.rows] = tags_codes.codes.view(np.int32)
        if SCHEDULE_TOPIC.encode() in columns.topics:
            self._set_delivery_times(codes, columns, properties)
        return codes

    def _set_delivery_times(self, codes: Int64s, columns: RecordColumns, properties: PropertyColumns) -> None:
        for row, level in properties.values(MessageConst.PROPERTY_DELAY_TIME_LEVEL).items():
            if columns.topics[row] == SCHEDULE_TOPIC.encode() and level.isdigit() and int(level) > 0:
                stored = int(columns.store_timestamps[row])
                codes[row] = deliver_timestamp(self._delay_levels, int(level), stored)

    def _add_multi(self, every: QueueRows, queue_ids: Int64s, properties: PropertyColumns) -> None:
        """Records that stand in further queues too, at offsets they name (light queues)."""
        names = properties.values(MessageConst.PROPERTY_INNER_MULTI_DISPATCH)
        if not names:
            return
        offsets = properties.values(MessageConst.PROPERTY_INNER_MULTI_QUEUE_OFFSET)
        for row, name_list in names.items():
            places = offsets.get(row, b"").split(b",")
            for name, queue_offset in zip(name_list.split(b","), places, strict=False):
                if name and b"/" not in name and queue_offset.isdigit():
                    queue_id = 0 if name.startswith(_LMQ_PREFIX.encode()) else int(queue_ids[row])
                    self._add_further(every.part(row, row + 1), name, queue_id, int(queue_offset))

    def _add_further(self, record: QueueRows, topic: bytes, queue_id: int, queue_offset: int) -> None:
        number = _queue_numbers(self._topics.numbers([topic]), np.array([queue_id], np.int64))
        place = np.array([queue_offset], np.int64)
        self._queue_numbers.append(number)
        self._queue_rows.append(QueueRows(place, record.phy_offsets, record.sizes, record.tags_codes))

    def _add_keys(
        self,
        columns: RecordColumns,
        properties: PropertyColumns,
        hashes: SpanHashes,
        topics: Int64s,
        tags: Spans,
        tags_codes: HashCodes,
    ) -> None:
        uniq_keys = properties.spans(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        keys = properties.word_spans(properties.spans(MessageConst.PROPERTY_KEYS))
        rows = np.concatenate((uniq_keys.rows, keys.rows, tags.rows))
        kinds = np.repeat([0, 1, 2], [len(uniq_keys.rows), len(keys.rows), len(tags.rows)])
        prefixes = self._topics.key_prefixes[topics]
        codes = np.concatenate(
            (
                hashes.codes(uniq_keys).after(prefixes[uniq_keys.rows]),
                hashes.codes(keys).after(prefixes[keys.rows]),
                tags_codes.after(self._topics.tag_prefixes[topics][tags.rows]),
            )
        )
        order = np.argsort(rows * 4 + kinds, kind="stable")
        order = order[columns.sys_flags[rows[order]] & TRANSACTION_MASK != TRANSACTION_ROLLBACK]
        rows = rows[order]
        self._key_rows.append(
            KeyRows(
                key_hashes(codes[order]),
                columns.phy_offsets[rows],
                columns.store_timestamps[rows],
                kinds[order] == 2,
            )
        )

    # -- emptying --------------------------------------------------------------------------------

    def take(self) -> tuple[list[tuple[QueueKey, QueueRows]], KeyRows]:
        """What was collected: records by queue, and all keys. The window is empty afterwards."""
        queues = list(self._by_queue())
        keys = _joined_keys(self._key_rows)
        self._clear()
        return queues, keys

    def _by_queue(self) -> Iterator[tuple[QueueKey, QueueRows]]:
        if not self._queue_rows:
            return
        numbers = np.concatenate(self._queue_numbers)
        order = np.argsort(numbers, kind="stable")
        rows = _joined_rows(self._queue_rows).select(order)
        ordered = numbers[order]
        bounds = [*np.flatnonzero(np.diff(ordered, prepend=-1)).tolist(), len(ordered)]
        for first, last in pairwise(bounds):
            number = int(ordered[first])
            queue_id = (number & 0xFFFFFFFF) - (number & 0x80000000) * 2
            yield (self._topics.names[number >> 32], queue_id), rows.part(first, last)


def _queue_numbers(topics: Int64s, queue_ids: Int64s) -> Int64s:
    return (topics << 32) | (queue_ids & 0xFFFFFFFF)


def _joined_rows(rows: list[QueueRows]) -> QueueRows:
    return QueueRows(
        np.concatenate([some.queue_offsets for some in rows]),
        np.concatenate([some.phy_offsets for some in rows]),
        np.concatenate([some.sizes for some in rows]),
        np.concatenate([some.tags_codes for some in rows]),
    )


def _joined_keys(rows: list[KeyRows]) -> KeyRows:
    nothing = np.empty(0, np.int64)
    return KeyRows(
        np.concatenate([nothing, *(some.hashes for some in rows)]),
        np.concatenate([nothing, *(some.phy_offsets for some in rows)]),
        np.concatenate([nothing, *(some.store_timestamps for some in rows)]),
        np.concatenate([np.empty(0, np.bool_), *(some.is_tag for some in rows)]),
    )
