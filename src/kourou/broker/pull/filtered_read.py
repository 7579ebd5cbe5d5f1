"""FilteredRead: one pull's way through a queue under a filter by property, step by step.

A step judges what takes about a millisecond. Between steps others have their turn, or a thread reads what
is not in memory. It ends when enough was found, when `maxFilterMessageSize` is used up, or with the queue;
with nothing found the client hears where to go on, and asks again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kourou.broker.pull.record_matcher import RecordMatcher
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus
from kourou.store.read.transfer_limits import TransferLimits

if TYPE_CHECKING:
    from kourou.broker.pull.long_polling import Pull
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.get_message import MessageReader

_INSIDE: Final = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


class FilteredRead:
    """The steps of one pull. `result` is what they have found together."""

    def __init__(
        self,
        queues: ConsumeQueues,
        reader: MessageReader,
        disk: DiskThreads,
        pull: Pull,
        matcher: RecordMatcher,
        limits: TransferLimits,
    ) -> None:
        self._queues = queues
        self._reader = reader
        self._disk = disk
        self._pull = pull
        self._limits = limits
        self._matcher = matcher
        self._next_offset = pull.header.queue_offset
        self._end_offset = self._next_offset + reader.max_filter_units
        self._cold_queue: ConsumeQueue | None = None
        self.result: GetMessageResult | None = None
        self.is_done = False

    def step(self, units: bytes | None = None) -> None:
        """Judge what is in memory, for a while; `units` are the next ones of the queue, where they had to
        be read. What is not in memory is left to `wait`."""
        header = self._pull.header
        queue = self._find_queue()
        if queue is not None and units is None:
            units = queue.read_units_nowait(self._next_offset, self._units_left)
            if units is None:
                self._cold_queue = queue
                return
        self._matcher.renew()
        part = self._reader.get_message(
            queue,
            self._next_offset,
            header.max_msg_nums,
            max_bytes=header.max_msg_bytes,
            limits=self._limits,
            found=self.result,
            matcher=self._matcher,
            units=units,
        )
        self._add(part)

    def _find_queue(self) -> ConsumeQueue | None:
        return self._queues.find(*self._pull.key)

    @property
    def _units_left(self) -> int:
        return max(1, self._end_offset - self._next_offset)

    async def wait(self) -> None:
        """Let others have their turn, or have read what the next step needs; that step is made too."""
        queue, self._cold_queue = self._cold_queue, None
        units = None
        if queue is not None:
            units = await self._disk.run(queue.read_units, self._next_offset, self._units_left)
            if self._find_queue() is not queue:  # its topic was deleted, and may be there again
                units = None
        elif (log_file := self._matcher.cold_file) is not None:
            log_file.pin()
            try:
                await self._disk.run(self._matcher.load, log_file)
            finally:
                log_file.unpin()
        else:
            await asyncio.sleep(0)
        self.step(units)

    def _add(self, part: GetMessageResult) -> None:
        whole = self.result
        self._next_offset = part.next_begin_offset
        if whole is None:
            whole = self.result = part
        elif part.status in _INSIDE:
            whole.extend(part)
        self.is_done = (
            part.status not in _INSIDE
            or whole.is_full
            or self._next_offset >= min(self._end_offset, part.max_offset)
        )
