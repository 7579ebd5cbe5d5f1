"""QueueReader: the records of a queue in bulk, as they are stored: for exports, Spark and other bulk readers.

The range to read is split into slices (ReadPlan), and several are requested at once. With a filter a response
may cover any number of messages, so only one pull is in flight, though still ahead of the reader.
Not here: groups, commits, retries of single messages (the consumers).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, NamedTuple, Self, Unpack

from kourou.argument_types import check_int, wrong_type
from kourou.client.core.client_blocks import AsyncBlockOnly
from kourou.client.core.settings import ClientOptions, ClientSettings, lists_options
from kourou.client.core.subscription import ExpressionType
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.pulls import PullResult, PullStatus, goes_on_there
from kourou.errors import AccountLimitError, KourouError, ResponseError, SlaveBehindError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.names import TOOLS_CONSUMER_GROUP
from kourou.protocol.record_fields import record_positions, record_queue_offset
from kourou.protocol.tags import SUB_ALL

_log = logging.getLogger(__name__)

FIRST_SLICE: Final = 1_024
MAX_SLICE: Final = 16_384
"""The largest request: brokers return no more messages, whatever their size."""


class Slice(NamedTuple):
    """Offsets from `begin` up to, but excluding, `end`."""

    begin: int
    end: int


class ReadPlan:
    """The slices from `begin` to `end`, each sized to fill one response.

    The rest of a slice that was answered in part is requested next, so nothing is skipped; slices never
    overlap, so nothing is read twice. The size is learned: doubled until a response is cut off, then
    increased slowly after complete responses and decreased after partial ones. With `is_whole` the rest is
    one slice: for a filter, whose responses may end anywhere."""

    def __init__(self, begin: int, end: int, *, is_whole: bool = False) -> None:
        self.position = begin
        """Everything before it was passed to the reader."""
        self.end = max(begin, end)
        self._is_whole = is_whole
        self._size = FIRST_SLICE
        self._is_growing = True
        # In order; the first is requested next.
        self._unasked = [Slice(begin, end)] if begin < end else []

    @property
    def is_done(self) -> bool:
        """Whether everything was passed to the reader."""
        return self.position >= self.end

    @property
    def next_begin(self) -> int | None:
        """Where the next slice to request begins; None when all are requested."""
        return self._unasked[0].begin if self._unasked else None

    def ask(self) -> Slice:
        """The next slice to request."""
        first = self._unasked.pop(0)
        if self._is_whole or first.end - first.begin <= self._size:
            return first
        asked = Slice(first.begin, first.begin + self._size)
        self._unasked.insert(0, Slice(asked.end, first.end))
        return asked

    def answered(self, asked: Slice, next_offset: int) -> None:
        """The slice at `position` was answered up to `next_offset`, which is passed to the reader now."""
        assert asked.begin == self.position < next_offset, "slices are answered in order, and advance"
        self.position = min(next_offset, asked.end)
        if not self._is_whole:
            self._learn(asked.end - asked.begin, self.position - asked.begin)
        if self.position < asked.end:
            self._unasked.insert(0, Slice(self.position, asked.end))

    def _learn(self, asked: int, given: int) -> None:
        if given < asked:
            self._is_growing = False
            self._size = max(1, given - given // 16)
        elif asked >= self._size:
            more = self._size if self._is_growing else max(1, self._size // 128)
            self._size = min(MAX_SLICE, self._size + more)


DEFAULT_MAX_BYTES: Final = 4 * 1024 * 1024
_RETRY_PAUSE_S: Final = 1.0
# Responses to retry.
_PASSING: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
    }
)


class _SlicePull(NamedTuple):
    asked: Slice
    task: asyncio.Task[PullResult]


@dataclass(frozen=True, slots=True)
class QueueChunk:
    """Consecutive records: from `begin_offset` up to, but excluding, `next_offset`.

    `body` has their bytes as the broker stores them (protocol/record.py), `messages()` decodes them.
    `skipped`: how many offsets before them were deleted by the broker before they were read.
    """

    result: PullResult
    begin_offset: int
    skipped: int = 0

    @property
    def body(self) -> bytes:
        """The records as the broker stores them, one after the other."""
        return self.result.body

    @property
    def next_offset(self) -> int:
        """Where the next chunk begins."""
        return self.result.next_begin_offset

    def messages(self) -> list[MessageExt]:
        """The records as messages."""
        return self.result.messages()


@lists_options(ClientSettings)
class QueueReader(AsyncBlockOnly):
    """Reads one queue from one offset to another; for asyncio.

        queue = MessageQueue("TopicTest", "broker-a", 0)
        async with QueueReader(queue, namesrv="127.0.0.1:9876") as chunks:
            async for chunk in chunks:
                file.write(chunk.body)

    Without `begin_offset` it begins at the first message, without `end_offset` it ends where the queue ended
    at the start of the read. It never waits for new messages: if the queue ends before `end_offset`, the read
    ends there, and `position` is that offset. While the master is away a slave is read; SlaveBehindError if
    that does not have everything up to `end_offset` yet. `max_bytes` limits one pull, `in_flight` the number
    of concurrent pulls, so memory holds about their product. A pull that fails is retried `retry_times`, a
    second apart. With `consumer`, its connections are used; otherwise `options` are those of ClientSettings.
    """

    def __init__(
        self,
        queue: MessageQueue,
        *,
        begin_offset: int | None = None,
        end_offset: int | None = None,
        expression: str = SUB_ALL,
        expression_type: ExpressionType = "TAG",
        max_bytes: int = DEFAULT_MAX_BYTES,
        in_flight: int = 2,
        retry_times: int = 3,
        group: str = TOOLS_CONSUMER_GROUP,
        consumer: AsyncPullConsumer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        if not isinstance(queue, MessageQueue):
            raise wrong_type("queue", "a MessageQueue", queue)
        for name, number in (("max_bytes", max_bytes), ("in_flight", in_flight)):
            check_int(name, number, at_least=1)
        check_int("retry_times", retry_times, at_least=0)
        for name, offset in (("begin_offset", begin_offset), ("end_offset", end_offset)):
            if offset is not None:
                check_int(name, offset, at_least=0)
        self.queue = queue
        self._begin_offset = begin_offset
        self._end_offset = end_offset
        self._expression = expression
        self._expression_type: ExpressionType = expression_type
        self._max_bytes = max_bytes
        self._is_filtered = expression not in ("", SUB_ALL)
        self._in_flight = 1 if self._is_filtered else in_flight
        self._retry_times = retry_times
        self._consumer = consumer or AsyncPullConsumer(group, **options)
        self._owns_consumer = consumer is None
        self._pulls: dict[int, _SlicePull] = {}
        self.position = begin_offset
        """Everything before it was read, or is gone; None before the read began without `begin_offset`."""
        self.skipped = 0
        """How many offsets were gone in total, including those after the last chunk."""

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._owns_consumer:
            await self._consumer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._forget_pulls()
        if self._owns_consumer:
            await self._consumer.stop()

    async def _forget_pulls(self) -> None:
        tasks = [pull.task for pull in self._pulls.values()]
        self._pulls.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()  # retrieved; no longer relevant

    # -- chunks ----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncGenerator[QueueChunk, None]:
        return self._chunks()

    async def _chunks(self) -> AsyncGenerator[QueueChunk, None]:
        try:
            plan = await self._plan()
            self.position = plan.position
            skipped = 0
            while not plan.is_done:
                self._ask_ahead(plan)
                pull = self._pulls[plan.position]
                result = _clipped(await pull.task, pull.asked.end)
                del self._pulls[plan.position]
                if result.next_begin_offset <= pull.asked.begin:
                    return  # the queue ends before `end_offset`
                plan.answered(pull.asked, result.next_begin_offset)
                self.position = plan.position
                self._ask_ahead(plan)  # before the reader runs
                if result.status is PullStatus.FOUND and result.body:
                    yield QueueChunk(result, pull.asked.begin, skipped)
                    skipped = 0
                elif result.status is PullStatus.OFFSET_ILLEGAL:
                    skipped += result.next_begin_offset - pull.asked.begin
                    self.skipped += result.next_begin_offset - pull.asked.begin
        finally:
            await self._forget_pulls()

    async def _plan(self) -> ReadPlan:
        begin, end = self._begin_offset, self._end_offset
        if begin is None:
            begin = await self._consumer.min_offset(self.queue)
        if end is None:
            end = await self._consumer.max_offset(self.queue)
        return ReadPlan(begin, end, is_whole=self._is_filtered)

    def _ask_ahead(self, plan: ReadPlan) -> None:
        """Request slices until enough are in flight. Slices after a gap that is not requested yet do not
        count."""
        while (begin := plan.next_begin) is not None:
            if sum(each < begin for each in self._pulls) >= self._in_flight:
                return
            asked = plan.ask()
            task = asyncio.create_task(self._pull(asked), name=f"read {self.queue} from {asked.begin}")
            self._pulls[asked.begin] = _SlicePull(asked, task)

    async def _pull(self, asked: Slice) -> PullResult:
        failures = 0
        while True:
            try:
                result = await self._consumer.pull(
                    self.queue,
                    self._expression,
                    queue_offset=asked.begin,
                    max_messages=min(asked.end - asked.begin, MAX_SLICE),
                    max_bytes=self._max_bytes,
                    expression_type=self._expression_type,
                )
                if result.next_begin_offset > asked.begin or result.broker_id == MASTER_ID:
                    return result
                # The end of a slave is not that of the queue.
                if not goes_on_there(self._consumer.instance.routes, result):
                    continue
                raise SlaveBehindError(str(self.queue), asked.begin, result.broker_id)
            except KourouError as error:
                pause_s = _RETRY_PAUSE_S
                if isinstance(error, AccountLimitError) and error.wait_s is not None:
                    pause_s = error.wait_s  # no failure: the broker says when it goes on
                else:
                    failures += 1
                if failures > self._retry_times or not _may_pass(error):
                    raise
                _log.warning("%s at offset %d, retrying: %s", self.queue, asked.begin, error)
            await asyncio.sleep(pause_s)


def _may_pass(error: KourouError) -> bool:
    return error.code in _PASSING if isinstance(error, ResponseError) else error.retriable


def _clipped(result: PullResult, end: int) -> PullResult:
    """The result without records at or after `end`, which a filtered pull may contain."""
    if result.next_begin_offset <= end:
        return result
    body = result.body
    for position in record_positions(body)[:-1]:
        if record_queue_offset(body, position) >= end:
            body = body[:position]
            break
    return replace(result, body=body, next_begin_offset=end)
