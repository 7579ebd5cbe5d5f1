"""PopReader: the messages of one queue for a pop, from memory at once, or from disk in a thread.

As pulls are read (broker/pull): tags by the ConsumeQueue alone, properties in bounded steps, and reads of old
messages give way to sends. Not here: which queues, and from where on (pop_plan.py, pop_offsets.py).
"""

from __future__ import annotations

import enum
from time import perf_counter
from typing import TYPE_CHECKING, Final

from kourou.broker.pull.filtered_read import FilteredRead, PullMatcher, WantedMessages
from kourou.broker.settings import transfer_limits
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from kourou.broker.groups.message_filter import MessageFilter
    from kourou.broker.pull.cold_pulls import ColdReadThrottle
    from kourou.broker.pull.filtered_read import Matchers
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.get_message import MessageReader
    from kourou.store.read.transfer_limits import TransferLimits

ILLEGAL_OFFSET: Final = frozenset(
    {
        GetMessageStatus.OFFSET_TOO_SMALL,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.OFFSET_FOUND_NULL,
    }
)
"""There is nothing at this offset, and there will not be: the group continues at `next_begin_offset`."""
PASSED_OVER: Final = frozenset({GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING})
"""Nothing before `next_begin_offset` is for the group."""


class Cold(enum.Enum):
    """Why a read has to wait."""

    NEEDS_TURN = enum.auto()
    HAS_TURN = enum.auto()
    """For the disk only; its turn to read old messages has come."""


class PopReader:
    """Reads the queues of one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        queues: ConsumeQueues,
        reader: MessageReader,
        matchers: Matchers,
        disk: DiskThreads,
        turns: ColdReadThrottle,
        stats: BrokerStatsManager,
    ) -> None:
        self._config = config
        self._matchers = matchers
        self._queues = queues
        self._reader = reader
        self._disk = disk
        self._turns = turns
        self._stats = stats
        self._limits_config = config.current
        self._limits = transfer_limits(config.current)

    def limits(self) -> TransferLimits:
        """How much one read of a queue may bring, as configured now."""
        if self._limits_config is not self._config.current:
            self._limits_config = self._config.current
            self._limits = transfer_limits(self._limits_config)
        return self._limits

    def memory_bytes(self) -> int:
        """So many of the newest bytes of the log count as in memory."""
        return self.limits().memory_bytes

    # -- from memory -----------------------------------------------------------------------------

    def read_nowait(self, wanted: WantedMessages, selected: MessageFilter) -> GetMessageResult | Cold:
        """What is there at once, loaded; Cold: `read` has to wait for it."""
        if selected.wants is not None:
            return self._step(wanted, self._matchers.make(selected.wants))
        queue = self._queues.find(wanted.topic, wanted.queue_id)
        codes = selected.codes
        count = self._reader.units_wanted(wanted.max_messages, is_filtered=codes is not None)
        units = b"" if queue is None else queue.read_units_nowait(wanted.queue_offset, count)
        if units is None:
            return Cold.NEEDS_TURN
        is_old = self._reader.is_old(units)
        if is_old and not self._turns.take_nowait():
            return Cold.NEEDS_TURN
        result = self._get(wanted, selected, units)
        if result.is_loaded:
            if is_old:
                self._turns.spend(result.size_bytes)
            return result
        result.release()
        return Cold.HAS_TURN if is_old else Cold.NEEDS_TURN

    def _step(self, wanted: WantedMessages, matcher: PullMatcher) -> GetMessageResult | Cold:
        """One step under a filter by property. What it has found is enough, even if there may be more."""
        read = self._filtered(wanted, matcher)
        read.step()
        matcher.rest()
        result = read.result
        if result is None:
            return Cold.NEEDS_TURN
        if result.is_loaded and (read.is_done or result.message_count):
            return result
        result.release()
        return Cold.NEEDS_TURN

    def _get(self, wanted: WantedMessages, selected: MessageFilter, units: bytes) -> GetMessageResult:
        codes = selected.codes
        return self._reader.get_message(
            self._queues.find(wanted.topic, wanted.queue_id),
            wanted.queue_offset,
            wanted.max_messages,
            limits=self.limits(),
            tags_filter=None if codes is None else codes.__contains__,
            units=units,
        )

    def _filtered(self, wanted: WantedMessages, matcher: PullMatcher) -> FilteredRead:
        return FilteredRead(self._queues, self._reader, self._disk, wanted, matcher, self.limits())

    # -- from disk -------------------------------------------------------------------------------

    async def wait_turn(self, cold: Cold) -> None:
        """Return when an old message may be read."""
        if cold is Cold.NEEDS_TURN:
            await self._turns.wait()

    async def read(self, wanted: WantedMessages, selected: MessageFilter) -> GetMessageResult:
        """The same, loaded, with whatever it has to wait for."""
        began_s = perf_counter()
        if selected.wants is not None:
            result = await self._read_filtered(wanted, self._matchers.make(selected.wants))
        else:
            count = self._reader.units_wanted(wanted.max_messages, is_filtered=selected.codes is not None)
            units = await self.read_units(wanted.topic, wanted.queue_id, wanted.queue_offset, count)
            self._turns.resume()
            result = self._get(wanted, selected, units)
        self._turns.spend(result.size_bytes)
        try:
            if not result.is_loaded:
                await self._disk.run(result.load)
        finally:
            result.release()
        self._stats.get_latency((perf_counter() - began_s) * 1000)
        return result

    async def read_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        """Units of a queue, none where it is not there."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return b""
        units = queue.read_units_nowait(queue_offset, count)
        return await self._disk.run(queue.read_units, queue_offset, count) if units is None else units

    async def _read_filtered(self, wanted: WantedMessages, matcher: PullMatcher) -> GetMessageResult:
        read = self._filtered(wanted, matcher)
        try:
            read.step()
            while not read.is_done:
                await read.wait()
        except BaseException:
            if read.result is not None:
                read.result.release()
            raise
        assert read.result is not None, "a read that is done has a result"
        return read.result
