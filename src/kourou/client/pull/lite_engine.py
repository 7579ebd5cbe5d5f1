"""LiteEngine: the parts of a started lite pull consumer, how they are wired, and how they stop.

LiteCalls handles the requests of brokers. Not here: the methods that users call (lite_pull_consumer.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.core.queue_offsets import QueueAddresses, QueueOffsets
from kourou.client.core.subscription import Subscriptions, now_ms, subscription_refused
from kourou.client.pull.lite_pull_options import LitePullOptions
from kourou.client.pull.lite_pulls import LitePulls, LiteQueue
from kourou.client.pull.pulls import QueuePulls
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consumer_calls import GroupCalls
from kourou.client.push.consumer_offsets import StartOffset, stored_offsets
from kourou.client.push.rebalance import Rebalancer
from kourou.errors import ClientStateError, ResponseError
from kourou.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumeType,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)
from kourou.protocol.message import MessageExt
from kourou.protocol.versions import CURRENT_VERSION, version_desc

_log = logging.getLogger(__name__)


class LiteEngine:
    """Everything that runs between start and stop. Created on the loop, with a started instance."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: LitePullOptions,
        namespace: Namespace,
        subscriptions: Subscriptions,
    ) -> None:
        self.instance = instance
        self.started_ms = now_ms()
        self.polled = 0
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._is_stopping = False
        shared = options.shared()
        addresses = QueueAddresses(instance)
        self.offsets = stored_offsets(instance, group, shared)
        self.queue_offsets = QueueOffsets(instance, group, addresses)
        self._addresses = addresses
        self._start = StartOffset(instance.api, instance.routes, self.offsets, shared)
        pulls = QueuePulls(instance, group, addresses, is_lite=True)
        self.pulls = LitePulls(instance, group, options, namespace, pulls, self._start_offset)
        self.rebalancer = Rebalancer(
            instance,
            group,
            shared,
            subscriptions,
            self.offsets,
            locks=None,
            taken=self._taken,
            dropped=self._dropped,
        )
        # Not a task of the instance, which would treat its cancellation at the stop as a failure.
        self._tasks = CancellableTasks(instance.tasks.fail)
        self._is_balancing = False
        self._failed: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to pull. Errors name the expression that a broker rejects, or the file that cannot be
        read."""
        await self.offsets.load()
        for data in self._subscriptions.data():
            await self.check_subscription(data)
        if self._options.auto_commit:
            self.instance.every(self._options.auto_commit_interval_ms, self._auto_commit, "offsets")
        # A waiting poll raises a failure at once.
        self._failed = asyncio.create_task(self.instance.wait_failed(), name="lite pull: failures")
        self._failed.add_done_callback(lambda _: self.pulls.wake())
        if len(self._subscriptions.topics):
            self.start_balancing()

    def start_balancing(self) -> None:
        """Begin to share queues with the group."""
        if not self._is_balancing:
            self._is_balancing = True
            self._tasks.start(self.rebalancer.keep_balanced(), f"rebalance {self._group}")
        self.rebalancer.wake()

    async def check_subscription(self, data: SubscriptionData) -> None:
        """Check that a broker accepts an SQL92 expression; ClientError if not."""
        address = self.instance.routes.any_of_topic(data.topic)
        if data.expression_type == "TAG" or address is None:
            return
        try:
            await self.instance.api.check_subscription(address, self.instance.client_id, self._group, data)
        except ResponseError as error:
            raise subscription_refused(data, address, error) from error

    async def stop(self, *, is_all_done: bool) -> None:
        """Stop pulling and commit, if that is automatic: everything that was polled, or only what was polled
        before the last poll unless `is_all_done`."""
        self._is_stopping = True
        self.rebalancer.stop()
        await self._tasks.stop()
        if self._options.auto_commit:
            await self.offsets.persist(self._record_offsets(handed=is_all_done))
        for queue in list(self.pulls.queues):
            self.pulls.remove(queue)
        self.pulls.wake()

    async def wait_ended(self) -> None:
        """Call it after the instance's stop; on return no task is left."""
        if self._failed is not None:
            await asyncio.wait([self._failed])
            if not self._failed.cancelled():
                self._failed.exception()  # retrieved; earlier calls have raised it

    # -- queues ----------------------------------------------------------------------------------

    async def _start_offset(self, queue: MessageQueue) -> int:
        await self._addresses.find(queue)  # so that the routes know the broker
        return await self._start.find(queue)

    def _taken(self, assigned: AssignedQueue) -> None:
        data = assigned.subscription.data
        self.pulls.add(assigned.queue, data, assigned.next_offset, assigned.pulled)

    def _dropped(self, assigned: AssignedQueue) -> None:
        lite = self.pulls.remove(assigned.queue)
        if lite is not None and self._options.auto_commit:
            # The rebalancer stores this for the next member.
            assigned.pulled_offset = lite.done_offset

    async def assign(self, wanted: Mapping[MessageQueue, SubscriptionData]) -> None:
        left = [queue for queue in self.pulls.queues if queue not in wanted]
        if left and self._options.auto_commit:
            recorded = self._record_offsets(handed=False)
            await self.offsets.persist([queue for queue in left if queue in recorded])
        for queue in left:
            self.pulls.remove(queue)
        for queue, data in wanted.items():
            lite = self.pulls.queues.get(queue)
            if lite is None:
                self.pulls.add(queue, data)
            else:
                lite.subscription = data
        await self.instance.heartbeat()

    def lite_queue(self, queue: MessageQueue) -> LiteQueue:
        """The state of an assigned queue; ClientStateError for others."""
        lite = self.pulls.queues.get(queue)
        if lite is None:
            raise ClientStateError(
                f"{queue} is not assigned to this consumer; `assignment()` lists those that are"
            )
        return lite

    # -- polls -----------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int) -> list[MessageExt]:
        """The next messages; empty after the timeout."""
        for lite in self.pulls.queues.values():
            lite.finish_polled()
        messages = self.pulls.take_nowait()
        if not messages and timeout_ms > 0:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    messages = await self._next_messages()
            except TimeoutError:
                messages = []
        self._check_alive()
        self.polled += len(messages)
        return messages

    async def _next_messages(self) -> list[MessageExt]:
        while True:
            self._check_alive()
            await self.pulls.wait_arrived()
            if messages := self.pulls.take_nowait():
                return messages

    def _check_alive(self) -> None:
        if self._is_stopping:
            raise ClientStateError("this consumer was stopped")
        self.instance.check_running()

    # -- offsets ---------------------------------------------------------------------------------

    def _record_offsets(self, *, handed: bool) -> list[MessageQueue]:
        """Record the offset of each queue; returns the queues whose offset is known."""
        recorded = []
        for queue, lite in self.pulls.queues.items():
            queue_offset = lite.polled_offset if handed else lite.done_offset
            if queue_offset is not None:
                self.offsets.update(queue, queue_offset)
                recorded.append(queue)
        return recorded

    async def _auto_commit(self) -> None:
        await self.offsets.persist(self._record_offsets(handed=False))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        """Commit these offsets, or everything that was polled; on return it is stored."""
        if offsets is None:
            offsets = {
                queue: lite.polled_offset
                for queue, lite in self.pulls.queues.items()
                if lite.polled_offset is not None
            }
        for queue, queue_offset in offsets.items():
            self.offsets.update(queue, queue_offset)
        if self._options.model == "broadcasting":
            await self.offsets.persist(offsets)
            return
        await asyncio.gather(
            *(self.queue_offsets.commit(queue, queue_offset) for queue, queue_offset in offsets.items())
        )

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of a queue."""
        if self._options.model == "broadcasting":
            return await self.offsets.read(queue)
        return await self.queue_offsets.committed(queue)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets, in the queues that are assigned; requested by an operator."""
        moved: list[MessageQueue] = []
        for queue, queue_offset in offsets.items():
            lite = self.pulls.queues.get(queue)
            if lite is None or queue.topic != topic:
                continue
            _log.info("group %s: %s goes to offset %d", self._group, queue, queue_offset)
            self.pulls.seek(lite, queue_offset)
            self.offsets.update(queue, queue_offset)
            moved.append(queue)
        await self.offsets.persist(moved)

    def progress(self) -> Iterable[LiteQueue]:
        return [self.pulls.queues[queue] for queue in sorted(self.pulls.queues)]


