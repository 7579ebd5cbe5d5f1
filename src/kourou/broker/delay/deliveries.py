"""Deliveries: messages whose time has come, put in one commit cycle, of which all are stored or none.

For the delay levels and for timers. A delivered record names the one it was made from
(delivered_records.py). Not here: which messages are due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.delay.delivered_records import mark_of
from kourou.protocol.layout import Buffer
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC
from kourou.protocol.properties import MessageConst, PropertyScanner
from kourou.protocol.tags import tags_code
from kourou.store.log.dispatch_request import index_keys
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.queue.cq_unit import CqUnit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

DELIVERY_MESSAGES: Final = 500
"""In one commit cycle at most: other requests wait so long."""
DELIVERY_BYTES: Final = 256 * 1024
"""The same, but for a message that is larger by itself."""

_scan: Final = PropertyScanner(
    MessageConst.PROPERTY_REAL_TOPIC,
    MessageConst.PROPERTY_REAL_QUEUE_ID,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    MessageConst.PROPERTY_TAGS,
    MessageConst.PROPERTY_KEYS,
).values


class Target(NamedTuple):
    """Where a message goes whose time has come, and what it is found by there."""

    topic: str
    queue_id: int
    uniq_key: str | None
    tags: str | None
    keys: str | None


def target_of(properties: str) -> Target | None:
    """What the properties of a waiting message say; None when they name no place that can be."""
    topic, queue_id, uniq_key, tags, keys = _scan(properties)
    if not topic or topic == RMQ_SYS_TRANS_HALF_TOPIC or not queue_id or not queue_id.isdecimal():
        return None
    return Target(topic, int(queue_id), uniq_key, tags, keys)


async def read_records_at(
    log: CommitLog, reader: RecordReader, units: Sequence[CqUnit]
) -> list[Buffer | None]:
    """The records of `units`; None where one is gone. What is not in memory a disk thread reads."""
    records = [log.read_nowait(unit.phy_offset, unit.size) if unit.is_message else None for unit in units]
    if None not in records:
        return records
    return await reader.read(
        lambda reads: [reads.record(unit.phy_offset) if unit.is_message else None for unit in units],
    )


class Deliveries:
    """The puts of one commit cycle, which is open: nothing may be awaited before `store`."""

    def __init__(self, cycles: Cycles, appender: LogAppender, queues: ConsumeQueues) -> None:
        self._cycles = cycles
        self._queue = queues.get
        self._put = appender.put
        self._waiting = 0
        self._status = PutStatus.PUT_OK
        self.refusal: PutRefusedError | None = None
        self.count = 0
        self.size_bytes = 0

    def __str__(self) -> str:
        return str(self.refusal) if self.refusal is not None else self._status.name

    def put(self, record: MessageExt, target: Target, properties: bytes | None = None) -> bool:
        """Add what was stored as `record`, for its `target` and perhaps with other properties; False
        when the store refuses it (`refusal`): those before it stay."""
        try:
            self._put(
                self._queue(target.topic, target.queue_id),
                record.stored_body,
                record.raw_properties if properties is None else properties,
                tags_code(target.tags),
                index_keys(target.uniq_key, target.keys),
                record.born_timestamp,
                record.raw_born_host,
                record.sys_flag,
                record.flag,
                record.reconsume_times,
                mark_of(record.phy_offset),
                self._done,
                False,
            )
        except PutRefusedError as refusal:
            self.refusal = refusal
            return False
        self._waiting += 1
        self.count += 1
        self.size_bytes += record.store_size
        return True

    def store(self) -> bool:
        """End the commit cycle here and now: they must not wait for what else this iteration brings. False:
        nothing of them is in the log. Nobody else gets a turn between the first put and this."""
        if self._waiting:
            self._cycles.renew()
        return not self._waiting and self._status.is_stored

    def _done(self, status: PutStatus, _: int, __: int) -> None:
        self._waiting -= 1
        if status is not PutStatus.PUT_OK and not status.is_stored:
            self._status = status


class DeliveryWriter:
    """Opens commit cycles for deliveries of one broker."""

    def __init__(
        self, *, cycles: Cycles, appender: LogAppender, queues: ConsumeQueues, now_ms: Callable[[], int]
    ) -> None:
        self._cycles = cycles
        self._appender = appender
        self._queues = queues
        self._now_ms = now_ms

    def begin(self, *, due_ms: int) -> Deliveries:
        """Deliveries of messages that are due at `due_ms`."""
        self._cycles.open()
        if self._appender.begin_cycle(self._now_ms()) < due_ms:
            # The open commit cycle began before: its records would say that they were stored too early.
            self._cycles.renew()
        return Deliveries(self._cycles, self._appender, self._queues)
