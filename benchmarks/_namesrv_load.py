"""Load for any name server, over sockets: brokers that register, clients that ask for routes.

Lean on purpose, since it shares the machine with the server: frames are made beforehand, answers
are only counted and their code looked at. Not here: which server, and what is done with the numbers
(namesrv.py).
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kourou.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SUCCESS = b'{"code":0,'
_ANSWER_TIMEOUT_S = 120


@dataclass(frozen=True)
class Measured:
    """What a phase took. CPU is the server's, all its threads; bytes are those of the answers."""

    requests: int
    seconds: float
    cpu_seconds: float
    received_bytes: int

    @property
    def per_second(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of server CPU for each request."""
        return self.cpu_seconds * 1e6 / self.requests


class ServerProbe:
    """CPU time and memory of a process, from /proc."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return int((self._proc / "statm").read_text().split()[1]) * _PAGE_BYTES


class Link(asyncio.Protocol):
    """One connection. `send` a frame, `await done()` for as many answers as were sent."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._awaited = 0
        self._waiter: asyncio.Future[None] | None = None
        self._start = b""  # of the frame being received, until its code is known
        self._left = 0  # bytes of it still to come
        self.received_bytes = 0
        self.failures = 0  # answers with another code than success

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        while data:
            if self._left == 0:
                data = self._begin(data)
            taken = min(self._left, len(data))
            self._left -= taken
            data = data[taken:]
            if self._left == 0 and not self._start:
                self._answered()

    def _begin(self, data: bytes) -> bytes:
        """Collect a frame's start; what of `data` belongs to the rest."""
        needed = 8 + len(_SUCCESS) - len(self._start)
        self._start += data[:needed]
        if len(self._start) < 8 + len(_SUCCESS):
            return b""
        self.failures += not self._start.endswith(_SUCCESS)
        self._left = 4 + int.from_bytes(self._start[:4], "big") - len(self._start)
        self._start = b""
        return data[needed:]

    def _answered(self) -> None:
        self._awaited -= 1
        if self._awaited == 0 and self._waiter is not None:
            self._waiter.set_result(None)

    def send(self, pieces: Sequence[bytes], requests: int) -> None:
        """Send the bytes of some requests, without waiting."""
        assert self._transport is not None
        self._awaited += requests
        self._transport.writelines(pieces)

    async def done(self) -> None:
        """Wait until everything sent is answered."""
        if self._awaited:
            self._waiter = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await self._waiter
            self._waiter = None

    def close(self) -> None:
        """Close without a word, as a process that ends."""
        assert self._transport is not None
        self._transport.abort()


class Load:
    """Connections to one server, and the phases that are measured."""

    def __init__(self, address: str, probe: ServerProbe, *, brokers: int, topics: int) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._probe = probe
        self._brokers = brokers
        self._topics = [f"benchmark-topic-{number}" for number in range(topics)]
        self._links: list[Link] = []

    async def connect(self, count: int) -> list[Link]:
        """Open connections."""
        loop = asyncio.get_running_loop()
        return [(await loop.create_connection(Link, self._host, self._port))[1] for _ in range(count)]

    async def connect_brokers(self) -> None:
        """One connection for each broker."""
        self._links = await self.connect(self._brokers)

    async def register_all(self, *, counter: int, sent_ms: int, in_flight: int = 16) -> Measured:
        """Every broker registers all topics, some at a time."""
        body = _body(self._topics, counter, sent_ms)
        heads = [_registration(number, body).removesuffix(body) for number in range(self._brokers)]
        return await self._each_broker([[head, body] for head in heads], in_flight)

    async def register_own(self, *, counter: int, in_flight: int = 16) -> Measured:
        """Every broker registers one topic that only it has."""
        bodies = [_body([own_topic(number)], counter, 0) for number in range(self._brokers)]
        frames = [[_registration(number, body)] for number, body in enumerate(bodies)]
        return await self._each_broker(frames, in_flight)

    async def _each_broker(self, frames: list[list[bytes]], in_flight: int) -> Measured:
        todo = iter(zip(self._links, frames, strict=True))

        async def work() -> None:
            for link, pieces in todo:
                link.send(pieces, 1)
                await link.done()

        return await self._measure([work] * in_flight, self._links, lambda: self._brokers)

    async def query_shared(self, *, connections: int, in_flight: int, seconds: float) -> Measured:
        """Clients ask for the topics that all brokers have."""
        return await self._query(self._topics, connections, in_flight, seconds)

    async def query_own(self, *, connections: int, in_flight: int, seconds: float) -> Measured:
        """Clients ask for the topics that one broker has."""
        topics = [own_topic(number) for number in range(self._brokers)]
        return await self._query(topics, connections, in_flight, seconds)

    async def _query(self, topics: list[str], connections: int, in_flight: int, seconds: float) -> Measured:
        frames = [_route_query(topic) for topic in topics]
        links = await self.connect(connections)
        deadline = time.perf_counter() + seconds
        asked = 0

        async def ask(link: Link, start: int) -> None:
            nonlocal asked
            position = start
            while time.perf_counter() < deadline:
                batch = [frames[(position + step) % len(frames)] for step in range(in_flight)]
                position += in_flight
                link.send(batch, in_flight)
                await link.done()
                asked += in_flight

        stride = len(frames) // connections
        works = [lambda link=link, n=n: ask(link, n * stride) for n, link in enumerate(links)]
        measured = await self._measure(works, links, lambda: asked)
        for link in links:
            link.close()
        return measured

    async def _measure(
        self, works: Sequence[Callable[[], Awaitable[None]]], links: list[Link], count: Callable[[], int]
    ) -> Measured:
        before = sum(link.received_bytes for link in links)
        cpu, started = self._probe.cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(work() for work in works))
        seconds = time.perf_counter() - started
        received = sum(link.received_bytes for link in links) - before
        if failures := sum(link.failures for link in links):
            raise RuntimeError(f"the server refused {failures} of {count()} requests")
        return Measured(count(), seconds, self._probe.cpu_seconds() - cpu, received)

    async def close_brokers(self) -> Measured:
        """All brokers are gone at once; until the server says that there is none left."""
        cpu, started = self._probe.cpu_seconds(), time.perf_counter()
        for link in self._links:
            link.close()
        (link,) = await self.connect(1)
        frame = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO).encode()
        # An empty ClusterInfo is some 45 bytes and its header 100. While brokers go, 4.9.7 may fail
        # to answer (its table changes while it is encoded): asked again.
        received, failed = 1_000, False
        while received > 400 or failed:
            before, failures = link.received_bytes, link.failures
            link.send([frame], 1)
            await link.done()
            received, failed = link.received_bytes - before, link.failures > failures
        link.close()
        seconds = time.perf_counter() - started
        return Measured(self._brokers, seconds, self._probe.cpu_seconds() - cpu, 0)


def own_topic(number: int) -> str:
    """The topic that only this broker has."""
    return f"topic-of-broker-{number}"


def _registration(number: int, body: bytes) -> bytes:
    addr = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    header = RegisterBrokerRequestHeader(
        broker_name=f"broker-{number}",
        broker_addr=f"{addr}:10911",
        cluster_name="DefaultCluster",
        ha_server_addr=f"{addr}:10912",
        broker_id=0,
        enable_acting_master=False,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body).encode()


def _body(topics: list[str], counter: int, sent_ms: int) -> bytes:
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={
            topic: TopicConfig(topic_name=topic, read_queue_nums=8, write_queue_nums=8) for topic in topics
        },
        data_version=DataVersion(timestamp=1_700_000_000_000, counter=counter),
        mapping_data_version=DataVersion(timestamp=sent_ms),  # a 5.x broker puts the time of sending here
    )
    return RegisterBrokerBody(wrapper).encode()


def _route_query(topic: str) -> bytes:
    header = GetRouteInfoRequestHeader(topic=topic)
    return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header).encode()
