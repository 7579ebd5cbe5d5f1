"""Rebalancer: which queues are assigned to this consumer, whenever the group or a topic changes.

Every member computes its own share from the same lists. A queue that is no longer assigned is dropped: its
offset is stored, and results of handlers that still run are not counted. A new queue begins at the group's
offset. The rebalancer runs at once when a broker reports a change of the group, and every 20 s; sooner when
something was missing. QueueLocks holds the brokers' locks on queues, for orderly consumers. Only masters
grant them: while a master is away, its locks count until they expire, then consumption of those queues stops
until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.core.master_search import is_elsewhere
from kourou.client.core.routes import BrokerAddress, TopicRoute
from kourou.client.core.subscription import Subscription, Subscriptions
from kourou.client.push.assigned_queue import AssignedQueue, FlowLimits
from kourou.client.push.consumer_offsets import ConsumerOffsets, StartOffset
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.errors import ClientError, KourouError, NoRouteError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import is_retry_topic
from kourou.wording import counted

_log = logging.getLogger(__name__)


RENEW_INTERVAL_MS: Final = 20_000
FIRST_RENEWAL_MS: Final = 1_000


class QueueLocks:
    """The queue locks of one orderly consumer."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._failing: set[str] = set()

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Request or renew the lock of a queue; False when another consumer holds it, or the request
        fails."""
        try:
            held = await self._request_locks(assigned.queue.broker_name, [assigned.queue])
        except KourouError:
            return False
        self._record_lock(assigned, assigned.queue in held)
        return assigned.is_locked

    async def renew(self, all_assigned: Collection[AssignedQueue]) -> None:
        """Renew the locks of all queues, with one request for each broker."""
        brokers: dict[str, list[AssignedQueue]] = {}
        for assigned in all_assigned:
            brokers.setdefault(assigned.queue.broker_name, []).append(assigned)
        await asyncio.gather(*(self._renew_at(name, mine) for name, mine in brokers.items()))

    async def _renew_at(self, broker_name: str, mine: list[AssignedQueue]) -> None:
        try:
            held = set(await self._request_locks(broker_name, [assigned.queue for assigned in mine]))
        except KourouError:
            return  # not lost yet: the broker keeps them for a minute
        for assigned in mine:
            self._record_lock(assigned, assigned.queue in held)

    def _record_lock(self, assigned: AssignedQueue, is_held: bool) -> None:
        if is_held:
            assigned.lock()
        else:
            assigned.unlock()
            _log.info("group %s: %s is locked by another consumer", self._group, assigned.queue)

    async def _request_locks(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        try:
            address = self._instance.routes.master(broker_name)
            if address is None:
                raise NoRouteError(queues[0].topic, f"broker {broker_name!r} has no master now")
            held = await self._instance.api.lock(address, self._group, self._instance.client_id, queues)
        except KourouError as error:
            if is_elsewhere(error):
                self._instance.masters.begin(broker_name)
            # Logged once: it is retried every few seconds, for each queue.
            level = logging.DEBUG if broker_name in self._failing else logging.WARNING
            self._failing.add(broker_name)
            _log.log(level, "group %s: no locks at %s: %s", self._group, broker_name, error)
            raise
        self._failing.discard(broker_name)
        return held

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Release the locks of queues. Locks that are not released expire after a minute."""
        brokers: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            brokers.setdefault(queue.broker_name, []).append(queue)
        for broker_name, mine in brokers.items():
            address = self._instance.routes.master(broker_name)
            if address is None:
                continue
            try:
                await self._instance.api.unlock(
                    address, self._group, self._instance.client_id, mine, oneway=not wait
                )
            except KourouError as error:
                _log.warning("group %s: %s keeps its locks: %s", self._group, broker_name, error)


# When many members start, one run serves a burst of notifications.
_MIN_INTERVAL_S: Final = 0.1
_UNBALANCED_S: Final = 0.5
_MAX_UNBALANCED_S: Final = 5.0
_WAIT_IDLE_S: Final = 0.5
_FORCED_UNLOCK_MS: Final = 20_000


