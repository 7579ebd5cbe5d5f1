"""`kourou bench batch`: threads send batches of messages and wait for each response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kourou.cli.bench.messages import MessageMaker, Shape, Target
from kourou.cli.bench.run import Span, percentiles, shown
from kourou.cli.bench.send_load import RESPONSE_FAILED, SEND_FAILED, ProducerLifecycle, SendLoad
from kourou.cli.bench.workers import share_of
from kourou.client.sync.producer import Producer
from kourou.errors import KourouError

GROUP: Final = "benchmark_batch_producer"


@dataclass(frozen=True, kw_only=True)
class BatchBench:
    """Options; `quantity` counts messages, 0 is unlimited."""

    target: Target
    shape: Shape = field(default_factory=Shape)
    threads: int = 64
    batch_size: int = 16
    quantity: int = 0
    report_interval_ms: int = 1_000


class BatchLoad(ProducerLifecycle, SendLoad):
    """Threads that share one sync Producer."""

    def __init__(self, bench: BatchBench) -> None:
        super().__init__(bench.threads, self._work)
        self._bench = bench
        self._maker = MessageMaker(bench.target.topic, bench.shape)
        self._sent = [0] * bench.threads
        self._producer = Producer(GROUP, trace=bench.target.trace, **bench.target.client_options())
        self._topic = bench.target.topic

    @property
    def options(self) -> Mapping[str, object]:
        return {
            "command": "batch",
            **self._bench.target.shown(),
            "threadCount": self._bench.threads,
            "messageSize": self._bench.shape.size_bytes,
            "batchSize": self._bench.batch_size,
            "messageQuantity": self._bench.quantity,
        }

    def head(self) -> Sequence[str]:
        shape = self._bench.shape
        return [
            shown(
                topic=self._bench.target.topic,
                threadCount=self._bench.threads,
                messageSize=shape.size_bytes,
                batchSize=self._bench.batch_size,
                keyEnable=shape.with_key,
                propertySize=shape.property_bytes,
                tagCount=shape.tag_count,
                traceEnable=self._bench.target.trace,
                aclEnable=self._bench.target.credentials is not None,
                reportInterval=self._bench.report_interval_ms,
            )
        ]

    def counts(self) -> Mapping[str, int]:
        failed = super().counts()
        messages = failed[SEND_FAILED] + failed[RESPONSE_FAILED]
        return {
            "messages": sum(self._sent),
            "batches": self.sends(),
            "batches_failed": self.failures.count("batches_failed"),
            "messages_failed": messages,
        }

    def line(self, span: Span) -> str:
        """A progress line in the format of Apache's BatchProducer."""
        times, messages = span.times["rt"], span.counts["messages"]
        message_ms = times.sum_us / messages / 1000 if messages else 0.0
        return (
            f"Send TPS: {span.per_s('batches'):.0f} | Send MPS: {span.per_s('messages'):.0f} "
            f"| Max RT(ms): {span.peak_ms('rt')} | Average RT(ms): {times.average_ms:7.3f} "
            f"| Average Message RT(ms): {message_ms:7.3f} | Send Failed: {span.counts['batches_failed']} "
            f"| Send Message Failed: {span.counts['messages_failed']} | {percentiles(times)}"
        )

    def last_line(self, total: Span) -> str:
        return f"Send Total: {total.counts['messages']} | {self.line(total)}"

    def failed(self, error: KourouError, messages: int = 1) -> None:
        super().failed(error, messages)
        self.failures.add("batches_failed", error)

    def _work(self, number: int) -> None:
        left = share_of(self._bench.quantity, self._bench.threads, number)
        while left != 0 and not self.workers.is_stopping:
            size = self._bench.batch_size if left is None else min(left, self._bench.batch_size)
            self._send_batch(number, size)
            if left is not None:
                left -= size

    def _send_batch(self, number: int, size: int) -> None:
        batch = [self._maker.make() for _ in range(size)]

        def action() -> None:
            self._producer.send_many(batch)
            self._sent[number] += size

        self.send(number, action, size)
