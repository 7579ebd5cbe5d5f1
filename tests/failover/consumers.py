"""Consumers of a workload, and the final reader.

Each group has several members, which share the queues; all of them write what they get. The members of an
orderly group get a queue in the order of its offsets: their deliveries have the number of the assignment, so
that the checker can see what is skipped between two rebalances.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from kourou import AsyncPullConsumer, AsyncPushConsumer, MessageExt, MessageQueue, QueueReader
from kourou.client import AllocateAveragely
from kourou.client.core.api import ClientApi
from kourou.errors import KourouError
from tests.failover.history import History
from tests.failover.producers import queue_text, value_of

_POLL_S = 0.1


def name_of(queue: MessageQueue) -> str:
    """A queue as histories name it."""
    return queue_text(queue.topic, queue.broker_name, queue.queue_id)


class CountedShares:
    """A strategy that counts how often each queue was assigned."""

    def __init__(self) -> None:
        self._inner = AllocateAveragely()
        self._shares: dict[str, set[MessageQueue]] = {}
        self._assignments: dict[str, int] = defaultdict(int)

    @property
    def name(self) -> str:
        return self._inner.name

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        share = self._inner.allocate(group, client_id, queues, client_ids)
        topic = queues[0].topic
        for queue in set(share) - self._shares.get(topic, set()):
            self._assignments[name_of(queue)] += 1
        self._shares[topic] = set(share)
        return share

    def assignment(self, queue: str) -> int:
        """The number of the last time that the queue was assigned."""
        return self._assignments[queue]


class ConsumerGroup:
    """A group with its members."""

    def __init__(self, name: str, history: History, *, is_orderly: bool) -> None:
        self.name = name
        self._history = history
        self._is_orderly = is_orderly
        self.delivered: dict[str, set[int]] = defaultdict(set)
        """The offsets that were delivered, by queue."""
        self.values: set[str] = set()

    async def start(self, stack: AsyncExitStack, members: int, topic: str, **options: Any) -> None:
        """Start the members, which live as long as `stack`."""
        for number in range(members):
            shares = CountedShares()
            consumer = AsyncPushConsumer(
                self.name,
                consume_from="first",
                orderly=self._is_orderly,
                strategy=shares,
                persist_interval_ms=500,
                rebalance_interval_ms=1_000,
                **options,
            )
            await consumer.subscribe(topic, self._handler(f"{self.name}-{number}", shares))
            await stack.enter_async_context(consumer)

    def _handler(self, process: str, shares: CountedShares) -> Any:
        async def deliver(message: MessageExt) -> None:
            queue = queue_text(message.topic, message.broker_name, message.queue_id)
            value = value_of(message.body)
            self._history.note(
                "deliver",
                process,
                value=value,
                queue=queue,
                queue_offset=message.queue_offset,
                group=self.name,
                assignment=shares.assignment(queue) if self._is_orderly else None,
            )
            self.delivered[queue].add(message.queue_offset)
            self.values.add(value)

        return deliver

    async def note_offsets(self, api: ClientApi, address: str, queues: Sequence[MessageQueue]) -> None:
        """Write the offsets that a broker has of the group. KourouError if it does not answer."""
        for queue in queues:
            operation = self._history.begin(
                "offset", "observer", group=self.name, queue=name_of(queue), address=address
            )
            operation.amount = await api.consumer_offset(address, self.name, queue, only_stored=True)
            if operation.amount is not None:
                self._history.end(operation)

    async def drain(self, ends: dict[str, range], deadline: float) -> None:
        """Wait until every offset of the queues was delivered, at most until `deadline` of the loop's clock;
        afterwards the checker reports what is missing."""
        loop = asyncio.get_running_loop()
        while loop.time() < deadline and not self._has_all(ends):  # noqa: ASYNC110 (with a deadline)
            await asyncio.sleep(_POLL_S)
        for queue in ends:
            self._history.note("drain", self.name, group=self.name, queue=queue)

    def _has_all(self, ends: dict[str, range]) -> bool:
        return all(self.delivered[queue].issuperset(offsets) for queue, offsets in ends.items())


async def read_all(
    history: History, queues: Sequence[MessageQueue], deadline: float, **options: Any
) -> dict[str, range]:
    """Read every queue from its lowest to its highest offset; the offsets of each. KourouError if
    a queue cannot be read until `deadline` of the loop's clock."""
    ends: dict[str, range] = {}
    for queue in queues:
        ends[name_of(queue)] = await _read_queue(history, queue, deadline, **options)
    return ends


async def _read_queue(history: History, queue: MessageQueue, deadline: float, **options: Any) -> range:
    """Nothing of a read that fails is written: the next one begins anew."""
    loop = asyncio.get_running_loop()
    while True:
        scan = history.begin("scan", "reader", queue=name_of(queue))
        try:
            offsets, messages = await _messages(queue, **options)
        except KourouError:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(_POLL_S)
            continue
        for message in messages:
            place = {"queue": name_of(queue), "queue_offset": message.queue_offset}
            history.note("read", "reader", value=value_of(message.body), **place)
        scan.low_offset, scan.high_offset = offsets.start, offsets.stop
        history.end(scan)
        return offsets


async def _messages(queue: MessageQueue, **options: Any) -> tuple[range, list[MessageExt]]:
    """The offsets of a queue, and its messages."""
    async with AsyncPullConsumer("reader", **options) as consumer:
        low, high = await consumer.min_offset(queue), await consumer.max_offset(queue)
        messages: list[MessageExt] = []
        async with QueueReader(queue, begin_offset=low, end_offset=high, consumer=consumer) as chunks:
            async for chunk in chunks:
                messages += chunk.messages()
    return range(low, high), messages
