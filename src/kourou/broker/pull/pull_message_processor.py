"""PULL_MESSAGE: messages from a queue, at once, when they come, or when they are off the disk.

A pull is answered within its commit cycle if its messages are in memory. If they are not, a thread reads
them. If there are none and the client wants to wait, it waits (long_polling.py). A filter by property
may have to look at many to find few: it does so in steps (filtered_read.py). Of the pulls of one
connection that have to wait for the disk a few are under way at a time (cold_pulls.py), and
reads of old messages give way to sends (cold_pulls.py).

A slave serves pulls too, as in 4.9 whatever `slaveReadEnable` is. It does not correct offsets that it does
not have, since its master may have them, and as in 4.9 it ignores the offset that a pull commits: consumers
that continue at a slave commit by UPDATE_CONSUMER_OFFSET. A pull beyond its end waits like one at the end
while its master is away: Apache's slaves respond at once, and their clients pull again without a pause. While
the slave follows its master the response comes at once, so that the consumer returns to the master.
Not here: whether a group may pull, and what (pull_targets.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from kourou.broker.admission import ForbiddenType, PullForbiddenError
from kourou.broker.hooks import PullContext
from kourou.broker.pull.cold_pulls import ColdPullQueues, ColdReadThrottle
from kourou.broker.pull.filtered_read import FilteredRead, Matchers, PullMatcher, WantedMessages
from kourou.broker.pull.long_polling import Pull
from kourou.broker.pull.pull_answer import (
    answer_forbidden,
    answer_found,
    answer_moved,
    answer_none,
    leave_offset,
    pull_code,
)
from kourou.broker.pull.pull_targets import PullTarget, PullTargets
from kourou.broker.settings import transfer_limits
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus
from kourou.store.read.transfer_limits import TransferLimits
from kourou.transport.dispatcher import answer_failure
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.hooks import BrokerHooks
    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.get_message import MessageReader

_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET.value
_SUSPEND: Final = PullSysFlag.SUSPEND.value
_FOUND: Final = GetMessageStatus.FOUND
_PULL_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND


class PullMessageProcessor:
    """Handles the pulls of consumers."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        reader: MessageReader,
        max_transfer_bytes: int,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        holds: PullRequestHoldService,
        disk: DiskThreads,
        address: str,
        hooks: BrokerHooks,
        targets: PullTargets,
        matchers: Matchers,
        is_cut_off: Callable[[], bool],
        cold_pulls: ColdPullQueues,
        cold_reads: ColdReadThrottle,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._offsets = offsets
        self._floors = offsets.floors
        self._stats = stats
        self._holds = holds
        self._disk = disk
        self._address = address
        self._hooks = hooks
        self.targets = targets
        self._matchers = matchers
        self._is_slave = config.current.is_slave
        self._is_cut_off = is_cut_off
        self._lines = cold_pulls
        # Called with what is delivered to a consumer.
        self.on_delivery: Callable[[GetMessageResult], None] | None = None
        # Called with a request and how many messages and bytes go out for it, for the limits of accounts.
        self.charge: Callable[[Request, int, int], None] | None = None
        self._find_queue = queues.find
        self._reader = reader
        self.max_filter_units = reader.units_wanted(1, is_filtered=True)
        self._turns = cold_reads
        self.large_limits = TransferLimits.of_bytes(max_transfer_bytes)
        self._stock_limits = transfer_limits(config.current)
        self._limits_config = config.current

    def processors(self) -> dict[int, Processor]:
        """Who handles which request code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull,
        }

    def lite_pull(self, request: Request) -> None:
        """LITE_PULL_MESSAGE: the same, but it may be switched off."""
        if self._config.current.lite_pull_message_enable:
            self.pull(request)
            return
        remark = f"the broker[{self._address}] for lite pull consumer is forbidden"
        answer_forbidden(request, PullForbiddenError(ForbiddenType.BROKER_FORBIDDEN, remark))

    def pull(self, request: Request) -> None:
        """PULL_MESSAGE as a client sent it: it may wait, and its offset may be committed."""
        header = request.header(PullMessageRequestHeader)
        try:
            target = self.targets.find(request, header)
        except PullForbiddenError as refusal:
            answer_forbidden(request, refusal)
            return
        sys_flag = header.sys_flag
        if sys_flag & _COMMIT_OFFSET and not self._is_slave:
            self._offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                request.connection.remote_address,
            )
        matcher = None if target.wants is None else self._matchers.make(target.wants)
        self._serve(request, header, target, matcher, may_wait=sys_flag & _SUSPEND != 0)

    def resume(self, held: Pull) -> None:
        """Run a pull again that has waited; now it is answered, whatever there is, as soon as the peer
        has taken its other answers."""
        try:
            if held.request.connection.is_write_paused:
                self._lines.run(held.request, partial(self._resume_later, held))
                return
            target = self.targets.renew(held.request, held.header, held.target)
            self._serve(held.request, held.header, target, held.matcher, may_wait=False)
        except PullForbiddenError as refusal:
            answer_forbidden(held.request, refusal)
        except Exception as error:
            answer_failure(held.request, error)

    async def _resume_later(self, held: Pull) -> None:
        self.resume(held)
        await asyncio.sleep(0)  # there may be many, and others have their turn

    # -- serving ---------------------------------------------------------------------------------

    def _limits(self, header: PullMessageRequestHeader) -> TransferLimits:
        """How much the pull may get: Apache's limits, as configured now, unless it was negotiated that the
        numbers of the request rule."""
        return self.large_limits if header.kourou_large_pull else self.stock_limits

    @property
    def stock_limits(self) -> TransferLimits:
        """Apache's limits, as configured now."""
        if self._limits_config is not self._config.current:
            self._limits_config = self._config.current
            self._stock_limits = transfer_limits(self._limits_config)
        return self._stock_limits

    def _serve(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        target: PullTarget,
        matcher: PullMatcher | None,
        *,
        may_wait: bool,
    ) -> None:
        queue = self._find_queue(header.topic, header.queue_id)
        reset = self._offsets.take_reset(header.topic, header.consumer_group, header.queue_id)
        if reset is not None:
            low, high = (queue.min_queue_offset, queue.max_queue_offset) if queue is not None else (0, 0)
            answer_moved(request, reset, low, high, "OFFSET_RESET")
            return
        if self._floors.table:
            floor = self._floors.floor(header.consumer_group, header.topic, header.queue_id)
            if header.queue_offset < floor:
                low, high = (queue.min_queue_offset, queue.max_queue_offset) if queue is not None else (0, 0)
                answer_moved(request, floor, low, high, "OFFSET_BELOW_FLOOR")
                return
        if matcher is not None:
            self._serve_filtered(Pull(request, header, target, matcher), matcher, may_wait=may_wait)
            return
        reader = self._reader
        limits = self._limits(header)
        max_messages = header.max_msg_nums
        if max_messages > limits.max_messages:
            max_messages = limits.max_messages
        wanted = reader.units_wanted(max_messages, is_filtered=target.codes is not None)
        units = b"" if queue is None else queue.read_units_nowait(header.queue_offset, wanted)
        is_old = units is not None and reader.is_old(units)
        has_turn = is_old and self._turns.take_nowait()
        if units is not None and (has_turn or not is_old):
            result = self._read(header, target, limits, queue, units)
            if result.is_loaded:
                self._finish(request, header, target, result, may_wait=may_wait)
                if has_turn:
                    self._turns.spend(result.size_bytes)
                return
            result.release()  # in its line a pull keeps no file
        assert queue is not None, "without a queue nothing is read"
        pull = Pull(request, header, target)
        self._lines.run(request, partial(self._serve_cold, pull, queue, wanted, has_turn=has_turn))

    def _finish(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        target: PullTarget,
        result: GetMessageResult,
        *,
        may_wait: bool,
        matcher: PullMatcher | None = None,
    ) -> None:
        """Answer a pull, or let it wait if it wants to and there is nothing yet."""
        if (
            result.status is _FOUND
            or not may_wait
            or (
                pull_code(result.status, header.queue_offset) != _PULL_NOT_FOUND
                and not self._waits_for_master(header, result)
            )
            or not self._hold(Pull(request, header, target, matcher))
        ):
            self._answer(request, header, target, result)

    def _waits_for_master(self, header: PullMessageRequestHeader, result: GetMessageResult) -> bool:
        """Whether this is a slave without its master, and the pull is beyond its end."""
        is_beyond = header.queue_offset > result.max_offset
        return is_beyond and self._leaves_offsets and self._is_cut_off()

    @property
    def _leaves_offsets(self) -> bool:
        """Whether consumers whose offset this broker does not have stay where they are."""
        return self._is_slave and not self._config.current.offset_check_in_slave

    def _read(
        self,
        header: PullMessageRequestHeader,
        target: PullTarget,
        limits: TransferLimits,
        queue: ConsumeQueue | None,
        units: bytes,
    ) -> GetMessageResult:
        codes = target.codes
        return self._reader.get_message(
            queue,
            header.queue_offset,
            header.max_msg_nums,
            max_bytes=header.max_msg_bytes,
            limits=limits,
            tags_filter=None if codes is None else codes.__contains__,
            units=units,
        )

    async def _serve_cold(self, pull: Pull, queue: ConsumeQueue, wanted: int, *, has_turn: bool) -> None:
        """Have the queue's units read first; what they point to may be on disk too."""
        if has_turn:
            self._turns.resume()  # of another iteration than that which took the turn
        else:
            await self._turns.wait()
        began_s = perf_counter()
        queue_offset = pull.header.queue_offset
        units = queue.read_units_nowait(queue_offset, wanted)
        if units is None:
            units = await self._disk.run(queue.read_units, queue_offset, wanted)
            self._turns.resume()
        result = self._read(pull.header, pull.target, self._limits(pull.header), queue, units)
        self._turns.spend(result.size_bytes)
        await self._load_and_answer(pull, result)
        # Those from memory take no millisecond, which is what this is counted in.
        self._stats.get_latency((perf_counter() - began_s) * 1000)

    def _serve_filtered(self, pull: Pull, matcher: PullMatcher, *, may_wait: bool) -> None:
        matcher.rest()
        read = self._filtered_read(pull.header, matcher)
        read.step()
        result = read.result
        if read.is_done and result is not None and result.is_loaded:
            self._finish(pull.request, pull.header, pull.target, result, may_wait=may_wait, matcher=matcher)
            return
        if result is not None and not result.is_loaded:  # in its line a pull keeps no file
            result.release()
            matcher.rest()
            read = self._filtered_read(pull.header, matcher)
        self._lines.run(pull.request, partial(self._read_on, pull, read))

    def _filtered_read(self, header: PullMessageRequestHeader, matcher: PullMatcher) -> FilteredRead:
        wanted = WantedMessages(
            header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, header.max_msg_bytes
        )
        return FilteredRead(self._queues, self._reader, self._disk, wanted, matcher, self._limits(header))

    async def _read_on(self, pull: Pull, read: FilteredRead) -> None:
        try:
            while not read.is_done and not pull.request.connection.closed:
                await read.wait()
        except BaseException:
            if read.result is not None:
                read.result.release()
            raise
        if read.result is not None:
            await self._load_and_answer(pull, read.result)

    async def _load_and_answer(self, pull: Pull, result: GetMessageResult) -> None:
        connection = pull.request.connection
        try:
            if not result.is_loaded and not connection.closed:
                await self._disk.run(result.load)
        finally:
            result.release()
        await connection.wait_writable()
        if connection.closed:
            return
        self._turns.resume()
        try:  # it has waited, and what it may read can have changed
            target = self.targets.renew(pull.request, pull.header, pull.target)
        except PullForbiddenError as refusal:
            answer_forbidden(pull.request, refusal)
        else:
            self._answer(pull.request, pull.header, target, result)
        self._turns.spend(0)

    def _hold(self, pull: Pull) -> bool:
        """Let the pull wait; False when too many do."""
        config = self._config.current
        timeout_ms = pull.header.suspend_timeout_millis
        if not config.long_polling_enable:
            timeout_ms = config.short_polling_time_mills
        return self._holds.hold(pull, max(0, timeout_ms))

    def _answer(
        self,
        request: Request,
        header: PullMessageRequestHeader,
        target: PullTarget,
        result: GetMessageResult,
    ) -> None:
        broker_id = 0
        if self._config.current.slave_read_enable:
            broker_id = self._suggested_broker(target.group_config, result)
        topic_sys_flag = target.topic_config.topic_sys_flag
        if result.status is not _FOUND:
            code = pull_code(result.status, header.queue_offset)
            if self._leaves_offsets:
                code = leave_offset(result, code, header.queue_offset)
            answer_none(request, result, code, broker_id, topic_sys_flag)
            self._stats.get_missed()
            return
        if self._hooks.after_pull:
            self._call_hooks(request, header, result)
        answer_found(request, result, broker_id, topic_sys_flag)
        if self.on_delivery is not None:
            self.on_delivery(result)
        if self.charge is not None:
            self.charge(request, result.message_count, result.size_bytes)
        group, topic = header.consumer_group, header.topic
        self._offsets.commit_pull(group, topic, header.queue_id, result.next_begin_offset)
        self._stats.pulled(group, topic, result.message_count, result.size_bytes)

    def _suggested_broker(self, group_config: SubscriptionGroupConfig, result: GetMessageResult) -> int:
        """Which broker the client should ask next: a slave, for what is no longer in memory here."""
        behind_bytes = self._log.max_phy_offset - result.last_phy_offset
        is_slow = result.last_phy_offset and behind_bytes > self.stock_limits.memory_bytes
        return group_config.which_broker_when_consume_slowly if is_slow else group_config.broker_id

    def _call_hooks(
        self, request: Request, header: PullMessageRequestHeader, result: GetMessageResult
    ) -> None:
        context = PullContext(
            header.topic,
            header.queue_id,
            header.consumer_group,
            header.queue_offset,
            result.message_count,
            result.size_bytes,
            request.connection.remote_address,
        )
        self._hooks.call(self._hooks.after_pull, context)
