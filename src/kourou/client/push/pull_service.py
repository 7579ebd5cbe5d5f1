"""PullService: keeps pulling the assigned queues, one request at a time for each.

The broker holds pulls until there are messages. Errors of a broker are logged and retried; a failure of the
client itself fails the consumer. Not here: a single pull (pulls.py), what happens to the messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.core.routes import BrokerAddress
from kourou.client.pull.pulls import (
    BEHIND_DELAY_S,
    SUSPENDED_PULL_TIMEOUT_MS,
    PullResult,
    PullStatus,
    is_behind,
    pull,
)
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import StatsTable
from kourou.errors import KourouError, NoRouteError, RemotingError, ResponseError
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import PullSysFlag, ResponseCode
from kourou.protocol.features import Feature
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_retry_topic
from kourou.protocol.properties import MessageConst

_log = logging.getLogger(__name__)

FAILURE_DELAY_S: Final = 1.0
_FLOW_CONTROL_DELAY_S: Final = 0.02
# A heartbeat registers the client again with a broker that has restarted.
_UNKNOWN_DELAY_S: Final = 0.1
_WARN_AFTER_FAILURES: Final = 3
_UNKNOWN_TO_BROKER: Final = frozenset(
    {ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST}
)


class ConsumeService(Protocol):
    """Passes pulled messages to the handler."""

    def submit(self, assigned: AssignedQueue, messages: list[MessageExt]) -> None:
        """Consume messages that are already in `assigned`."""


class PullService:
    """Pulls for one consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        namespace: Namespace,
        options: ConsumerOptions,
        stats: StatsTable,
        consume: ConsumeService,
        *,
        offset_moved: Callable[[AssignedQueue, int], Awaitable[None]],
        may_pull: Callable[[AssignedQueue], Awaitable[bool]] | None = None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._stats = stats
        self._consume = consume
        self._offset_moved = offset_moved
        self._may_pull = may_pull
        self._namespace = namespace
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._registered_at = 0.0
        self._tasks = CancellableTasks(instance.tasks.fail)
        self._pulls: dict[AssignedQueue, asyncio.Task[None]] = {}

    def start(self, assigned: AssignedQueue) -> None:
        """Begin to pull a queue, until it is dropped."""
        task = self._tasks.start(self._keep_pulling(assigned), f"pull {assigned.queue}")
        self._pulls[assigned] = task
        task.add_done_callback(lambda _: self._pulls.pop(assigned, None))

    def end(self, assigned: AssignedQueue) -> None:
        """Stop pulling a dropped queue; a request that the broker holds is abandoned."""
        assert assigned.is_dropped, "a queue is dropped before its pulls end"
        task = self._pulls.get(assigned)
        # A pull that drops its own queue ends by itself.
        if task is not None and task is not asyncio.current_task():
            self._tasks.cancel(task)

    async def stop(self) -> None:
        """Stop pulling; messages already pulled stay."""
        await self._tasks.stop()

    def pause(self) -> None:
        """Stop pulling until `resume`; messages already pulled are consumed."""
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    # -- one queue -------------------------------------------------------------------------------

    async def _keep_pulling(self, assigned: AssignedQueue) -> None:
        failures = 0
        while not assigned.is_dropped:
            try:
                await self._pull_once(assigned)
                failures = 0
            except KourouError as error:
                failures += 1
                await self._after_failure(assigned, error, failures)

    async def _pull_once(self, assigned: AssignedQueue) -> None:
        if not await self._wait_turn(assigned):
            return
        assigned.pulled()
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await self._pull(assigned)
        if not assigned.is_dropped:  # while we waited
            await self._handle_result(assigned, result, loop.time() - began)
        if self._options.pull_interval_ms:
            await asyncio.sleep(self._options.pull_interval_ms / 1000)

    async def _wait_turn(self, assigned: AssignedQueue) -> bool:
        """Wait until more may be pulled; False: check again."""
        if not self._resumed.is_set():
            await self._wait_resumed(assigned)
        if assigned.flow_problem() is not None:
            await self._wait_room(assigned)
        if self._may_pull is not None and not await self._may_pull(assigned):
            return False
        return not assigned.is_dropped

    async def _wait_resumed(self, assigned: AssignedQueue) -> None:
        while not assigned.is_dropped and not self._resumed.is_set():
            assigned.pulled()  # a pause is not a stalled pull
            try:
                async with asyncio.timeout(FAILURE_DELAY_S):
                    await self._resumed.wait()
            except TimeoutError:
                continue

    async def _wait_room(self, assigned: AssignedQueue) -> None:
        _log.debug("%s: no pull now: %s", assigned.queue, assigned.flow_problem())
        while not assigned.is_dropped and assigned.flow_problem() is not None:
            assigned.pulled()
            try:
                async with asyncio.timeout(FAILURE_DELAY_S):
                    await assigned.wait_room()
            except TimeoutError:
                continue

    async def _pull(self, assigned: AssignedQueue) -> PullResult:
        """Pull from the broker that the last response suggested, or from another one of the same name that
        responds."""
        queue, routes = assigned.queue, self._instance.routes
        place = routes.read_from(queue.broker_name, assigned.pull_from)
        if place is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} is not known any more")
        try:
            return await self._pull_at(place, assigned)
        except RemotingError as error:
            other = routes.fail_over(queue.broker_name, place.address, error)
            if other is None or assigned.is_dropped:
                raise
        return await self._pull_at(other, assigned)

    async def _pull_at(self, place: BrokerAddress, assigned: AssignedQueue) -> PullResult:
        features = await self._instance.features.of(place.address)
        return await pull(
            self._instance.api,
            place.address,
            assigned.queue.broker_name,
            self._header(assigned, is_large=Feature.LARGE_PULL in features),
            timeout_ms=self._options.suspend_timeout_ms + SUSPENDED_PULL_TIMEOUT_MS // 2,
            broker_id=place.broker_id,
        )

    def _header(self, assigned: AssignedQueue, *, is_large: bool) -> PullMessageRequestHeader:
        queue, data = assigned.queue, assigned.subscription.data
        # Without the offset that Java commits with pulls: the broker might store it after a newer one.
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=assigned.next_offset,
            max_msg_nums=self._options.pull_batch_size,
            sys_flag=PullSysFlag.SUSPEND.value,
            commit_offset=0,
            suspend_timeout_millis=self._options.suspend_timeout_ms,
            sub_version=data.sub_version,
            expression_type=data.expression_type,
            kourou_large_pull=is_large or None,
        )

    # -- results ---------------------------------------------------------------------------------

    async def _handle_result(self, assigned: AssignedQueue, result: PullResult, seconds: float) -> None:
        assigned.pull_from = result.suggested_broker_id
        if result.status is PullStatus.FOUND:
            self._found(assigned, result, seconds)
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            await self._illegal(assigned, result)
        else:
            is_waiting = is_behind(self._instance.routes, result, assigned.next_offset)
            assigned.pulled_messages([], result.next_begin_offset)
            if is_waiting:
                await asyncio.sleep(BEHIND_DELAY_S)

    def _found(self, assigned: AssignedQueue, result: PullResult, seconds: float) -> None:
        messages = result.messages()
        stats = self._stats.of(assigned.queue.topic)
        stats.pulls += 1
        stats.pulled += len(messages)
        stats.pull_s += seconds
        messages = assigned.subscription.keeps(messages)
        if self._namespace.name or is_retry_topic(assigned.queue.topic):
            for message in messages:
                message.topic = self.shown_topic(message)
        messages = assigned.pulled_messages(messages, result.next_begin_offset)
        if messages:
            self._consume.submit(assigned, messages)

    def shown_topic(self, message: MessageExt) -> str:
        """The topic as users see it: the original topic of a retry, without the namespace."""
        topic = message.topic
        if is_retry_topic(topic):
            topic = message.properties.get(MessageConst.PROPERTY_RETRY_TOPIC) or topic
        return self._namespace.unwrap(topic)

    async def _illegal(self, assigned: AssignedQueue, result: PullResult) -> None:
        # If an operator moved the group while it was offline, this is the offset that was requested.
        is_new = result.next_begin_offset != assigned.next_offset
        _log.log(
            logging.WARNING if is_new else logging.INFO,
            "%s: offset reset from %d to %d (group %s; the queue has offsets %d to %d)",
            assigned.queue,
            assigned.next_offset,
            result.next_begin_offset,
            self._group,
            result.min_offset,
            result.max_offset,
        )
        await self._offset_moved(assigned, result.next_begin_offset)

    async def _after_failure(self, assigned: AssignedQueue, error: KourouError, failures: int) -> None:
        assigned.pull_from = MASTER_ID  # a slave that was suggested may not serve the topic
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL_DELAY_S)
            return
        if isinstance(error, ResponseError) and error.code in _UNKNOWN_TO_BROKER:
            await self._register_again(assigned, error, failures)
            return
        assigned.pulled()  # a pause is not a stalled pull
        is_logged = self._instance.api.refusals.report(f"group {self._group}", error)
        # Only the first of consecutive failures is a warning.
        level = logging.WARNING if failures == 1 and not is_logged else logging.DEBUG
        _log.log(level, "group %s: pull of %s: %s", self._group, assigned.queue, error)
        await self._instance.masters.pause(assigned.queue.broker_name, error, failures)

    async def _register_again(self, assigned: AssignedQueue, error: ResponseError, failures: int) -> None:
        """Send a heartbeat: the broker was restarted, or has not handled the last heartbeat yet."""
        level = logging.WARNING if failures == _WARN_AFTER_FAILURES else logging.DEBUG
        _log.log(level, "group %s: pull of %s: %s", self._group, assigned.queue, error)
        now = asyncio.get_running_loop().time()
        if now - self._registered_at > _UNKNOWN_DELAY_S:  # one for all queues
            self._registered_at = now
            await self._instance.heartbeat()
        await asyncio.sleep(_UNKNOWN_DELAY_S if failures < _WARN_AFTER_FAILURES else FAILURE_DELAY_S)