class Rebalancer:
    """The queues of one consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        offsets: ConsumerOffsets,
        *,
        locks: QueueLocks | None,
        taken: Callable[[AssignedQueue], None],
        dropped: Callable[[AssignedQueue], None],
        find_sources: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`find_sources` looks for what is popped; with it, only the retry topic is pulled."""
        self._instance = instance
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._locks = locks
        self._taken = taken
        self._dropped = dropped
        self._find_sources = find_sources
        self._start_offset = StartOffset(instance.api, instance.routes, offsets, options)
        self._limits = FlowLimits(
            options.pull_threshold_messages,
            options.pull_threshold_bytes,
            None if options.orderly else options.max_span,
        )
        self._is_requested = asyncio.Event()
        self._is_stopping = False
        self._problems: dict[str, str] = {}
        self._leaving: dict[MessageQueue, AssignedQueue] = {}
        self._storing: set[MessageQueue] = set()
        self.assigned: dict[MessageQueue, AssignedQueue] = {}

    def wake(self) -> None:
        self._is_requested.set()

    async def keep_balanced(self) -> None:
        """Rebalance now, and again whenever there is a reason, until `stop`."""
        unbalanced_s = _UNBALANCED_S
        while not self._is_stopping:
            await self._instance.masters.wait_settled()
            self._is_requested.clear()
            wait_s = self._options.rebalance_interval_ms / 1000
            if await self.rebalance():
                unbalanced_s = _UNBALANCED_S
            else:
                wait_s = min(unbalanced_s, wait_s)
                unbalanced_s = min(unbalanced_s * 2, _MAX_UNBALANCED_S)
            await asyncio.sleep(_MIN_INTERVAL_S)
            await self._wait_requested(wait_s)

    async def _wait_requested(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_requested.wait()
        except TimeoutError:
            return

    def stop(self) -> None:
        self._is_stopping = True

    # -- shares ----------------------------------------------------------------------------------

    async def rebalance(self) -> bool:
        """Compute all shares once; False when something was missing."""
        is_balanced = await self._finish_leaving()
        if self._find_sources is not None:
            is_balanced &= await self._find_sources()
        for subscription in self._subscriptions:
            if self._find_sources is not None and not is_retry_topic(subscription.data.topic):
                continue
            try:
                is_balanced &= await self._rebalance_topic(subscription)
                self._problems.pop(subscription.data.topic, None)
            except KourouError as error:
                if not self._instance.api.refusals.report(f"group {self._group}", error):
                    self._log_problem(subscription.data.topic, str(error))
                is_balanced = False
        subscribed = set(self._subscriptions.topics)
        for assigned in [each for each in self.assigned.values() if each.queue.topic not in subscribed]:
            await self.drop(assigned)
        return await self._finish_leaving() and is_balanced

    def _log_problem(self, topic: str, problem: str) -> None:
        # Logged once. A broker creates the retry topic shortly after the group registers.
        is_known = self._problems.get(topic) == problem or is_retry_topic(topic)
        self._problems[topic] = problem
        _log.log(
            logging.DEBUG if is_known else logging.WARNING,
            "group %s: no queues of %s for now: %s",
            self._group,
            topic,
            problem,
        )

    async def _rebalance_topic(self, subscription: Subscription) -> bool:
        topic = subscription.data.topic
        route = await self._instance.routes.get(topic)
        if self._options.is_broadcasting:
            share = list(route.subscribe_queues)
        else:
            client_ids = sorted(await self._client_ids(route))
            share = self._share(route, client_ids)
        return await self._apply(subscription, set(share))

    def _share(self, route: TopicRoute, client_ids: list[str]) -> list[MessageQueue]:
        strategy = self._options.strategy
        try:
            share = list(
                strategy.allocate(
                    self._group, self._instance.client_id, sorted(route.subscribe_queues), client_ids
                )
            )
            if strange := [each for each in share if not isinstance(each, MessageQueue)]:
                raise TypeError(f"{strange[0]!r:.100} is not a MessageQueue")
            return share
        except Exception as error:  # a strategy may be user code
            raise ClientError(
                f"strategy {type(strategy).__name__} cannot allocate topic {route.topic!r}: {error!r}"
            ) from error

    async def _client_ids(self, route: TopicRoute) -> list[str]:
        """The members that one broker knows; any will do, since members register with all."""
        queues = [MessageQueue(route.topic, broker.broker_name, 0) for broker in route.data.broker_datas]
        failure: KourouError = NoRouteError(route.topic, "no broker of it is known")
        for queue in random.sample(queues, len(queues)):
            try:
                return await self._instance.routes.call_broker(queue, self._client_ids_at)
            except KourouError as error:
                failure = error
        raise failure

    async def _client_ids_at(self, place: BrokerAddress) -> list[str]:
        address = place.address
        try:
            found = await self._instance.api.consumer_ids(address, self._group)
            if self._instance.client_id in found:
                return found
        except ResponseError:
            _log.debug("group %s: broker %s knows no member of it", self._group, address)
        # The broker is new or was restarted: without registration this client gets no queues.
        await self._instance.heartbeat()
        return await self._instance.api.consumer_ids(address, self._group)

    async def _apply(self, subscription: Subscription, share: set[MessageQueue]) -> bool:
        topic = subscription.data.topic
        mine = [each for each in self.assigned.values() if each.queue.topic == topic]
        lost = [each for each in mine if each.queue not in share or each.is_pull_expired]
        for assigned in lost:
            if assigned.is_pull_expired:
                _log.error(
                    "group %s: %s was not pulled for too long; restarting it", self._group, assigned.queue
                )
        await asyncio.gather(*(self.drop(assigned) for assigned in lost))
        new = [queue for queue in sorted(share) if queue not in self.assigned]
        taken = await asyncio.gather(*(self._take(subscription, queue) for queue in new))
        if lost or any(taken):
            _log.info(
                "group %s: %s of %s assigned: %d new, %d lost",
                self._group,
                counted(sum(each.topic == topic for each in self.assigned), "queue"),
                topic,
                sum(taken),
                len(lost),
            )
            # So that the broker's copy of the subscription is up to date.
            self._subscriptions.touch(topic)
            await self._instance.heartbeat()
        return all(taken)

    async def _take(self, subscription: Subscription, queue: MessageQueue) -> bool:
        if queue in self._leaving or queue in self._storing:
            return False
        assigned = AssignedQueue(queue, subscription, self._limits)
        if self._locks is not None and not await self._locks.lock(assigned):
            return False
        self._offsets.forget(queue)
        try:
            assigned.next_offset = await self._start_offset.find(queue)
        except KourouError as error:
            if not self._instance.api.refusals.report(f"group {self._group}", error):
                _log.warning("group %s: the first offset of %s is not known: %s", self._group, queue, error)
            return False
        if self._is_stopping or self._subscriptions.get(queue.topic) is None:
            return False
        self.assigned[queue] = assigned
        self._taken(assigned)
        return True

    # -- release ---------------------------------------------------------------------------------

    async def drop(self, assigned: AssignedQueue, queue_offset: int | None = None) -> None:
        """Release a queue and store its offset, or `queue_offset` if the group is to continue there."""
        if self.assigned.get(assigned.queue) is not assigned:
            return  # already dropped
        assigned.drop()
        del self.assigned[assigned.queue]
        self._dropped(assigned)
        offset = assigned.consumed_offset if queue_offset is None else queue_offset
        # The next member reads the offset where it is stored: this one must not take the queue before.
        self._storing.add(assigned.queue)
        try:
            if queue_offset is not None and self._options.offsets is not None:
                # A handler that is still running would store its own offset over this one.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(assigned.idle.wait(), _FORCED_UNLOCK_MS / 1000)
            if self._locks is not None:
                self._leaving[assigned.queue] = assigned
            if offset is not None:
                store = self._offsets.update if queue_offset is None else self._offsets.reset
                store(assigned.queue, offset)
                await self._offsets.persist([assigned.queue])
        finally:
            self._storing.discard(assigned.queue)
        self._offsets.forget(assigned.queue)

    async def move(self, assigned: AssignedQueue, queue_offset: int) -> None:
        """Restart a queue at another offset, at once."""
        await self.drop(assigned, queue_offset)
        self.wake()

    async def _finish_leaving(self) -> bool:
        """Unlock dropped queues as soon as their handlers have ended."""
        if not self._leaving or self._locks is None:
            return True
        idle = [assigned.idle.wait() for assigned in self._leaving.values()]
        waits = [asyncio.ensure_future(each) for each in idle]
        await asyncio.wait(waits, timeout=_WAIT_IDLE_S)
        for wait in waits:
            wait.cancel()
        for queue, assigned in list(self._leaving.items()):
            if assigned.idle.is_set() or assigned.leaving_ms > _FORCED_UNLOCK_MS:
                del self._leaving[queue]
                await self._locks.unlock([queue])
            else:
                assigned.try_unlock_times += 1
        return not self._leaving

    # -- offsets ---------------------------------------------------------------------------------

    def record_offsets(self) -> Iterable[MessageQueue]:
        """Record the offset of every queue; returns the queues."""
        for queue, assigned in self.assigned.items():
            if (offset := assigned.consumed_offset) is not None:
                self._offsets.update(queue, offset)
        return list(self.assigned)

    async def persist(self) -> None:
        """Store the offset of every queue; called every few seconds."""
        await self._offsets.persist(self.record_offsets())

    async def release_all(self) -> None:
        """Store all offsets and unlock all queues, at the stop."""
        queues = list(self.record_offsets())
        await self._offsets.persist(queues)
        for assigned in self.assigned.values():
            assigned.drop()
        if self._locks is not None:
            await self._locks.unlock([*queues, *self._leaving], wait=True)
        self.assigned.clear()
