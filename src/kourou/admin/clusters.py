"""Clusters: their brokers, load and response times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kourou.admin.brokers import broker_runtime
from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.targets import brokers_of
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.errors import KourouError
from kourou.protocol.message import Message


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    """One broker of a cluster, with its state as reported."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime: dict[str, str]
    problem: str = ""

    @property
    def place(self) -> BrokerAddress:
        """Its place in the cluster."""
        return BrokerAddress(self.cluster, self.broker_name, self.broker_id, self.address)

    @property
    def put_tps(self) -> float:
        """Incoming messages per second, over the last ten seconds."""
        return self.rate("putTps")

    @property
    def get_tps(self) -> float:
        """Outgoing messages per second, over the last ten seconds."""
        # Since 5.0 the name has another r.
        return self.rate("getTransferredTps") or self.rate("getTransferedTps")

    @property
    def disk_ratio(self) -> float:
        """The used share of the CommitLog's disk."""
        return self.rate("commitLogDiskRatio")

    def age_hours(self, now_ms: int) -> float:
        """The age of the first message; the time since 1970 without one, like Apache's."""
        earliest = self.runtime.get("earliestMessageTimeStamp", "")
        return (now_ms - int(earliest)) / 3_600_000 if _is_number(earliest) else 0.0

    def text(self, name: str, default: str = "") -> str:
        """One value of its state."""
        return self.runtime.get(name, default)

    def number(self, name: str) -> int:
        """An integer value of its state; 0 if it is missing or not an integer."""
        text = self.runtime.get(name, "")
        return int(text) if _is_number(text) else 0

    def rate(self, name: str) -> float:
        """The first number of a value, the rate over the last ten seconds; 0 if it is missing."""
        words = self.runtime.get(name, "").split()
        try:
            return float(words[0]) if words else 0.0
        except ValueError:
            return 0.0


@dataclass(frozen=True, slots=True)
class SendTimes:
    """Send times of one broker."""

    cluster: str
    broker_name: str
    rt_ms: float
    """The mean time of a send, without the first, which looks up the route and connects."""
    success_count: int
    fail_count: int
    problem: str = ""
    """The last failure."""


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


async def cluster_list(admin: Admin, cluster: str | None = None) -> list[BrokerSummary]:
    """All brokers of one cluster or of all, with their state; including those that do not respond."""
    brokers = await (brokers_of(admin, cluster) if cluster is not None else admin.brokers())
    return list(await asyncio.gather(*(_summary(admin, broker) for broker in brokers)))


async def _summary(admin: Admin, broker: BrokerAddress) -> BrokerSummary:
    place = (broker.cluster, broker.broker_name, broker.broker_id, broker.address)
    try:
        return BrokerSummary(*place, await broker_runtime(admin, broker.address))
    except KourouError as error:
        return BrokerSummary(*place, {}, str(error))


# -- response times ----------------------------------------------------------------------------------


@asynccontextmanager
async def prober(admin: Admin, group: str) -> AsyncIterator[AsyncProducer]:
    """A producer for messages that only measure."""
    async with AsyncProducer(group, **admin.options) as producer:
        yield producer


async def timed_send(producer: AsyncProducer, message: Message) -> tuple[float, SendResult]:
    """Send a message; returns the milliseconds it took and the result."""
    began = time.perf_counter()
    result = await producer.send(message)
    return (time.perf_counter() - began) * 1000, result


async def measure_sends(
    producer: AsyncProducer,
    broker: BrokerAddress,
    *,
    amount: int,
    size: int,
    progress: Callable[[int], None] = lambda sent: None,
) -> SendTimes:
    """Send messages to the topic that each broker has under its own name."""
    times: list[float] = []
    fail_count, problem = 0, ""
    for number in range(amount):
        progress(number)
        began = time.perf_counter()
        try:
            await producer.send(Message(broker.broker_name, b"a" * size))
        except KourouError as error:
            fail_count, problem = fail_count + 1, str(error)
        times.append((time.perf_counter() - began) * 1000)
    counted = times[1:] or times
    rt_ms = sum(counted) / len(counted) if counted else 0.0
    return SendTimes(broker.cluster, broker.broker_name, rt_ms, amount - fail_count, fail_count, problem)
