"""ColumnsDispatcher: takes many records of the log at once, for long walks.

A gigabyte of log has millions of records; taken one by one each costs ten times as much. Only what is
plain is done here: records that continue their queues without a gap. All else goes through
`Dispatcher.dispatch`, which knows what to do about it, and ends in the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kourou.protocol.layout import (
    MAX_TOPIC_BYTES_V1,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from kourou.protocol.properties import MessageConst, properties_from_bytes
from kourou.protocol.property_columns import PropertyColumns
from kourou.protocol.record_spans import Int64s
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.dispatcher import Dispatcher
from kourou.store.index.index_service import IndexService
from kourou.store.kernel import ReadQueue, ReadRecords
from kourou.store.log.dispatch_request import index_keys
from kourou.store.log.record_columns import RecordColumns
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import UNIT_BYTES, UNIT_TYPE

_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()

_Group = tuple[ConsumeQueue, NDArray[np.intp]]


class ColumnsDispatcher:
    """Beside a `Dispatcher`, for the same queues and index."""

    def __init__(self, dispatcher: Dispatcher, queues: ConsumeQueues, index: IndexService | None) -> None:
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index

    def dispatch(self, columns: RecordColumns) -> list[ConsumeQueue] | None:
        """Take records that follow each other in the log; the queues that grew. None: nothing was done, they
        have to be taken one by one."""
        first, last = int(columns.phy_offsets[0]), int(columns.phy_offsets[-1])
        if first < self._dispatcher.dispatched_phy_offset or not _is_plain(columns):
            return None
        queued = self._dispatcher.queued_phy_offset
        if first < queued <= last:
            return None
        groups = self._groups(columns) if first >= queued else []
        if groups is None:
            return None
        properties = PropertyColumns.of(columns.properties)
        self._append_units(groups, columns, properties)
        self._collect_keys(columns, properties)
        self._dispatcher.dispatched_phy_offset = int(columns.phy_offsets[-1] + columns.sizes[-1])
        self._dispatcher.dispatched_timestamp = int(columns.store_timestamps[-1])
        return [queue for queue, _ in groups]

    def dispatch_read(self, records: ReadRecords, phy_offset: int) -> int:
        """Take the records from `phy_offset` on, as the kernel has read them; how many. 0: nothing was done,
        Python has to read them."""
        dispatcher = self._dispatcher
        end_phy_offset, _, _, read_queues, _ = records
        queued = dispatcher.queued_phy_offset
        if phy_offset < dispatcher.dispatched_phy_offset or phy_offset < queued < end_phy_offset:
            return 0
        if phy_offset >= queued:
            # All queues before one of them grows: a record that does not continue its queue may end the log.
            if not all(self._is_continued(queue, phy_offset) for queue in read_queues):
                return 0
            dispatcher.dispatch_read(records, phy_offset)
        else:
            dispatcher.index_read(records)
        return sum(len(units) for *_, units in read_queues) // UNIT_BYTES

    def _is_continued(self, read: ReadQueue, phy_offset: int) -> bool:
        topic, queue_id, queue_offset, _ = read
        queue = self._queues.get(topic, queue_id)
        return queue.max_queue_offset == queue_offset and queue.max_phy_offset <= phy_offset

    # -- queues ----------------------------------------------------------------------------------

    def _groups(self, columns: RecordColumns) -> list[_Group] | None:
        """The rows of each queue; None if one of them is not simply continued by them."""
        rows: dict[tuple[bytes, int], list[int]] = {}
        for row, name in enumerate(zip(columns.topics, columns.queue_ids.tolist(), strict=True)):
            rows.setdefault(name, []).append(row)
        listed_rows = is_listed(columns.sys_flags)
        groups = []
        for (raw_topic, queue_id), of_queue in rows.items():
            topic = str(raw_topic, "utf-8", "replace")
            if queue_id < 0 or "/" in topic or "\0" in topic or topic in ("", ".", ".."):
                return None
            listed = np.array(of_queue, np.intp)
            listed = listed[listed_rows[listed]]
            if listed.size:
                queue = self._queues.get(topic, queue_id)
                if not _continues(queue, columns, listed):
                    return None
                groups.append((queue, listed))
        return groups

    def _append_units(
        self, groups: Sequence[_Group], columns: RecordColumns, properties: PropertyColumns
    ) -> None:
        units = np.empty(len(columns), UNIT_TYPE)
        units["phy_offset"] = columns.phy_offsets
        units["size"] = columns.sizes
        units["tags_code"] = 0
        tags = properties.values(MessageConst.PROPERTY_TAGS)
        units["tags_code"][list(tags)] = _tags_codes(list(tags.values()))
        for queue, rows in groups:
            last = rows[-1]
            end_phy_offset = int(columns.phy_offsets[last] + columns.sizes[last])
            queue.append_units(units[rows].tobytes(), rows.size, end_phy_offset)
            queue.next_queue_offset = queue.max_queue_offset

    # -- index -----------------------------------------------------------------------------------

    def _collect_keys(self, columns: RecordColumns, properties: PropertyColumns) -> None:
        index = self._index
        if index is None:
            return
        end_phy_offset = index.end_phy_offset
        for row in keys_of(columns, properties):
            if row[2] >= end_phy_offset:
                index.collect(*row)


def keys_of(
    columns: RecordColumns, properties: PropertyColumns | None = None
) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
    """What is to be indexed: topic, keys, phy_offset and store time of each record that has keys."""
    properties = PropertyColumns.of(columns.properties) if properties is None else properties
    is_indexed = (columns.sys_flags & TRANSACTION_MASK) != TRANSACTION_ROLLBACK
    uniq_keys = _texts(properties, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    keys = _texts(properties, MessageConst.PROPERTY_KEYS)
    topics = {topic: str(topic, "utf-8", "replace") for topic in set(columns.topics)}
    phy_offsets, timestamps = columns.phy_offsets.tolist(), columns.store_timestamps.tolist()
    for row in np.flatnonzero(is_indexed).tolist():
        words = index_keys(uniq_keys.get(row), keys.get(row))
        if words:
            yield topics[columns.topics[row]], words, phy_offsets[row], timestamps[row]


def _is_plain(columns: RecordColumns) -> bool:
    """False where the record's own text has to be looked at: delayed messages, long topics, zeros."""
    return (
        _SCHEDULE_TOPIC not in columns.topics
        and max(map(len, columns.topics)) <= MAX_TOPIC_BYTES_V1
        and not any(b"\0" in properties for properties in columns.properties)
    )


def is_listed(sys_flags: Int64s) -> NDArray[np.bool_]:
    """Which records have a place in their queue: not those of prepared and rolled back transactions."""
    kinds = sys_flags & TRANSACTION_MASK
    listed: NDArray[np.bool_] = (kinds != TRANSACTION_PREPARED) & (kinds != TRANSACTION_ROLLBACK)
    return listed


def _continues(queue: ConsumeQueue, columns: RecordColumns, rows: NDArray[np.intp]) -> bool:
    """Whether these records are the queue's next, none missing and none there already."""
    first = queue.max_queue_offset
    if int(columns.phy_offsets[rows[0]]) < queue.max_phy_offset:
        return False
    return bool((columns.queue_offsets[rows] == np.arange(first, first + rows.size)).all())


def _tags_codes(tags: Sequence[bytes]) -> list[int]:
    codes = {tag: tags_code(properties_from_bytes(tag)) for tag in set(tags)}
    return [codes[tag] for tag in tags]


def _texts(properties: PropertyColumns, name: str) -> dict[int, str]:
    return {row: raw.decode("utf-8", "replace") for row, raw in properties.values(name).items()}
