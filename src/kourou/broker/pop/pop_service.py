"""PopService: takes messages for a group, from any queue of a topic or from one, and from its retry topic.

Each queue is read from where the group is (pop_offsets.py). What is found is in flight from then on: its
check point is put in the commit cycle, and the answer leaves when it is stored. A pop that finds nothing
waits (pop_polling.py). If the first messages have to come from disk, a thread reads them, in the order of the
connection and in turn with others (broker/pull/cold_pulls.py), and the queue is locked for the group
meanwhile. A pop that has messages already does not wait for the disk: it leaves those to others.

Orderly POP has no check points. A queue gives nothing until all it gave before is acknowledged or visible
again, and the group's offset stays at the first of them (order_info.py).
Not here: requests and answers on the wire (pop_processor.py), whether a group may pop (admission.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.groups.message_filter import TAG, subscription_filter
from kourou.broker.hooks import PullContext
from kourou.broker.pop.contracts import Popped
from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_answer import found, nothing
from kourou.broker.pop.pop_plan import PlannedQueue, QueuePlans
from kourou.broker.pop.pop_polling import HeldPop, PollingResult
from kourou.broker.pop.pop_read import ILLEGAL_OFFSET, PASSED_OVER, Cold
from kourou.broker.pop.pop_run import Pop, PopPart, PopRun
from kourou.broker.pull.filtered_read import WantedMessages
from kourou.errors import KourouError, RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.pop.receipt_handle import ORDERLY_REVIVE_QUEUE_ID
from kourou.protocol.tags import SUB_ALL
from kourou.store.log.put_status import PutStatus

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.filters.plugin_host import PluginHost
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.message_filter import MessageFilter
    from kourou.broker.hooks import BrokerHooks
    from kourou.broker.pop.contracts import InFlight, Orders
    from kourou.broker.pop.pop_offsets import PopOffsets
    from kourou.broker.pop.pop_polling import PopPolling
    from kourou.broker.pop.pop_read import PopReader
    from kourou.broker.pop.pop_run import PopCaller
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.protocol.headers.pop import PopMessageRequestHeader
    from kourou.store.queue.consume_queue import ConsumeQueue
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.get_message_result import GetMessageResult

_log = logging.getLogger(__name__)

_THROTTLED_MS: Final = 1_000
"""So long a pop waits before it looks again at queues with too many messages in flight."""


class PopService:
    """The pops of one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        admission: Admission,
        consumers: ConsumerManager,
        queues: ConsumeQueues,
        offsets: PopOffsets,
        reader: PopReader,
        in_flight: InFlight,
        orders: Orders,
        polling: PopPolling,
        stats: BrokerStatsManager,
        hooks: BrokerHooks,
        plugins: PluginHost,
        now_ms: Callable[[], int],
        plans: QueuePlans,
    ) -> None:
        self._config = config
        self._admission = admission
        self._consumers = consumers
        self._find_queue = queues.find
        self._offsets = offsets
        self._reader = reader
        self.in_flight = in_flight
        self._orders = orders
        self._polling = polling
        self._stats = stats
        self._hooks = hooks
        self._plugins = plugins
        self._now_ms = now_ms
        self.plans = plans
        self._pops = 0
        # Queues that a disk thread reads for a group; True: another pop has passed this one.
        self._locked: dict[OrderKey, bool] = {}
        # Called with what is delivered to a consumer.
        self.on_delivery: Callable[[GetMessageResult], None] | None = None

    def pop(self, header: PopMessageRequestHeader, caller: PopCaller) -> None:
        """Take messages for a group; the caller is answered once, now or later. RequestError: rejected."""
        if not header.born_time:
            header.born_time = self._now_ms()
        self._admission.check_pop(header, caller.address)
        pop = Pop(header, caller, self._selected(header), self._admission.ruling)
        expression_type = (header.exp_type or TAG) if header.exp else TAG
        self._consumers.record_pop(
            header.consumer_group, header.topic, header.exp or SUB_ALL, expression_type
        )
        self._start(pop, is_last=False)

    def _selected(self, header: PopMessageRequestHeader) -> MessageFilter:
        # A pop has its own filter: heartbeats of its group do not count.
        return subscription_filter(
            header.exp or SUB_ALL,
            header.exp_type if header.exp else None,
            property_filter=self._config.current.enable_property_filter,
            plugins=self._plugins,
        )

    # -- one run ---------------------------------------------------------------------------------

    def _start(self, pop: Pop, *, is_last: bool) -> None:
        header, config = pop.header, self._config.current
        is_orderly = bool(header.order)
        revive_queue_id = ORDERLY_REVIVE_QUEUE_ID
        if not is_orderly:
            self._pops += 1
            revive_queue_id = self._pops % max(1, config.revive_queue_num)
        steps = self.plans.steps(header.topic, header.consumer_group, header.queue_id, is_orderly=is_orderly)
        self._continue(pop, PopRun(iter(steps), self._now_ms(), revive_queue_id, is_last))

    def _continue(self, pop: Pop, run: PopRun) -> None:
        """Look at the queues that are left, until one has to be read from disk."""
        most = pop.header.max_msg_nums
        for step in run.steps:
            if run.count >= most:
                run.rest += self._backlog(pop, step)
                continue
            cold = self._visit(pop, run, step)
            if cold is not None:
                pop.caller.run_cold(partial(self._visit_cold, pop, run, step, cold))
                return
        run.is_walked = True
        if not run.pending:
            self._finish(pop, run)

    def _backlog(self, pop: Pop, step: PlannedQueue) -> int:
        """What is left in a queue that the pop does not need."""
        topic, queue_id, _ = step
        key = OrderKey(topic, pop.header.consumer_group, queue_id)
        return (
            0 if self._is_blocked(pop, key) else self._offsets.backlog(key, self._find_queue(topic, queue_id))
        )

    def _visit(self, pop: Pop, run: PopRun, step: PlannedQueue) -> Cold | None:
        """Take what one queue has in memory. Cold: it has to be visited with time to wait."""
        header = pop.header
        key = OrderKey(step.topic, header.consumer_group, step.queue_id)
        queue = self._find_queue(step.topic, step.queue_id)
        if run.count >= header.max_msg_nums:
            if not self._is_blocked(pop, key):
                run.rest += self._offsets.backlog(key, queue)
            return None
        if self._is_passed(pop, run, key, queue):
            return None
        begin = self._offsets.begin(key, queue, header.init_mode, pop.caller.address)
        if begin is not None and self._is_blocked(pop, key):
            return None
        result: GetMessageResult | Cold = Cold.NEEDS_TURN
        if begin is not None:
            result = self._reader.read_nowait(self._wanted(pop, run, key, begin), pop.selected)
            if not isinstance(result, Cold) and result.status in ILLEGAL_OFFSET:
                begin = self._correct(key, result, pop)
                result = self._reader.read_nowait(self._wanted(pop, run, key, begin), pop.selected)
        if not isinstance(result, Cold):
            assert begin is not None, "nothing is read without an offset"
            self._take(pop, run, step, begin, result)
        elif run.count:
            run.rest += self._offsets.backlog(key, queue)
        else:
            return result
        return None

    async def _visit_cold(self, pop: Pop, run: PopRun, step: PlannedQueue, cold: Cold) -> None:
        """The same with waits for the disk; then go on."""
        run.has_waited = True
        await self._reader.wait_turn(cold)
        key = OrderKey(step.topic, pop.header.consumer_group, step.queue_id)
        queue = self._find_queue(step.topic, step.queue_id)
        if not self._is_passed(pop, run, key, queue):
            self._locked[key] = False
            try:
                await self._read_cold(pop, run, step, key, queue)
            finally:
                if self._locked.pop(key):
                    # One that was left out waits for any queue, or for this one.
                    queue_id = None if step.is_retry else step.queue_id
                    self._polling.wake(pop.header.topic, key.group, queue_id)
        if not pop.caller.is_gone:
            self._continue(pop, run)

    async def _read_cold(
        self, pop: Pop, run: PopRun, step: PlannedQueue, key: OrderKey, queue: ConsumeQueue | None
    ) -> None:
        caller = pop.caller
        begin = self._offsets.begin(key, queue, pop.header.init_mode, caller.address)
        if begin is None:
            assert queue is not None, "without a queue a group begins at 0"
            unit = await self._reader.read_units(step.topic, step.queue_id, 0, 1)
            begin = self._offsets.first_offset_of(key, queue, unit, caller.address)
        if self._is_blocked(pop, key):
            return
        result = await self._reader.read(self._wanted(pop, run, key, begin), pop.selected)
        if result.status in ILLEGAL_OFFSET:
            begin = self._correct(key, result, pop)
            result = await self._reader.read(self._wanted(pop, run, key, begin), pop.selected)
        if caller.is_gone:
            return
        self._check_again(pop)
        self._take(pop, run, step, begin, result)

    def _is_passed(self, pop: Pop, run: PopRun, key: OrderKey, queue: ConsumeQueue | None) -> bool:
        """Whether the queue is left to others: one reads it, or has too many messages of it in flight."""
        if key in self._locked:
            self._locked[key] = True
            if not pop.header.order:
                run.rest += self._offsets.backlog(key, queue)
            return True
        config = self._config.current
        if (
            config.enable_pop_message_threshold
            and self.in_flight.count(*key) > config.pop_inflight_message_threshold
        ):
            run.rest += self._offsets.backlog(key, queue)
            run.look_again(_THROTTLED_MS)
            return True
        return False

    def _is_blocked(self, pop: Pop, key: OrderKey) -> bool:
        """Whether earlier messages of the queue have to be consumed first."""
        return bool(pop.header.order) and self._orders.is_blocked(key, pop.header.attempt_id)

    def _wanted(self, pop: Pop, run: PopRun, key: OrderKey, begin: int) -> WantedMessages:
        return WantedMessages(key.topic, key.queue_id, begin, pop.header.max_msg_nums - run.count)

    def _correct(self, key: OrderKey, result: GetMessageResult, pop: Pop) -> int:
        next_offset = result.next_begin_offset
        _log.warning(
            "%s@%s/%d: nothing lies at the group's offset (%s), set to %d",
            key.topic,
            key.group,
            key.queue_id,
            result.status.name,
            next_offset,
        )
        self._offsets.move(key, next_offset, pop.caller.address)
        return next_offset

    # -- taking ----------------------------------------------------------------------------------

    def _take(self, pop: Pop, run: PopRun, step: PlannedQueue, begin: int, result: GetMessageResult) -> None:
        """What was found is in flight from now on."""
        key = OrderKey(step.topic, pop.header.consumer_group, step.queue_id)
        address = pop.caller.address
        if result.message_count:
            part = PopPart(key, begin, result, step.is_retry)
            try:
                if self._hooks.after_pull:
                    self._call_hooks(part, address)
                self._put(pop, run, part)
            except KourouError as error:
                run.problem = error
                run.rest += result.message_count
                return
            run.pending += 1
            run.count += result.message_count
            run.parts.append(part)
        elif result.status in PASSED_OVER and result.next_begin_offset > begin:
            self._offsets.pass_over(key, result.next_begin_offset, address)
            if result.next_begin_offset < result.max_offset:
                run.look_again(0)  # for the rest of the queue
        run.rest += max(0, result.max_offset - result.next_begin_offset)

    def _put(self, pop: Pop, run: PopRun, part: PopPart) -> None:
        """Put the check point, or the entry of the order."""
        header, key, result = pop.header, part.key, part.result
        offsets, next_offset = result.found_offsets(), result.next_begin_offset
        done = partial(self._stored, pop, run, part)
        if header.order:
            part.counts = self._orders.pop(
                key,
                attempt_id=header.attempt_id,
                pop_time=run.pop_time,
                invisible_time_ms=header.invisible_time,
                offsets=offsets,
                done=done,
            )
            return
        self.in_flight.take(
            Popped(
                key.topic,
                key.group,
                key.queue_id,
                part.start_offset,
                offsets,
                next_offset,
                run.pop_time,
                header.invisible_time,
                run.revive_queue_id,
            ),
            done,
        )
        part.epoch = self._offsets.advance(key, next_offset)

    def _stored(self, pop: Pop, run: PopRun, part: PopPart, status: PutStatus) -> None:
        part.is_stored = status.is_stored
        if not part.is_stored:
            run.problem = RequestError(ResponseCode(status.response_code), status.remark or status.name)
        if not pop.header.order:
            self._offsets.stored(
                part.key,
                part.epoch,
                part.result.next_begin_offset,
                pop.caller.address,
                is_stored=part.is_stored,
            )
        run.pending -= 1
        if run.is_walked and not run.pending:
            self._finish(pop, run)

    def _call_hooks(self, part: PopPart, address: str) -> None:
        (topic, group, queue_id), result = part.key, part.result
        context = PullContext(
            topic, queue_id, group, part.start_offset, result.message_count, result.size_bytes, address
        )
        self._hooks.call(self._hooks.after_pull, context)

    # -- the end of a run ------------------------------------------------------------------------

    def _finish(self, pop: Pop, run: PopRun) -> None:
        """All queues were looked at, and what was found is stored."""
        parts = [part for part in run.parts if part.is_stored]
        if parts:
            self._answer(pop, run, parts)
        elif run.problem is not None:
            pop.caller.fail(run.problem)
        else:
            if run.has_waited:
                run.look_again(0)  # messages may have come for queues that were looked at before
            self._wait(pop, run)

    def _answer(self, pop: Pop, run: PopRun, parts: list[PopPart]) -> None:
        config = self._config.current
        for part in parts:
            key, result = part.key, part.result
            self._stats.pulled(key.group, key.topic, result.message_count, result.size_bytes)
            if self.on_delivery is not None:
                self.on_delivery(result)
        pop.caller.answer(
            found(
                pop.header,
                run,
                parts,
                broker_name=config.broker_name,
                with_handles=not config.pop_response_return_actual_retry_topic,
            )
        )
        if run.rest:
            self._wake(pop)

    def _wake(self, pop: Pop) -> None:
        """Messages are left for another one that waits for the same."""
        key = pop.key
        self._polling.wake(key.topic, key.group, key.queue_id)

    def _wait(self, pop: Pop, run: PopRun) -> None:
        """Let a pop that found nothing wait, or answer so."""
        code = ResponseCode.POLLING_TIMEOUT
        if not run.is_last:
            if pop.held is None:
                pop.held = HeldPop(
                    pop.key,
                    pop.caller.owner,
                    run=partial(self._run_again, pop),
                    give_up=partial(self._answer_none, pop, code),
                )
            held = self._polling.hold(
                pop.held,
                born_ms=pop.header.born_time,
                poll_ms=pop.header.poll_time,
                again_ms=run.again_ms,
            )
            if held is PollingResult.HELD:
                return
            if held is PollingResult.FULL:
                code = ResponseCode.POLLING_FULL
        self._answer_none(pop, code, run)

    def _answer_none(self, pop: Pop, code: ResponseCode, run: PopRun | None = None) -> None:
        self._stats.get_missed()
        pop.caller.answer(nothing(code, pop.header.invisible_time, run))

    # -- again -----------------------------------------------------------------------------------

    def _run_again(self, pop: Pop, is_last: bool) -> None:
        """A pop that has waited is woken, or its time is over."""
        caller = pop.caller
        try:
            if caller.is_gone:
                return
            if caller.is_paused:
                caller.run_cold(partial(self._run_later, pop, is_last))
                return
            self._check_again(pop)
            self._start(pop, is_last=is_last)
        except Exception as error:
            caller.fail(error)

    async def _run_later(self, pop: Pop, is_last: bool) -> None:
        self._check_again(pop)
        self._start(pop, is_last=is_last)

    def _check_again(self, pop: Pop) -> None:
        """RequestError if the group may no longer pop: it has waited, and that can have changed."""
        admission = self._admission
        pop.caller.check_again(pop.ruling)
        pop.ruling = admission.ruling
        topic, group, queue_id = pop.key
        admission.check_popped(topic, group, queue_id, pop.caller.address)
