"""`kourou bench producer`: messages one at a time, from waiting threads or with many in flight."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kourou.cli.bench.messages import Compression, MessageMaker, Shape, Target
from kourou.cli.bench.run import Span, shown
from kourou.cli.bench.send_load import PAUSE_AFTER_FAILURE_S, ProducerLifecycle, SendLoad, send_line
from kourou.cli.bench.workers import now_us, run_on_loop, share_of
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.producer_options import ProducerKeywords
from kourou.client.producer.send_result import SendResult
from kourou.client.sync.producer import Producer
from kourou.errors import KourouError

GROUP: Final = "benchmark_producer"
_LARGEST_BYTES: Final = 2**62


@dataclass(frozen=True, kw_only=True)
class ProducerBench:
    """Options; `quantity` 0 is unlimited."""

    target: Target
    shape: Shape = field(default_factory=Shape)
    compression: Compression = field(default_factory=Compression)
    threads: int = 64
    quantity: int = 0
    is_async: bool = False
    in_flight: int = 10_000
    report_interval_ms: int = 1_000

    def client_options(self) -> ProducerKeywords:
        """The options of the producer."""
        return {
            **self.target.client_options(),
            **self.compression.producer_options(),
            "trace": self.target.trace,
            "max_in_flight": max(self.in_flight, self.threads),
            # The number of sends in flight is the limit here.
            "max_in_flight_bytes": _LARGEST_BYTES,
        }

    def head(self) -> Sequence[str]:
        """The parameters in the format of Apache's Producer."""
        shape, delay = self.shape, self.shape.delay_level
        first = shown(
            topic=self.target.topic,
            threadCount=1 if self.is_async else self.threads,
            messageSize=shape.size_bytes,
            keyEnable=shape.with_key,
            propertySize=shape.property_bytes,
            tagCount=shape.tag_count,
            traceEnable=self.target.trace,
            aclEnable=self.target.credentials is not None,
            messageQuantity=self.quantity,
            delayEnable=bool(delay),
            delayLevel=delay or 1,
            asyncEnable=self.is_async,
        )
        second = shown(compressEnable=self.compression.enabled, reportInterval=self.report_interval_ms)
        return [first, f" {second}"]

    def shown(self) -> dict[str, object]:
        return {
            "command": "producer",
            **self.target.shown(),
            "threadCount": 1 if self.is_async else self.threads,
            "messageSize": self.shape.size_bytes,
            "messageQuantity": self.quantity,
            "asyncEnable": self.is_async,
            "inFlight": self.in_flight if self.is_async else self.threads,
            "compressEnable": self.compression.enabled,
        }


class _ProducerLoad(SendLoad, ABC):
    """Common to threaded and pipelined sends."""

    def __init__(self, bench: ProducerBench, workers: int) -> None:
        super().__init__(workers, self._work)
        self._bench = bench
        self._maker = MessageMaker(bench.target.topic, bench.shape)

    @property
    def options(self) -> Mapping[str, object]:
        return self._bench.shown()

    def head(self) -> Sequence[str]:
        return self._bench.head()

    def line(self, span: Span) -> str:
        return send_line(span)

    def last_line(self, total: Span) -> str:
        return f"Send Total: {total.counts['messages']} | {send_line(total)}"

    @abstractmethod
    def _work(self, number: int) -> None:
        """Send as worker `number` until all is sent or the run stops."""


class ThreadedProducerLoad(ProducerLifecycle, _ProducerLoad):
    """Threads that share one sync Producer; each waits for a response before its next send."""

    def __init__(self, bench: ProducerBench) -> None:
        super().__init__(bench, bench.threads)
        self._producer = Producer(GROUP, **bench.client_options())
        self._topic = bench.target.topic

    def _work(self, number: int) -> None:
        left = share_of(self._bench.quantity, self._bench.threads, number)
        make, send = self._maker.make, self._producer.send
        while left != 0 and not self.workers.is_stopping:
            self.send(number, partial(send, make()))
            if left is not None:
                left -= 1


class PipelinedProducerLoad(_ProducerLoad):
    """One event loop with one AsyncProducer and a constant number of sends in flight."""

    def __init__(self, bench: ProducerBench) -> None:
        super().__init__(bench, 1)
        self._in_flight = 0
        self._room: asyncio.Future[None] | None = None
        self._pause_until_us = 0
        self._broken: BaseException | None = None

    def open(self) -> None:
        """Connect. A missing topic that is not created automatically is an error."""
        self.workers.start()
        self.workers.wait_ready()

    def begin(self) -> None:
        self.workers.go()

    def close(self) -> None:
        self.workers.finish()

    def _work(self, number: int) -> None:
        run_on_loop(self._send_all())

    async def _send_all(self) -> None:
        async with AsyncProducer(GROUP, **self._bench.client_options()) as producer:
            await producer.queues(self._bench.target.topic)
            self.workers.ready()
            await self.workers.wait_go()
            await self._keep_full(producer)
            # Sends in flight still count, within their own timeout.
            await producer.flush()

    async def _keep_full(self, producer: AsyncProducer) -> None:
        left = share_of(self._bench.quantity, 1, 0)
        window, make = self._bench.in_flight, self._maker.make
        while left != 0 and not self.workers.is_stopping:
            if self._in_flight >= window:
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                await self._back_off()
                continue
            if self._broken is not None:
                raise self._broken
            self._in_flight += 1
            future = producer.send_nowait(make())
            future.add_done_callback(partial(self._done, now_us()))
            if left is not None:
                left -= 1

    def _done(self, began_us: int, future: asyncio.Future[SendResult]) -> None:
        self._in_flight -= 1
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.sent(now_us() - began_us)
        elif isinstance(error, KourouError):
            self.failed(error)
            self._pause_until_us = now_us() + round(PAUSE_AFTER_FAILURE_S * 1e6)
        else:
            self._broken = error

    async def _back_off(self) -> None:
        """With a broker down all sends fail at once: do not retry at full speed."""
        if (left_us := self._pause_until_us - now_us()) > 0:
            await asyncio.to_thread(self.workers.pause, left_us / 1e6)


def producer_load(bench: ProducerBench) -> ThreadedProducerLoad | PipelinedProducerLoad:
    """Threaded, or pipelined with `-y true`."""
    return PipelinedProducerLoad(bench) if bench.is_async else ThreadedProducerLoad(bench)
