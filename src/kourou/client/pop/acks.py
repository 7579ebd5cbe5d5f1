"""AckPipeline: sends acks, merged: what is acknowledged while a request is under way goes into the next one.

So a single ack leaves at once, and thousands cost few requests. A request that fails because the broker is
away is repeated until the leases are over. A broker that has BATCH_ACK_MESSAGE gets it for several messages;
the first versions of RocketMQ 5 do not have it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.instance import ClientInstance
from kourou.client.pop.pop_calls import PopCalls, is_temporary
from kourou.client.pop.popped import Lease, LeaseState
from kourou.errors import KourouError, PopNotSupportedError

_log = logging.getLogger(__name__)

MAX_ACKS: Final = 1_024
"""The maximum number of messages of one request. Apache's broker handles each check point of a request in
turn, in one of its threads; with this limit that takes milliseconds."""


class AckPipeline:
    """The acks of one consumer. All calls are made on its loop."""

    def __init__(self, instance: ClientInstance, calls: PopCalls) -> None:
        self._loop = asyncio.get_running_loop()
        self._instance = instance
        self._calls = calls
        self._waiting: dict[str, deque[Lease]] = {}
        self._tasks = CancellableTasks(instance.tasks.fail)
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._without_batches: set[str] = set()

    def put(self, lease: Lease) -> asyncio.Future[None]:
        """Acknowledge a message that is held; the outcome is set when the broker has answered."""
        assert lease.state is LeaseState.HELD, lease.state
        lease.state = LeaseState.ACKED
        lease.ack = outcome = self._loop.create_future()
        broker_name = lease.handle.broker_name
        self._waiting.setdefault(broker_name, deque()).append(lease)
        if broker_name not in self._senders:
            self._senders[broker_name] = self._tasks.start(
                self._send_all(broker_name), f"acks to {broker_name}"
            )
        return outcome

    async def stop(self, timeout_s: float) -> None:
        """Wait until all acks are answered, at most that time."""
        if senders := list(self._senders.values()):
            await asyncio.wait(senders, timeout=timeout_s)
        await self._tasks.stop()
        for waiting in self._waiting.values():
            for lease in waiting:
                if lease.ack is not None:
                    lease.ack.cancel()

    async def _send_all(self, broker_name: str) -> None:
        waiting = self._waiting[broker_name]
        try:
            while waiting:
                leases = [waiting.popleft() for _ in range(min(len(waiting), MAX_ACKS))]
                try:
                    await self._send(broker_name, leases)
                except BaseException:
                    waiting.extendleft(reversed([lease for lease in leases if not _is_answered(lease)]))
                    raise
        finally:
            del self._senders[broker_name]

    async def _send(self, broker_name: str, leases: list[Lease]) -> None:
        failures = 0
        while leases:
            try:
                await self._send_once(broker_name, leases)
                return
            except KourouError as error:
                failures += 1
                if not is_temporary(error):
                    _set(leases, error)
                    return
                now = self._loop.time()
                _set([lease for lease in leases if lease.is_over(now)], error)
                leases = [lease for lease in leases if not _is_answered(lease)]
                level = logging.WARNING if failures == 1 else logging.DEBUG
                _log.log(level, "%d acks to broker %s are repeated: %s", len(leases), broker_name, error)
                await self._instance.masters.pause(broker_name, error, failures)

    async def _send_once(self, broker_name: str, leases: list[Lease]) -> None:
        if len(leases) > 1 and broker_name not in self._without_batches:
            try:
                await self._calls.ack_batch(leases)
                _set(leases, None)
                return
            except PopNotSupportedError:
                self._without_batches.add(broker_name)
            except KourouError as error:
                if is_temporary(error):
                    raise
                # One of them is the cause: only that one fails.
        await self._send_singly(leases)

    async def _send_singly(self, leases: list[Lease]) -> None:
        outcomes = await asyncio.gather(*(self._calls.ack(lease) for lease in leases), return_exceptions=True)
        again: KourouError | None = None
        for lease, outcome in zip(leases, outcomes, strict=True):
            if isinstance(outcome, KourouError) and is_temporary(outcome):
                again = outcome
            elif outcome is None or isinstance(outcome, KourouError):
                _set([lease], outcome)
            else:
                raise outcome
        if again is not None:
            raise again


def _is_answered(lease: Lease) -> bool:
    return lease.ack is None or lease.ack.done()


def _set(leases: list[Lease], error: KourouError | None) -> None:
    for lease in leases:
        if lease.ack is None or lease.ack.done():  # its caller was cancelled
            continue
        if error is None:
            lease.ack.set_result(None)
        else:
            lease.ack.set_exception(error)
