"""PopPeeks: what a group would pop next, without taking it; for tools.

Not here: requests and answers on the wire (pop_processor.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kourou.broker.groups.message_filter import MessageFilter
from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_plan import PlannedQueue, QueuePlans
from kourou.broker.pop.pop_read import ILLEGAL_OFFSET, Cold
from kourou.broker.pop.pop_run import Caller
from kourou.broker.pull.filtered_read import WantedMessages
from kourou.protocol.layout import Buffer
from kourou.protocol.pop.revive_records import MAX_CHECK_POINT_MESSAGES

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.pop.pop_offsets import PopOffsets
    from kourou.broker.pop.pop_read import PopReader
    from kourou.protocol.headers.pop import PeekMessageRequestHeader
    from kourou.store.queue.consume_queues import ConsumeQueues

_EVERYTHING: Final = MessageFilter(None, None)


class PeekCaller(Caller, Protocol):
    """Where such a request comes from."""

    def answer(self, records: list[Buffer], message_count: int, rest: int) -> None:
        """Respond with records as they lie in the log, and how many messages the group has before it."""
        ...


class _Peek:
    """One request, and what was found for it."""

    __slots__ = ("caller", "count", "header", "most", "records", "rest", "steps")

    def __init__(
        self, header: PeekMessageRequestHeader, caller: PeekCaller, steps: Iterator[PlannedQueue]
    ) -> None:
        self.header = header
        self.caller = caller
        self.steps = steps
        self.most = min(header.max_msg_nums, MAX_CHECK_POINT_MESSAGES)
        self.count = 0
        self.records: list[Buffer] = []
        self.rest = 0


class PopPeeks:
    """The peeks of one broker."""

    def __init__(
        self,
        *,
        admission: Admission,
        queues: ConsumeQueues,
        offsets: PopOffsets,
        reader: PopReader,
        plans: QueuePlans,
    ) -> None:
        self._admission = admission
        self._queues = queues
        self._offsets = offsets
        self._reader = reader
        self._plans = plans

    def peek(self, header: PeekMessageRequestHeader, caller: PeekCaller) -> None:
        """Answer with the messages that a group would pop. RequestError: rejected."""
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        self._admission.check_popped(topic, group, queue_id, caller.address)
        steps = self._plans.steps(topic, group, queue_id, is_orderly=False)
        self._continue(_Peek(header, caller, iter(steps)))

    def _continue(self, peek: _Peek) -> None:
        for step in peek.steps:
            key = OrderKey(step.topic, peek.header.consumer_group, step.queue_id)
            queue = self._queues.find(step.topic, step.queue_id)
            if queue is None:
                continue
            peek.rest += self._offsets.backlog(key, queue)
            if peek.count >= peek.most:
                continue
            begin = max(self._offsets.find(key), queue.min_queue_offset)
            wanted = WantedMessages(step.topic, step.queue_id, begin, peek.most - peek.count)
            result = self._reader.read_nowait(wanted, _EVERYTHING)
            if isinstance(result, Cold):
                peek.caller.run_cold(partial(self._read_cold, peek, wanted, result))
                return
            if result.status not in ILLEGAL_OFFSET:
                peek.records += result.buffers
                peek.count += result.message_count
        peek.caller.answer(peek.records, peek.count, peek.rest)

    async def _read_cold(self, peek: _Peek, wanted: WantedMessages, cold: Cold) -> None:
        await self._reader.wait_turn(cold)
        result = await self._reader.read(wanted, _EVERYTHING)
        if not peek.caller.is_gone:
            peek.records += result.buffers
            peek.count += result.message_count
            self._continue(peek)
