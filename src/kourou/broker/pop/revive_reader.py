"""ReviveReader: notes which check points the timers have delivered to the revive queues, and how far these
are done with.

The progress of a queue is the consumer offset of RocketMQ's group for it: a broker that goes on with the
store reads behind it. Acks are known before they arrive; they are read only behind a check point that is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.record_reads import read_records_at
from kourou.errors import ProtocolError, StorageError
from kourou.protocol.bodies import decode_body
from kourou.protocol.names import REVIVE_GROUP
from kourou.protocol.pop.revive_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    CheckPointBody,
    PopAckBody,
    PopBatchAckBody,
)
from kourou.protocol.record import decode_record
from kourou.protocol.tags import tags_code
from kourou.store.queue.cq_unit import UNIT, CqUnit

if TYPE_CHECKING:
    from kourou.broker.pop.check_points import CheckPointTable
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.protocol.layout import Buffer
    from kourou.protocol.message import MessageExt
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

CHECK_POINT_CODE: Final = tags_code(CHECK_POINT_TAG)
ACK_CODE: Final = tags_code(ACK_TAG)
BATCH_ACK_CODE: Final = tags_code(BATCH_ACK_TAG)
READ_UNITS: Final = 500
_PROGRESS_S: Final = 1.0
_AFTER_FAILURE_S: Final = 1.0
_SURPRISE_MS: Final = 1_500
"""The acks of a check point follow it within a slot of the timers."""
_HOST: Final = "pop-revive"


class ReviveReader:
    """Reads the revive queues of one broker."""

    def __init__(
        self,
        *,
        topic: str,
        table: CheckPointTable,
        own_broker: str,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueues,
        commit_log: CommitLog,
        records: RecordReader,
        disk: DiskThreads,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._table = table
        self._own_broker = own_broker
        self._offsets = offsets
        self._queues = queues
        self._commit_log = commit_log
        self._records = records
        self._disk = disk
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._grown = asyncio.Event()
        self._grown_ids: set[int] = set()
        self._surprised_ms = -_SURPRISE_MS

    def arrived(self, queues: Iterable[ConsumeQueue]) -> None:
        """Queues of its topic have grown."""
        for queue in queues:
            self._grown_ids.add(queue.queue_id)
            self._grown.set()

    def start(self, tasks: TaskOwner) -> None:
        """Begin to read what is there, and what comes."""
        self._grown_ids.update(self._queues.queue_ids(self._topic))
        self._grown.set()
        tasks.start(self._run(), "pop-revive-queues")
        tasks.start(self._commit(), "pop-progress")

    async def _run(self) -> None:
        while True:
            await self._grown.wait()
            self._grown.clear()
            grown, self._grown_ids = self._grown_ids, set()
            for queue_id in sorted(grown):
                try:
                    await self._read(queue_id)
                except (OSError, StorageError) as error:
                    _log.error("%s/%d cannot be read now, retrying: %s", self._topic, queue_id, error)
                    self._grown_ids.add(queue_id)
            if self._grown_ids and not self._grown.is_set():
                await asyncio.sleep(_AFTER_FAILURE_S)
                self._grown.set()

    async def _read(self, queue_id: int) -> None:
        """Read a queue to its end."""
        table = self._table
        while (queue := self._queues.find(self._topic, queue_id)) is not None:
            queue_offset = max(table.last_read(queue_id) + 1, queue.min_queue_offset)
            if queue_offset >= queue.max_queue_offset:
                return
            raw = queue.read_units_nowait(queue_offset, READ_UNITS)
            if raw is None:
                raw = await self._disk.run(queue.read_units, queue_offset, READ_UNITS)
            units = [CqUnit(*fields) for fields in UNIT.iter_unpack(raw)]
            if not units:  # a file of the queue is missing
                behind = queue_offset - queue_offset % queue.units_per_file + queue.units_per_file
                table.read(queue_id, min(behind, queue.max_queue_offset) - 1)
                continue
            await self._apply(queue_id, queue_offset, units)
            await asyncio.sleep(0)

    async def _apply(self, queue_id: int, queue_offset: int, units: list[CqUnit]) -> None:
        wants_acks = self._monotonic_ms() - self._surprised_ms < 2 * _SURPRISE_MS
        rows = [
            (queue_offset + row, unit)
            for row, unit in enumerate(units)
            if unit.tags_code == CHECK_POINT_CODE or wants_acks
        ]
        records = await read_records_at(self._commit_log, self._records, [unit for _, unit in rows])
        for (place, unit), raw in zip(rows, records, strict=True):
            record = decode_revive_record(raw)
            if record is None:
                _log.error("%s/%d, offset %d cannot be read", self._topic, queue_id, place)
            elif unit.tags_code == CHECK_POINT_CODE:
                self._check_point(queue_id, place, record)
            else:
                apply_ack(self._table, record, unit.tags_code, self._own_broker)
        self._table.read(queue_id, queue_offset + len(units) - 1)

    def _check_point(self, queue_id: int, place: int, record: MessageExt) -> None:
        table = self._table
        # A record that the timers have delivered says what it was made from.
        origins = (record.prepared_transaction_offset - 1, record.phy_offset)
        table.delivered(origins[0])
        if any(map(table.is_settled, origins)):
            table.forget_settled(origins)
            return
        body = decode_check_point(record)
        if body is None:
            return
        found = table.find(body.key(self._own_broker))
        if found is None:
            # Of a wheel that was rebuilt, or entered again on its way: its acks may be behind it.
            self._surprised_ms = self._monotonic_ms()
            remaining_ms = remaining_time(body, self._now_ms())
            found = table.add(
                body,
                revive_queue_id=queue_id,
                due_ms=self._surprised_ms + max(remaining_ms, 0) + _SURPRISE_MS,
                phy_offset=record.phy_offset,
                is_waiting=False,
            )
        if found is not None:
            table.place(found, place)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            self.commit()

    def commit(self) -> None:
        """Have the consumer offsets say how far the revive queues are done with."""
        for queue_id in self._queues.queue_ids(self._topic):
            progress = self._table.progress(queue_id)
            if progress > self._offsets.query(REVIVE_GROUP, self._topic, queue_id):
                self._offsets.commit(REVIVE_GROUP, self._topic, queue_id, progress, _HOST)


def remaining_time(body: CheckPointBody, now_ms: int) -> int:
    """How long messages stay invisible that were popped by an earlier process: not longer than they were to,
    if the clock was set back since."""
    return min(body.pop_time + body.invisible_time - now_ms, body.invisible_time)


def decode_revive_record(raw: Buffer | None) -> MessageExt | None:
    """A record of the revive topic; None: it is gone or damaged."""
    try:
        return None if raw is None else decode_record(raw)
    except ProtocolError:
        return None


def decode_check_point(record: MessageExt) -> CheckPointBody | None:
    """The check point of a record; None: it is none."""
    try:
        return decode_body(record.stored_body, CheckPointBody)
    except ProtocolError as error:
        _log.error("the check point at %d cannot be read: %s", record.phy_offset, error)
        return None


def decode_ack(record: MessageExt, code: int) -> PopAckBody | None:
    """The ack of a record with this code of its tag; None: it is none."""
    if code not in (ACK_CODE, BATCH_ACK_CODE):
        return None
    try:
        return decode_body(record.stored_body, PopAckBody if code == ACK_CODE else PopBatchAckBody)
    except ProtocolError as error:
        _log.error("the ack at %d cannot be read: %s", record.phy_offset, error)
        return None


def apply_ack(
    table: CheckPointTable, record: MessageExt, code: int, own_broker: str, *, is_waiting: bool = False
) -> bool:
    """Have the table know an ack; False: its check point is not open."""
    ack = decode_ack(record, code)
    found = None if ack is None else table.find(ack.key(own_broker))
    if ack is None or found is None:
        return False
    table.finish(found, found.bits_of(ack.queue_offsets), record.phy_offset if is_waiting else None)
    return True
