"""AsyncPullSchedule: calls a function periodically for each queue of the registered topics.

The queues are shared with the other members of the group; the function of a queue is called by the member
that the queue is assigned to, never concurrently. The function pulls and sets its progress, which is stored,
and taken over by the next member. Java's MQPullConsumerScheduleService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias, Unpack

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.client_blocks import AsyncBlockOnly
from kourou.client.core.message_checks import check_topic
from kourou.client.core.settings import ClientOptions
from kourou.client.core.stop_once import StopOnce
from kourou.client.core.strategies import AllocateAveragely, AllocateStrategy
from kourou.client.core.subscription import Subscription, Subscriptions, subscription_data
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consumer_offsets import ConsumerOffsets, stored_offsets
from kourou.client.push.consumer_options import ConsumeFrom, ConsumerOptions, Model
from kourou.client.push.rebalance import Rebalancer
from kourou.errors import ClientStateError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.transport.request import Processor, Request

_log = logging.getLogger(__name__)

DEFAULT_INTERVAL_MS: Final = 200
# Well within the two minutes after which a queue that is not pulled is assigned again.
_TOUCH_INTERVAL_MS: Final = 30_000
_DEFAULT_STRATEGY: Final = AllocateAveragely()


@dataclass(slots=True)
class PullContext:
    """The argument of the function, the same object at each call for a queue.

    The function pulls with `consumer` from `queue_offset`, and sets `queue_offset` to where the next call
    continues: when it returns, everything before that counts as consumed. `delay_ms` is the time until the
    next call; it is reset to the schedule's `interval_ms` before each call.
    """

    queue: MessageQueue
    consumer: AsyncPullConsumer
    queue_offset: int
    delay_ms: int


PullFunction: TypeAlias = Callable[[PullContext], Awaitable[None]]


class AsyncPullSchedule(AsyncBlockOnly):
    """Calls functions for queues.

        async def read(context: PullContext) -> None:
            result = await context.consumer.pull(context.queue, queue_offset=context.queue_offset)
            for message in result.messages():
                print(message.body)
            context.queue_offset = result.next_begin_offset
            context.delay_ms = 0 if result.status is PullStatus.FOUND else 1000

        async with AsyncPullSchedule("readers", namesrv="127.0.0.1:9876") as schedule:
            await schedule.register("TopicTest", read)
            await schedule.wait_failed()

    A function that raises is logged and called again after its delay, from the same offset. `stop` waits
    `stop_timeout_ms` for functions that run, then cancels them. `options` are those of ClientSettings.
    """

    def __init__(
        self,
        group: str,
        *,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        model: Model = "clustering",
        consume_from: ConsumeFrom = "last",
        strategy: AllocateStrategy = _DEFAULT_STRATEGY,
        persist_interval_ms: int = 5_000,
        stop_timeout_ms: int = 30_000,
        **options: Unpack[ClientOptions],
    ) -> None:
        if interval_ms < 0:
            raise ValueError(f"interval_ms is {interval_ms}; it must be at least 0")
        self._options = ConsumerOptions(
            model=model,
            consume_from=consume_from,
            strategy=strategy,
            persist_interval_ms=persist_interval_ms,
            stop_timeout_ms=stop_timeout_ms,
        )
        self._interval_ms = interval_ms
        self._subscriptions = Subscriptions()
        self._functions: dict[str, PullFunction] = {}
        self._calls: dict[AssignedQueue, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._rebalancer: Rebalancer | None = None
        self._balancing: CancellableTasks | None = None
        self._stop_once = StopOnce(f"pull schedule {group}")
        self.consumer: AsyncPullConsumer = _ScheduledConsumer(self._wake, group, options)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and join the group. Errors name the step that failed."""
        await self.consumer.start()
        instance, group = self.consumer.instance, self.consumer.wire_group
        try:
            offsets = stored_offsets(instance, group, self._options)
            await offsets.load()
            self._rebalancer = self._balanced(offsets, group)
        except BaseException:
            await self.consumer.stop()
            raise
        instance.every(self._options.persist_interval_ms, self._rebalancer.persist, "offsets")
        instance.every(_TOUCH_INTERVAL_MS, self._touch, "schedule")
        # Not a task of the instance, which would treat its cancellation at the stop as a failure.
        self._balancing = CancellableTasks(instance.tasks.fail)
        self._balancing.start(self._rebalancer.keep_balanced(), f"rebalance {group}")

    def _balanced(self, offsets: ConsumerOffsets, group: str) -> Rebalancer:
        return Rebalancer(
            self.consumer.instance,
            group,
            self._options,
            self._subscriptions,
            offsets,
            locks=None,
            taken=self._taken,
            dropped=self._dropped,
        )

    async def stop(self) -> None:
        """Wait for running functions, store the offsets, disconnect. May be called twice."""
        rebalancer, balancing = self._rebalancer, self._balancing
        if rebalancer is not None and balancing is not None:
            await self._stop_once.wait(lambda: self._end(rebalancer, balancing))

    async def _end(self, rebalancer: Rebalancer, balancing: CancellableTasks) -> None:
        try:
            rebalancer.stop()
            await balancing.stop()
            for assigned in list(self._calls):
                assigned.drop()
                self._dropped(assigned)
            if tasks := [task for task, _ in self._calls.values()]:
                await asyncio.wait(tasks, timeout=self._options.stop_timeout_ms / 1000)
            await rebalancer.release_all()
        finally:
            await self.consumer.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_failed(self) -> None:
        """Wait until a background task fails and raise its error; return after `stop`."""
        await self.consumer.wait_failed()

    # -- topics and queues -----------------------------------------------------------------------

    async def register(self, topic: str, function: PullFunction) -> None:
        """Call `function` for each queue of `topic` that is assigned to this consumer. Before or after
        `start`."""
        check_topic(topic)
        data = subscription_data(self.consumer.wire_topic(topic))
        if data.topic in self._functions:
            raise ClientStateError(f"topic {topic!r} has a function already")
        self._functions[data.topic] = function
        self._subscriptions.add(topic, Subscription.of(data, None))
        self.consumer.register_topic(topic)
        if self._rebalancer is not None:
            await self.consumer.instance.routes.refresh(data.topic)
            await self.consumer.instance.heartbeat()
            self._rebalancer.wake()

    def assignment(self) -> list[MessageQueue]:
        """The queues assigned to this consumer now."""
        return sorted(self.consumer.shown(assigned.queue) for assigned in self._calls)

    def _wake(self) -> None:
        if self._rebalancer is not None:
            self._rebalancer.wake()

    def _taken(self, assigned: AssignedQueue) -> None:
        is_dropped = asyncio.Event()
        name = f"schedule {assigned.queue}"
        task = self.consumer.instance.tasks.start(self._keep_calling(assigned, is_dropped), name)
        self._calls[assigned] = (task, is_dropped)
        task.add_done_callback(lambda _: self._calls.pop(assigned, None))

    def _dropped(self, assigned: AssignedQueue) -> None:
        if (call := self._calls.get(assigned)) is not None:
            call[1].set()

    async def _touch(self) -> None:
        for assigned in self._calls:
            assigned.pulled()

    async def _keep_calling(self, assigned: AssignedQueue, is_dropped: asyncio.Event) -> None:
        function = self._functions[assigned.queue.topic]
        queue = self.consumer.shown(assigned.queue)
        assigned.pulled_offset = assigned.next_offset
        context = PullContext(queue, self.consumer, assigned.next_offset, self._interval_ms)
        while not is_dropped.is_set():
            context.delay_ms = self._interval_ms
            before = context.queue_offset
            try:
                await function(context)
                assigned.pulled_offset = context.queue_offset
            except Exception:  # raised by user code
                context.queue_offset = before
                _log.exception("group %s: the function for %s failed", self.consumer.group, queue)
            await _wait_set(is_dropped, context.delay_ms / 1000)


class _ScheduledConsumer(AsyncPullConsumer):
    """The consumer of a schedule; it handles notifications of group changes."""

    def __init__(self, wake: Callable[[], None], group: str, options: ClientOptions) -> None:
        super().__init__(group, **options)
        self._wake = wake

    def processors(self) -> Mapping[int, Processor]:
        return {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed}

    def _ids_changed(self, request: Request) -> None:
        self._wake()


async def _wait_set(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        return
