"""PushEngine: the parts of a started push consumer, how they are wired, and how they stop.

Not here: the methods that users call (push_consumer.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.failure_log import REPORT_INTERVAL_MS, FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.core.subscription import Subscriptions, now_ms, subscription_refused
from kourou.client.pop.lease_calls import LeaseCalls
from kourou.client.pop.pop_calls import PopCalls
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.concurrent_service import ConcurrentService
from kourou.client.push.consumer_calls import running_info
from kourou.client.push.consumer_offsets import stored_offsets
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import SAMPLE_INTERVAL_MS, ConsumerStats, StatsTable
from kourou.client.push.handler_calls import HandlerCalls
from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.push.orderly_service import OrderlyService
from kourou.client.push.pop_service import PoppedReturns, PopService
from kourou.client.push.pull_service import FAILURE_DELAY_S, PullService
from kourou.client.push.rebalance import FIRST_RENEWAL_MS, RENEW_INTERVAL_MS, QueueLocks, Rebalancer
from kourou.client.push.send_back import Returns, SendBack
from kourou.client.trace.consume_trace import SEND_INTERVAL_MS, ConsumeTrace
from kourou.errors import ClientError, KourouError, ResponseError
from kourou.protocol.bodies import ConsumerRunningInfo, MessageQueue
from kourou.protocol.versions import V4_1_0_SNAPSHOT
from kourou.wording import counted

_log = logging.getLogger(__name__)

_FIRST_PERSIST_MS: Final = 10_000


class PushEngine:
    """Everything that runs between start and stop. Created on the loop, with a started instance."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        namespace: Namespace,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
    ) -> None:
        self.instance = instance
        self._namespace = namespace
        self.options = options
        self.subscriptions = subscriptions
        self.stats = StatsTable()
        self._group = group
        self._started_ms = now_ms()
        self._is_stopping = False
        self.offsets = stored_offsets(instance, group, options)
        self._locks = QueueLocks(instance, group) if options.orderly and not options.is_broadcasting else None
        self._balancing = CancellableTasks(instance.tasks.fail)
        self._threads = HandlerThreads(group, options.concurrency)
        self._trace = ConsumeTrace(instance, namespace, options.trace_topic) if options.trace else None
        self._failures = FailureLog()
        self.calls = HandlerCalls(
            group,
            is_batch=options.batch_size > 1,
            hooks=(*options.hooks, *([] if self._trace is None else [self._trace])),
            threads=self._threads,
            is_stopping=lambda: self._is_stopping,
            failures=self._failures,
        )
        send_back = SendBack(instance, group, namespace, options.max_attempts, self._failures)
        self.service: ConcurrentService | OrderlyService
        self.pops: PopService | None = None
        if options.is_pop:
            self.service, self.pops = self._popping(send_back)
        else:
            self.service = self._service(send_back)
        self.rebalancer = Rebalancer(
            instance,
            group,
            options,
            subscriptions,
            self.offsets,
            locks=self._locks,
            taken=lambda assigned: self.pulls.start(assigned),
            dropped=lambda assigned: self.pulls.end(assigned),
            find_sources=None if self.pops is None else self.pops.rebalance,
        )
        self.pulls = PullService(
            instance,
            group,
            namespace,
            options,
            self.stats,
            self.service,
            offset_moved=self.rebalancer.move,
            may_pull=None if self._locks is None else self._wait_locked,
        )

    def _service(self, send_back: SendBack) -> ConcurrentService | OrderlyService:
        if not self.options.orderly:
            return self._concurrent(send_back)
        return OrderlyService(
            self._pool_name,
            self.options,
            self.subscriptions,
            self.calls,
            send_back,
            self.stats,
            self.instance.tasks,
            self._locks,
        )

    def _concurrent(self, returns: Returns) -> ConcurrentService:
        return ConcurrentService(
            self._pool_name,
            self.options,
            self.subscriptions,
            self.calls,
            returns,
            self.stats,
            self.instance.tasks,
        )

    def _popping(self, send_back: SendBack) -> tuple[ConcurrentService, PopService]:
        pop_calls = PopCalls(self.instance, self._group, self._namespace)
        leases = LeaseCalls(self.instance, pop_calls)
        service = self._concurrent(PoppedReturns(leases, send_back, self.options.max_attempts, self._group))
        pops = PopService(
            self.instance,
            self._group,
            self.options,
            self.subscriptions,
            self.stats,
            service,
            pop_calls,
            leases,
            self._failures,
        )
        return service, pops

    @property
    def _pool_name(self) -> str:
        return f"consumer {self._group}"

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to consume. Errors name the expression that a broker rejects, or the file that cannot be
        read."""
        await self.offsets.load()
        for topic in self.subscriptions.topics:
            await self.check_subscription(topic)
        self.instance.every(
            self.options.persist_interval_ms,
            self.rebalancer.persist,
            "offsets",
            first_ms=min(self.options.persist_interval_ms, _FIRST_PERSIST_MS),
        )
        if self._trace is not None:
            self.instance.every(SEND_INTERVAL_MS, self._trace.send, "traces")
        self.instance.every(SAMPLE_INTERVAL_MS, self.stats.sample, "stats")
        self.instance.every(REPORT_INTERVAL_MS, self._failures.report, "failures")
        if self._locks is not None:
            self.instance.every(RENEW_INTERVAL_MS, self._renew_locks, "locks", first_ms=FIRST_RENEWAL_MS)
            self.instance.masters.on_found.append(self._lock_again)
        self._balancing.start(self.rebalancer.keep_balanced(), f"rebalance {self._group}")

    async def check_subscription(self, topic: str) -> None:
        """Check that a broker accepts an SQL92 expression; ClientError if not."""
        subscription = self.subscriptions.get(topic)
        address = self.instance.routes.any_of_topic(topic)
        if subscription is None or subscription.data.expression_type == "TAG" or address is None:
            return
        data = subscription.data
        try:
            await self.instance.api.check_subscription(address, self.instance.client_id, self._group, data)
        except ResponseError as error:
            raise subscription_refused(data, address, error) from error
        if self.instance.broker_versions.get(address, V4_1_0_SNAPSHOT) < V4_1_0_SNAPSHOT:
            raise ClientError(f"topic {topic!r}: broker {address} is too old for {data.expression_type}")

    def resubscribed(self, topic: str) -> None:
        """A subscription was replaced: assigned queues continue with the new one."""
        subscription = self.subscriptions.get(topic)
        for queue, assigned in self.rebalancer.assigned.items():
            if queue.topic == topic and subscription is not None:
                assigned.subscription = subscription
        if self.pops is not None and subscription is not None:
            self.pops.resubscribed(topic, subscription)

    def pause(self) -> None:
        """Take no more messages until `resume`; those in hand are consumed."""
        self.pulls.pause()
        if self.pops is not None:
            self.pops.pause()

    def resume(self) -> None:
        """Take messages again."""
        self.pulls.resume()
        if self.pops is not None:
            self.pops.resume()

    def refuse(self) -> None:
        """Accept no more queues, and start no more handlers."""
        self._is_stopping = True
        self.rebalancer.stop()
        self.service.refuse()

    async def stop(self, timeout_s: float) -> None:
        """Stop pulling, let handlers finish, store offsets, release queues."""
        self.refuse()
        await self._balancing.stop()
        await self.pulls.stop()
        if self.pops is not None:
            await self.pops.drop_all()
        await self.service.stop(timeout_s)
        if self.pops is not None:
            await self.pops.stop()
        await self._failures.report()
        await self.rebalancer.release_all()
        if self._trace is not None:
            await self._trace.send()
        if left := await self._threads.stop():
            _log.error(
                "group %s: %s abandoned in handlers that do not return", self._group, counted(left, "thread")
            )

    # -- orderly ---------------------------------------------------------------------------------

    async def _renew_locks(self) -> None:
        assert self._locks is not None
        await self._locks.renew(list(self.rebalancer.assigned.values()))

    def _lock_again(self, broker_name: str) -> None:
        """A new master knows no locks."""
        self.instance.tasks.start(self._renew_locks(), f"locks at {broker_name}")

    async def _wait_locked(self, assigned: AssignedQueue) -> bool:
        """Nothing is pulled while another consumer holds the lock."""
        if assigned.is_locked:
            return True
        assigned.pulled()  # waiting for the lock is not a stalled pull
        await asyncio.sleep(FAILURE_DELAY_S)
        return assigned.is_locked

    # -- for tools -------------------------------------------------------------------------------

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets, in the queues that are assigned."""
        for queue, queue_offset in offsets.items():
            assigned = self.rebalancer.assigned.get(queue)
            if assigned is None or queue.topic != topic:
                continue
            _log.info("group %s: %s goes to offset %d", self._group, queue, queue_offset)
            try:
                await self.rebalancer.move(assigned, queue_offset)
            except KourouError as error:
                _log.warning("group %s: %s is not reset: %s", self._group, queue, error)

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        self.rebalancer.record_offsets()
        return running_info(
            group=self._group,
            options=self.options,
            namesrv_addresses=self.instance.namesrvs.addresses,
            started_ms=self._started_ms,
            subscriptions=self.subscriptions,
            assigned=self.rebalancer.assigned,
            popped={} if self.pops is None else self.pops.describe(),
            offsets=self.offsets,
            stats=self.stats,
            with_stacks=with_stacks,
        )

    @property
    def queues(self) -> list[MessageQueue]:
        """What is pulled and popped now."""
        return sorted([*self.rebalancer.assigned, *([] if self.pops is None else self.pops.sources)])

    @property
    def failure(self) -> BaseException | None:
        """The error of a background task; None as long as none has failed."""
        return self.instance.tasks.failure

    def statistics(self) -> ConsumerStats:
        assigned = self.rebalancer.assigned.values()
        popped = [] if self.pops is None else self.pops.in_hand
        return ConsumerStats(
            topics=dict(self.stats.topics),
            queues=len(self.queues),
            in_hand=sum(each.count for each in assigned) + len(popped),
            in_hand_bytes=sum(each.size_bytes for each in assigned)
            + sum(message.store_size for message in popped),
            running_handlers=self.service.running,
            timed_out=self.stats.timed_out,
            failure=self.failure,
        )
