"""`kourou bench consumer`: consumes messages at full speed and reports their age.

B2C is the age by the producer's clock (born), S2C by the broker's (stored); both in milliseconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kourou.cli.bench.messages import Target
from kourou.cli.bench.run import Span, percentiles, shown
from kourou.cli.bench.tally import Tally
from kourou.cli.bench.workers import Workers, run_on_loop
from kourou.client.core.subscription import ExpressionType
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.errors import KourouError
from kourou.protocol.message import MessageExt

GROUP: Final = "benchmark_consumer"


@dataclass(frozen=True, kw_only=True)
class ConsumerBench:
    """Options; `quantity` 0 is unlimited."""

    target: Target
    group: str = GROUP
    threads: int = 20
    quantity: int = 0
    expression: str = "*"
    expression_type: ExpressionType = "TAG"
    fail_rate: float = 0.0
    consume_from: Literal["first", "last"] = "last"
    batch_size: int = 1
    in_threads: bool = False
    report_interval_ms: int = 1_000

    def shown(self) -> dict[str, object]:
        return {
            "threadCount": self.threads,
            "group": self.group,
            "filterType": self.expression_type,
            "expression": self.expression,
            "failRate": self.fail_rate,
            "messageQuantity": self.quantity,
            "consumeFrom": self.consume_from,
            "batchSize": self.batch_size,
            "inThreads": self.in_threads,
            "reportInterval": self.report_interval_ms,
        }


class ConsumerLoad:
    """One AsyncPushConsumer on an event loop of its own."""

    def __init__(self, bench: ConsumerBench) -> None:
        self._bench = bench
        self._workers = Workers(1, self._work)
        self._born, self._stored = Tally(), Tally()
        self._failed = 0
        self._dice = random.Random()

    @property
    def options(self) -> Mapping[str, object]:
        return {"command": "consumer", **self._bench.target.shown(), **self._bench.shown()}

    @property
    def last_error(self) -> KourouError | None:
        """Always None: a consumer retries by itself and logs its errors."""
        return None

    def head(self) -> Sequence[str]:
        return [shown(topic=self._bench.target.topic, **self._bench.shown())]

    def open(self) -> None:
        self._workers.start()
        self._workers.wait_ready()

    def begin(self) -> None:
        self._workers.go()

    def wait(self, timeout_s: float) -> bool:
        """Whether the requested number of messages was consumed within that time."""
        return self._workers.wait(timeout_s)

    def close(self) -> None:
        self._workers.finish()

    def counts(self) -> Mapping[str, int]:
        """Messages consumed, and how many of them were sent back."""
        return {"messages": self._born.count, "failed": self._failed}

    def tallies(self) -> Mapping[str, Sequence[Tally]]:
        """Ages of messages, by both clocks."""
        return {"born_to_consumed": [self._born], "stored_to_consumed": [self._stored]}

    def line(self, span: Span) -> str:
        """A progress line in the format of Apache's Consumer."""
        born, stored = span.times["born_to_consumed"], span.times["stored_to_consumed"]
        return (
            f"Consume TPS: {span.per_s('messages'):.0f} | AVG(B2C) RT(ms): {born.average_ms:7.3f} "
            f"| AVG(S2C) RT(ms): {stored.average_ms:7.3f} | MAX(B2C) RT(ms): {born.peak_ms:.0f} "
            f"| MAX(S2C) RT(ms): {stored.peak_ms:.0f} | Consume Fail: {span.counts['failed']} "
            f"| {percentiles(born, '(B2C)')}"
        )

    def last_line(self, total: Span) -> str:
        return f"Consume Total: {total.counts['messages']} | {self.line(total)}"

    # -- on its loop -----------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        run_on_loop(self._consume())

    async def _consume(self) -> None:
        bench = self._bench
        consumer = AsyncPushConsumer(
            bench.group,
            concurrency=bench.threads,
            batch_size=bench.batch_size,
            consume_from=bench.consume_from,
            trace=bench.target.trace,
            **bench.target.client_options(),
        )
        handler = self._in_thread if bench.in_threads else self._on_loop
        await consumer.subscribe(
            bench.target.topic, bench.expression, handler, expression_type=bench.expression_type
        )
        consumer.pause()
        async with consumer:
            self._workers.ready()
            await self._workers.wait_go()
            consumer.resume()
            await self._workers.wait_stopping()

    async def _on_loop(self, messages: MessageExt | list[MessageExt]) -> ConsumeResult:
        return self._take(messages)

    def _in_thread(self, messages: MessageExt | list[MessageExt]) -> ConsumeResult:
        return self._take(messages)

    def _take(self, messages: MessageExt | list[MessageExt]) -> ConsumeResult:
        now_us = time.time_ns() // 1000
        for message in messages if isinstance(messages, list) else (messages,):
            self._stored.add(now_us - message.store_timestamp * 1000)
            self._born.add(now_us - message.born_timestamp * 1000)
        if self._bench.quantity and self._born.count >= self._bench.quantity:
            self._workers.stopping.set()
        if self._bench.fail_rate and self._dice.random() < self._bench.fail_rate:
            self._failed += 1
            return ConsumeResult.LATER
        return ConsumeResult.SUCCESS
