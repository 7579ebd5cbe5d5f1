"""SendLoad: common to all loads that send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kourou.cli.bench.run import Span, percentiles
from kourou.cli.bench.tally import Tally
from kourou.cli.bench.workers import Failures, Workers, now_us
from kourou.client.sync.producer import Producer
from kourou.client.sync.transaction_producer import TransactionProducer
from kourou.errors import ClientStateError, KourouError, MessageRefusedError, ResponseError

# A failed thread pauses, as in Apache's program; otherwise a missing broker floods the output.
PAUSE_AFTER_FAILURE_S: Final = 3.0
SEND_FAILED: Final = "send_failed"
RESPONSE_FAILED: Final = "response_failed"


class SendLoad:
    """Counts and times of sends."""

    def __init__(self, workers: int, run: Callable[[int], None]) -> None:
        self.failures = Failures()
        self.workers = Workers(workers, run)
        self._tallies = [Tally() for _ in range(workers)]

    @property
    def last_error(self) -> KourouError | None:
        """The last failure that was only counted; None without one."""
        return self.failures.last

    def wait(self, timeout_s: float) -> bool:
        """Whether all messages were sent within that time."""
        return self.workers.wait(timeout_s)

    def counts(self) -> Mapping[str, int]:
        return {
            "messages": self.sends(),
            SEND_FAILED: self.failures.count(SEND_FAILED),
            RESPONSE_FAILED: self.failures.count(RESPONSE_FAILED),
        }

    def sends(self) -> int:
        """The number of successful sends."""
        return sum(tally.count for tally in self._tallies)

    def tallies(self) -> Mapping[str, Sequence[Tally]]:
        return {"rt": self._tallies}

    def send(self, number: int, action: Callable[[], object], messages: int = 1) -> None:
        """Execute one send as worker `number` and count the outcome."""
        began_us = now_us()
        try:
            action()
        except (MessageRefusedError, ClientStateError):
            raise  # all other sends would fail the same way
        except KourouError as error:
            self.failed(error, messages)
            self.workers.pause(PAUSE_AFTER_FAILURE_S)
        else:
            self._tallies[number].add(now_us() - began_us)

    def sent(self, time_us: int, number: int = 0) -> None:
        """Count a successful send that took `time_us`."""
        self._tallies[number].add(time_us)

    def failed(self, error: KourouError, messages: int = 1) -> None:
        """Count a failed send of `messages` messages and keep its error."""
        kind = RESPONSE_FAILED if isinstance(error, ResponseError) else SEND_FAILED
        self.failures.add(kind, error, messages)


class ProducerLifecycle:
    """For a load whose threads share one sync producer: connect, send, disconnect."""

    workers: Workers
    _producer: Producer | TransactionProducer
    _topic: str

    def open(self) -> None:
        """Connect. A missing topic that is not created automatically is an error."""
        self._producer.start()
        self._producer.queues(self._topic)

    def begin(self) -> None:
        self.workers.start()

    def close(self) -> None:
        """Stop and disconnect. Unresolved transactions remain: brokers check them with the next run."""
        try:
            self.workers.finish()
        finally:
            self._producer.stop()


def send_line(span: Span) -> str:
    """A progress line in the format of Apache's Producer."""
    times = span.times["rt"]
    return (
        f"Send TPS: {span.per_s('messages'):.0f} | Max RT(ms): {span.peak_ms('rt')} "
        f"| Average RT(ms): {times.average_ms:7.3f} | Send Failed: {span.counts[SEND_FAILED]} "
        f"| Response Failed: {span.counts[RESPONSE_FAILED]} | {percentiles(times)}"
    )
