"""Pulls under a filter that looks at records: RecordMatcher, for a filter by property, and FilteredRead, one
pull's way through a queue.

RecordMatcher matches records without waiting for the disk. It reads the properties of one record
after the other in the log's window, and further back where the log is in the page cache. Its work is bounded:
after some records it matches none until it is renewed, so that other requests are served. A record that is on
disk only is recorded; `load`, in a thread, makes it available.

A step of FilteredRead takes about a millisecond. Between steps other requests are served, a thread reads what
is not in memory, or an installed filter judges records (plugin_matcher.py). It ends when enough was found,
when `maxFilterMessageSize` is used up, or with the queue; with nothing found the response has the offset at
which to continue.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kourou.broker.filters.plugin_host import PluginFilter
from kourou.broker.groups.message_filter import PropertyFilter
from kourou.broker.pull.plugin_matcher import BATCH_MESSAGES, PluginMatcher
from kourou.protocol.layout import Buffer
from kourou.protocol.record_fields import properties_start
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.log_file import LogFile
from kourou.store.log.log_regions import LogWindow
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus
from kourou.store.read.transfer_limits import TransferLimits

if TYPE_CHECKING:
    from kourou.broker.filters.plugin_host import PluginHost
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.get_message import MessageReader

# About a millisecond: 280 records with one comparison each, fewer with more.
WORK_PER_TURN: Final = 2_000
_WORK_PER_RECORD: Final = 4
# Copying so much out of the page cache takes about as long as a term of a filter.
_BYTES_PER_WORK: Final = 2048
_BLOCK_BYTES: Final = 64 * 1024
# A trip to the disk costs more than what it brings.
_COLD_BLOCK_BYTES: Final = 1024 * 1024
_NOTHING: Final = LogWindow(memoryview(b""), 0, 0, 0)
_INSIDE: Final = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


class RecordMatcher:
    """Judges records of one log for one pull. Owned by the loop's thread."""

    __slots__ = (
        "_cold",
        "_end",
        "_log",
        "_low",
        "_matches",
        "_start",
        "_view",
        "_work_left",
        "_work_per_record",
    )

    def __init__(self, log: CommitLog, wants: PropertyFilter) -> None:
        self._log = log
        self._matches = wants.matches_bytes
        self._work_per_record = _WORK_PER_RECORD + wants.terms
        self._view, self._start, self._low, self._end = _NOTHING
        self._work_left = WORK_PER_TURN
        self._cold: tuple[int, int] | None = None

    def __call__(self, phy_offset: int, size_bytes: int) -> bool | None:
        """Whether the record matches; None if that cannot be decided now."""
        if self._work_left <= 0:
            return None
        if not (self._low <= phy_offset and phy_offset + size_bytes <= self._end):
            if not self._find_window(phy_offset, size_bytes):
                self._cold = phy_offset, size_bytes
                return None
        self._work_left -= self._work_per_record
        view = self._view
        pos = phy_offset - self._start
        begin = properties_start(view, pos, size_bytes)
        return begin >= 0 and self._matches(view, begin, pos + size_bytes)

    def renew(self) -> None:
        """Allow another bounded number of records to be matched."""
        self._work_left = WORK_PER_TURN

    def rest(self) -> None:
        """Let go of the log, while a pull waits."""
        self._view, self._start, self._low, self._end = _NOTHING
        self._cold = None
        self.renew()

    # -- reading ---------------------------------------------------------------------------------

    def _find_window(self, phy_offset: int, size_bytes: int) -> bool:
        """Have the record in the view; False when it has to come from disk."""
        window = self._log.window_at(phy_offset) or self._log.region_at(phy_offset)
        if window is not None and phy_offset + size_bytes <= window.end:
            self._view, self._start, self._low, self._end = window
            return True
        # Bytes that are not written yet would be kept as they are now.
        block_bytes = max(size_bytes, min(_BLOCK_BYTES, self._log.max_phy_offset - phy_offset))
        for length in (block_bytes, size_bytes):
            raw = self._log.read_nowait(phy_offset, length)
            if raw is not None:
                self._work_left -= length // _BYTES_PER_WORK
                self._look_at(raw, phy_offset)
                return True
        return False

    def _look_at(self, raw: Buffer, phy_offset: int) -> None:
        self._view = memoryview(raw)
        self._start = self._low = phy_offset
        self._end = phy_offset + len(raw)

    @property
    def cold_file(self) -> LogFile | None:
        """The file with the record that is not in memory; None when nothing is to be loaded. To be
        pinned while `load` reads."""
        return None if self._cold is None else self._log.file_at(self._cold[0])

    def load(self, log_file: LogFile) -> None:
        """Read the record that is not in memory, and what follows it. In a disk thread; the loop leaves
        this object alone meanwhile."""
        assert self._cold is not None
        phy_offset, size_bytes = self._cold
        end = min(log_file.end_phy_offset, self._log.max_phy_offset)
        length = max(size_bytes, min(_COLD_BLOCK_BYTES, end - phy_offset))
        raw = log_file.file.pread(length, phy_offset - log_file.start_phy_offset)
        raw = raw.ljust(size_bytes, b"\0")  # of a record that is cut off: nothing matches that
        self._look_at(raw, phy_offset)
        self._cold = None


