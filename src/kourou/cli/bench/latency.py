"""`kourou bench latency`: the time from producer to consumer, at a constant rate.

Producer and consumer run in this process, so that one clock measures both ends. Each latency starts when the
message was due, not when it was sent: a pause, here or in the broker, counts for all messages that it
delayed. Only the imprecision of the event loop's timers, about a millisecond, is not included.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kourou.cli.bench.messages import Target, random_text
from kourou.cli.bench.run import Span, percentiles, shown
from kourou.cli.bench.send_load import SEND_FAILED, SendLoad
from kourou.cli.bench.tally import Tally
from kourou.cli.bench.workers import now_us, run_on_loop, share_of
from kourou.cli.problems import UsageError
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.errors import KourouError, TooManyRequestsError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt

GROUP: Final = "benchmark_latency"
_DUE: Final = struct.Struct(">q")
_PROBE: Final = -1
_PROBE_EVERY_S: Final = 0.2
_PROBES_S: Final = 30.0
# Time for messages in flight to arrive after the last send.
_LAST_MESSAGES_S: Final = 5.0
_TIMER_US: Final = 2_000


@dataclass(frozen=True, kw_only=True)
class LatencyBench:
    """Options; `rate` is in messages per second."""

    target: Target
    rate: int = 1_000
    size_bytes: int = 128
    quantity: int = 0
    report_interval_ms: int = 1_000
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """The tag of all messages; other messages of the topic are ignored."""

    def __post_init__(self) -> None:
        if self.size_bytes < _DUE.size:
            raise UsageError(
                f"-s {self.size_bytes}: must be {_DUE.size} or more; each body carries a timestamp"
            )

    def shown(self) -> dict[str, object]:
        return {
            "rate": self.rate,
            "messageSize": self.size_bytes,
            "messageQuantity": self.quantity,
            "reportInterval": self.report_interval_ms,
        }


class LatencyLoad(SendLoad):
    """An AsyncProducer and an AsyncPushConsumer on one event loop."""

    def __init__(self, bench: LatencyBench) -> None:
        super().__init__(1, self._work)
        self._bench = bench
        self._arrived = Tally()
        self._filler = random_text(bench.size_bytes - _DUE.size).encode()
        self._probed: set[tuple[str, int]] = set()
        self._heard = asyncio.Event()

    @property
    def options(self) -> Mapping[str, object]:
        return {"command": "latency", **self._bench.target.shown(), **self._bench.shown()}

    def head(self) -> Sequence[str]:
        return [shown(topic=self._bench.target.topic, **self._bench.shown())]

    def open(self) -> None:
        """Connect both, and pass a probe through each queue."""
        self.workers.start()
        self.workers.wait_ready()

    def begin(self) -> None:
        self.workers.go()

    def close(self) -> None:
        self.workers.finish()

    def counts(self) -> Mapping[str, int]:
        """Messages that arrived, and messages that were sent."""
        counts = dict(super().counts())
        return {**counts, "sent": counts["messages"], "messages": self._arrived.count}

    def tallies(self) -> Mapping[str, Sequence[Tally]]:
        """Times from due to sent, and from due to consumed."""
        return {**super().tallies(), "end_to_end": [self._arrived]}

    def line(self, span: Span) -> str:
        """A progress line: rates and end-to-end latency."""
        times = span.times["end_to_end"]
        return (
            f"Send TPS: {span.per_s('sent'):.0f} | Consume TPS: {span.per_s('messages'):.0f} "
            f"| Max RT(ms): {span.peak_ms('end_to_end')} | Average RT(ms): {times.average_ms:7.3f} "
            f"| Send Failed: {span.counts[SEND_FAILED]} | {percentiles(times)}"
        )

    def last_line(self, total: Span) -> str:
        return f"Consume Total: {total.counts['messages']} | {self.line(total)}"

    # -- on its loop -----------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        run_on_loop(self._measure())

    async def _measure(self) -> None:
        target = self._bench.target
        options = target.client_options()
        consumer = AsyncPushConsumer(GROUP, trace=target.trace, **options)
        async with AsyncProducer(GROUP, trace=target.trace, **options) as producer:
            # The first message creates a missing topic, which the consumer could not find otherwise.
            await producer.send(self._message(_PROBE))
            await consumer.subscribe(target.topic, self._bench.run_id, self._arrive)
            async with consumer:
                await self._probe_queues(producer)
                self.workers.ready()
                await self.workers.wait_go()
                await self._send_all(producer)
                await self._wait_last(producer)

    async def _probe_queues(self, producer: AsyncProducer) -> None:
        """A queue that is not pulled yet would lose or delay its first messages."""
        queues = await producer.queues(self._bench.target.topic)
        deadline_us = now_us() + round(_PROBES_S * 1e6)
        while missing := [
            queue for queue in queues if (queue.broker_name, queue.queue_id) not in self._probed
        ]:
            if now_us() > deadline_us:
                raise KourouError(
                    f"topic {self._bench.target.topic}: no probe arrived through queues {_names(missing)} "
                    f"within {_PROBES_S:.0f} s; is another consumer of group {GROUP} running?"
                )
            if self.workers.is_stopping:
                return
            for queue in missing:
                await producer.send(self._message(_PROBE), queue=queue)
            self._heard.clear()
            try:
                async with asyncio.timeout(_PROBE_EVERY_S):
                    await self._heard.wait()
            except TimeoutError:
                pass

    async def _send_all(self, producer: AsyncProducer) -> None:
        left = share_of(self._bench.quantity, 1, 0)
        begin_us, number = now_us(), 0
        while left != 0 and not self.workers.is_stopping:
            due_us = begin_us + number * 1_000_000 // self._bench.rate
            early_us = due_us - now_us()
            if early_us > 0:
                await asyncio.sleep(early_us / 1e6)
                continue
            self._send_one(producer, due_us if early_us < -_TIMER_US else due_us - early_us)
            number += 1
            if left is not None:
                left -= 1
            if number % 64 == 0:
                await asyncio.sleep(
                    0
                )  # Responses and messages are handled between sends, even when sends are late.

    def _send_one(self, producer: AsyncProducer, due_us: int) -> None:
        try:
            future = producer.send_nowait(self._message(due_us))
        except TooManyRequestsError as error:
            self.failed(error)
            return
        future.add_done_callback(partial(self._done, due_us))

    def _done(self, due_us: int, future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.sent(now_us() - due_us)
        elif isinstance(error, KourouError):
            self.failed(error)

    async def _wait_last(self, producer: AsyncProducer) -> None:
        await producer.flush()
        deadline_us = now_us() + round(_LAST_MESSAGES_S * 1e6)
        while self._arrived.count < self.sends() and now_us() < deadline_us:
            self._heard.clear()
            try:
                async with asyncio.timeout(_PROBE_EVERY_S):
                    await self._heard.wait()
            except TimeoutError:
                pass

    def _message(self, due_us: int) -> Message:
        body = _DUE.pack(due_us) + self._filler
        return Message(self._bench.target.topic, body, tags=self._bench.run_id)

    async def _arrive(self, message: MessageExt) -> None:
        (due_us,) = _DUE.unpack_from(message.body)
        if due_us == _PROBE:
            self._probed.add((message.broker_name, message.queue_id))
        else:
            self._arrived.add(now_us() - due_us)
        self._heard.set()


def _names(queues: list[MessageQueue]) -> str:
    return ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in queues)