class LiteCalls(GroupCalls[LiteEngine]):
    """Handles requests for one lite pull consumer."""

    def __init__(
        self,
        group: str,
        options: LitePullOptions,
        engine: Callable[[], LiteEngine | None],
        subscriptions: Callable[[], list[SubscriptionData]],
    ) -> None:
        super().__init__(group, engine)
        self._options = options
        self._subscriptions = subscriptions

    def _offsets_of(self, engine: LiteEngine) -> Mapping[MessageQueue, int]:
        return {lite.queue: lite.done_offset for lite in engine.progress() if lite.done_offset is not None}

    def _info_of(self, engine: LiteEngine, *, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties=self._properties(engine),
            subscription_set=self._subscriptions(),
            mq_table={lite.queue: _described(lite) for lite in engine.progress()},
        )

    def _properties(self, engine: LiteEngine) -> dict[str, str]:
        """Every setting as text; mqadmin fails without some of the PROP_ entries."""
        settings = {field.name: str(getattr(self._options, field.name)) for field in fields(self._options)}
        return settings | {
            "consumerGroup": self._group,
            "PROP_NAMESERVER_ADDR": "".join(f"{each};" for each in engine.instance.namesrvs.addresses),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
            "PROP_CLIENT_VERSION": version_desc(CURRENT_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(engine.started_ms),
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "0",
        }


def _described(lite: LiteQueue) -> ProcessQueueInfo:
    return ProcessQueueInfo(
        commit_offset=-1 if lite.done_offset is None else lite.done_offset,
        cached_msg_count=lite.count,
        cached_msg_size_in_mib=lite.size_bytes >> 20,
        dropped=lite.is_dropped,
    )