PullMatcher: TypeAlias = RecordMatcher | PluginMatcher
"""What judges the records of a pull."""


class Matchers:
    """Makes the matchers of one broker."""

    def __init__(self, log: CommitLog, records: RecordReader, plugins: PluginHost) -> None:
        self._log = log
        self._records = records
        self._plugins = plugins

    def make(self, wants: PropertyFilter | PluginFilter) -> PullMatcher:
        """What judges records by this filter."""
        if isinstance(wants, PluginFilter):
            return PluginMatcher(self._log, self._records, self._plugins, wants)
        return RecordMatcher(self._log, wants)


class WantedMessages(NamedTuple):
    """Which messages of a queue a consumer asks for, apart from its filter."""

    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int | None = None


class FilteredRead:
    """The steps of one pull. `result` is what they have found together."""

    def __init__(
        self,
        queues: ConsumeQueues,
        reader: MessageReader,
        disk: DiskThreads,
        wanted: WantedMessages,
        matcher: PullMatcher,
        limits: TransferLimits,
    ) -> None:
        self._queues = queues
        self._reader = reader
        self._disk = disk
        self._wanted = wanted
        self._limits = limits
        self._matcher = matcher
        self._next_offset = wanted.queue_offset
        self._end_offset = self._next_offset + reader.max_filter_units
        self._cold_queue: ConsumeQueue | None = None
        self.result: GetMessageResult | None = None
        self.is_done = False

    def step(self, units: bytes | None = None) -> None:
        """Judge what is in memory, for a while; `units` are the next ones of the queue, where they had to
        be read. What is not in memory is left to `wait`."""
        wanted = self._wanted
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
            wanted.max_messages,
            max_bytes=wanted.max_bytes,
            limits=self._limits,
            found=self.result,
            matcher=self._matcher,
            units=units,
        )
        self._add(part)

    def _find_queue(self) -> ConsumeQueue | None:
        return self._queues.find(self._wanted.topic, self._wanted.queue_id)

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
        elif isinstance(self._matcher, PluginMatcher):
            units = await self._decide(self._matcher)
        elif (log_file := self._matcher.cold_file) is not None:
            log_file.pin()
            try:
                await self._disk.run(self._matcher.load, log_file)
            finally:
                log_file.unpin()
        else:
            await asyncio.sleep(0)
        self.step(units)

    async def _decide(self, matcher: PluginMatcher) -> bytes | None:
        """Have the next records judged; the units that point to them, None if their queue is gone."""
        queue = self._find_queue()
        if queue is None:
            return None
        count = min(BATCH_MESSAGES, self._units_left)
        units = queue.read_units_nowait(self._next_offset, count)
        if units is None:
            units = await self._disk.run(queue.read_units, self._next_offset, count)
        await matcher.decide(units)
        return units if self._find_queue() is queue else None

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
