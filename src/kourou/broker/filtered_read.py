"""FilteredRead: one pull's way through a queue under a filter by property, step by step.

A step judges what takes about a millisecond. Between steps others have their turn, or a thread reads what
is not in memory. It ends when enough was found, when `maxFilterMessageSize` is used up, or with the queue;
with nothing found the client hears where to go on, and asks again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kourou.broker.record_judge import RecordJudge
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.get_message import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from kourou.broker.long_polling import Pull
    from kourou.broker.services import BrokerServices

_INSIDE: Final = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


class FilteredRead:
    """The steps of one pull. `result` is what they have found together."""

    def __init__(self, services: BrokerServices, pull: Pull, judge: RecordJudge) -> None:
        self._services = services
        self._pull = pull
        self._judge = judge
        self._next_offset = pull.header.queue_offset
        self._end_offset = self._next_offset + services.store.config.max_filter_units
        self._cold_queue: ConsumeQueue | None = None
        self.result: GetMessageResult | None = None
        self.is_done = False

    def step(self, *, may_read_units: bool = False) -> None:
        """Judge what is in memory, for a while. Units of the queue that are not are left to `wait`."""
        header = self._pull.header
        queue = self._services.store.queues.find(header.topic, header.queue_id)
        if queue is not None and not may_read_units and is_cold(queue, self._next_offset):
            self._cold_queue = queue
            return
        self._judge.renew()
        found = 0 if self.result is None else self.result.message_count
        part = self._services.store.reader.get_message(
            queue,
            self._next_offset,
            max(1, header.max_msg_nums - found),
            max_bytes=header.max_msg_bytes,
            judge=self._judge,
        )
        self._add(part)

    async def wait(self) -> None:
        """Let others have their turn, or have read what the next step needs; that step is made too."""
        queue, self._cold_queue = self._cold_queue, None
        if queue is not None:
            units = self._services.store.config.max_filter_units
            await self._services.in_disk_thread(queue.read_units, self._next_offset, units)
        elif (log_file := self._judge.cold_file) is not None:
            log_file.pin()
            try:
                await self._services.in_disk_thread(self._judge.load, log_file)
            finally:
                log_file.unpin()
        else:
            await asyncio.sleep(0)
        self.step(may_read_units=queue is not None)

    def _add(self, part: GetMessageResult) -> None:
        whole = self.result
        self._next_offset = part.next_begin_offset
        if whole is None:
            whole = self.result = part
        elif part.status in _INSIDE:
            _join(whole, part)
        self.is_done = (
            part.status not in _INSIDE
            or whole.message_count >= self._pull.header.max_msg_nums
            or self._judge.is_full
            or self._next_offset >= min(self._end_offset, part.max_offset)
        )


def _join(whole: GetMessageResult, part: GetMessageResult) -> None:
    whole.runs += part.runs
    whole.message_count += part.message_count
    whole.size_bytes += part.size_bytes
    whole.next_begin_offset = part.next_begin_offset
    whole.min_offset, whole.max_offset = part.min_offset, part.max_offset
    if part.message_count:
        whole.status = GetMessageStatus.FOUND
        whole.last_phy_offset = part.last_phy_offset


def is_cold(queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the units that a pull begins with have to come from disk."""
    if not queue.min_queue_offset <= queue_offset < queue.flushed_queue_offset:
        return False
    return queue.read_units_nowait(queue_offset, 1) is None
