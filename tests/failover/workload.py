"""Workload: producers and consumers that work on any cluster while faults happen, and write a history.

    async with Workload(namesrv, Path("history.jsonl"), WorkloadOptions(seed=7)) as work:
        ...  # faults, and their end
        report = await work.finish()
    assert not report.findings, report.text()

Everything runs on the loop of the caller. `python -m tests.failover.workload --help` runs one alone.
Transactions whose end gets lost are decided by the broker's checks: brokers should have a short
`transactionTimeOut` and `transactionCheckInterval`, and a high `transactionCheckMax`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kourou import AsyncPullConsumer, MessageQueue
from kourou.admin import Admin
from kourou.admin.atomic import list_atomic
from kourou.admin.brokers import broker_epochs
from kourou.admin.session import BrokerAddress
from kourou.admin.topics import create_topic
from kourou.errors import ClientError, KourouError
from kourou.protocol.bodies.atomic_list import AtomicState
from kourou.protocol.bodies.topics import TopicConfig
from tests.failover.checker import check
from tests.failover.consumers import ConsumerGroup, read_all
from tests.failover.findings import Report
from tests.failover.history import History, read_history
from tests.failover.producers import SENDERS, Sender, TransactionSender

_T = TypeVar("_T")
_POLL_S: Final = 0.1
_OFFSETS_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """How much is done, and how."""

    seed: int = 0
    topic: str = "Chaos"
    queues: int = 4
    """Of each broker."""
    producers: int = 1
    """Of each kind."""
    rate: float = 20.0
    """Sends of each producer in a second, at most."""
    members: int = 2
    """Of each consumer group."""
    send_timeout_ms: int = 3_000
    attempt_timeout_ms: int = 1_000
    settle_s: float = 60.0
    """How long `finish` waits for the cluster, for transactions, for publishes and for consumers."""


class Workload:
    """One run; an async context manager, inside of which its clients work."""

    def __init__(self, namesrv: str, history: Path, options: WorkloadOptions | None = None) -> None:
        self._namesrv = namesrv
        self.options = options or WorkloadOptions()
        self.history = History(history)
        self._stack = AsyncExitStack()
        self._senders: list[Sender] = []
        self._sending: list[asyncio.Task[None]] = []
        self._observing: asyncio.Task[None] | None = None
        self._groups = [
            ConsumerGroup("chaos-orderly", self.history, is_orderly=True),
            ConsumerGroup("chaos-concurrent", self.history, is_orderly=False),
        ]

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def _start(self) -> None:
        options = self.options
        client: dict[str, Any] = {"namesrv": self._namesrv, "request_timeout_ms": options.attempt_timeout_ms}
        self._admin = await self._stack.enter_async_context(Admin(**client))
        await self._within(options.settle_s, self._create_topic)
        for group in self._groups:
            await group.start(self._stack, options.members, options.topic, **client)
        chance = random.Random(options.seed)
        for number in range(options.producers):
            for kind in SENDERS:
                sender = kind(
                    number, self.history, options.topic, random.Random(chance.random()), options.rate
                )
                await sender.start(
                    self._stack,
                    send_timeout_ms=options.send_timeout_ms,
                    attempt_timeout_ms=options.attempt_timeout_ms,
                    **client,
                )
                self._senders.append(sender)
        self._sending = [asyncio.create_task(sender.run(), name=sender.process) for sender in self._senders]
        self._observing = asyncio.create_task(self._observe_offsets(), name="observe-offsets")

    async def _close(self) -> None:
        try:
            await self.stop_sending()
        finally:
            try:
                await self._stop_observing()
            finally:
                try:
                    await self._stack.aclose()
                finally:
                    self.history.close()

    async def _observe_offsets(self) -> None:
        """Write what the masters have of the groups, again and again."""
        queues = await self._within(self.options.settle_s, self._queues)
        while True:
            with suppress(KourouError):
                for master in await self._masters():
                    own = [queue for queue in queues if queue.broker_name == master.broker_name]
                    for group in self._groups:
                        await group.note_offsets(self._admin.api, master.address, own)
            await asyncio.sleep(_OFFSETS_S)

    async def _stop_observing(self) -> None:
        task, self._observing = self._observing, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def stop_sending(self) -> None:
        """Let every producer finish its send, and begin no other."""
        for sender in self._senders:
            sender.stop()
        tasks, self._sending = self._sending, []
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def finish(self) -> Report:
        """After the faults have ended: stop sending, wait for transactions and publishes, read all queues,
        let consumers finish, and check. KourouError if the cluster does not recover within `settle_s`."""
        loop, options = asyncio.get_running_loop(), self.options
        await self.stop_sending()
        await self._wait_committed(loop.time() + options.settle_s)
        await self._wait_published(loop.time() + options.settle_s)
        await self._within(options.settle_s, self._note_epochs)
        queues = await self._within(options.settle_s, self._queues)
        deadline = loop.time() + options.settle_s
        ends = await read_all(self.history, queues, deadline, namesrv=self._namesrv)
        deadline = loop.time() + options.settle_s
        await asyncio.gather(*(group.drain(ends, deadline) for group in self._groups))
        await self._stop_observing()
        return await asyncio.to_thread(lambda: check(read_history(self.history.path)))

    async def _wait_committed(self, deadline: float) -> None:
        """Until consumers have all committed transactions; the checker reports what is missing."""
        senders = [sender for sender in self._senders if isinstance(sender, TransactionSender)]
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            delivered = set.union(*(group.values for group in self._groups))
            if all(sender.committed <= delivered for sender in senders):
                return
            await asyncio.sleep(_POLL_S)

    async def _wait_published(self, deadline: float) -> None:
        """Until no master has an atomic publish that is open; the checker reports what is missing."""
        over = (AtomicState.ABANDONED, AtomicState.INCOMPLETE)
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            with suppress(KourouError):
                await self._masters()
                brokers = await list_atomic(self._admin)
                is_open = [entry for each in brokers for entry in each.publishes if entry.state not in over]
                if not is_open and not any(each.problem for each in brokers):
                    return
            await asyncio.sleep(_POLL_S)

    # -- the cluster -----------------------------------------------------------------------------

    async def _within(self, seconds: float, work: Callable[[], Awaitable[_T]]) -> _T:
        """Try until it succeeds; after that time the error is raised."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                return await work()
            except KourouError:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_POLL_S)

    async def _masters(self) -> list[BrokerAddress]:
        masters = await self._admin.masters()
        if not masters:
            raise ClientError("the name server knows no master")
        return masters

    async def _create_topic(self) -> None:
        options = self.options
        config = TopicConfig(
            topic_name=options.topic, read_queue_nums=options.queues, write_queue_nums=options.queues
        )
        for master in await self._masters():
            await create_topic(self._admin, master.address, config)
        await self._queues()

    async def _queues(self) -> list[MessageQueue]:
        names = {master.broker_name for master in await self._masters()}
        async with AsyncPullConsumer("reader", namesrv=self._namesrv) as consumer:
            queues = await consumer.fetch_queues(self.options.topic)
        missing = names - {queue.broker_name for queue in queues}
        if missing or not queues:
            raise ClientError(f"the route of {self.options.topic} lacks {', '.join(sorted(missing))}")
        return sorted(queues)

    async def _note_epochs(self) -> None:
        masters = await self._masters()
        answers = await broker_epochs(self._admin, [master.address for master in masters])
        for master, answer in zip(masters, answers, strict=True):
            if answer.epochs is None:
                raise ClientError(f"{master.address} has no epochs: {answer.problem}")
        for master, answer in zip(masters, answers, strict=True):
            assert answer.epochs is not None
            for entry in answer.epochs.epoch_list:
                self.history.note(
                    "epoch",
                    master.address,
                    key=master.broker_name,
                    epoch=entry.epoch,
                    phy_offset=entry.start_offset,
                )


async def _run(namesrv: str, history: Path, seconds: float, options: WorkloadOptions) -> int:
    async with Workload(namesrv, history, options) as work:
        await asyncio.sleep(seconds)
        report = await work.finish()
    print(report.text())
    return 1 if report.findings else 0


def main() -> int:
    """Run a workload for some time; returns the exit status."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--history", type=Path, default=Path("history.jsonl"))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=20.0, help="sends of each producer in a second")
    given = parser.parse_args()
    options = WorkloadOptions(seed=given.seed, rate=given.rate)
    return asyncio.run(_run(given.namesrv, given.history, given.seconds, options))


if __name__ == "__main__":
    sys.exit(main())
