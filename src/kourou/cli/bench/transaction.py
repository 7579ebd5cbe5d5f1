"""`kourou bench transaction`: transactional messages with planned outcomes.

Each message carries the outcome of its transaction and the answers to its checks, so that unexpected and
duplicate checks are detected in any process that receives them.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.cli.bench.messages import Target, random_text
from kourou.cli.bench.run import Span, percentiles, shown
from kourou.cli.bench.send_load import RESPONSE_FAILED, SEND_FAILED, ProducerLifecycle, SendLoad
from kourou.cli.bench.workers import share_of
from kourou.client.core.transaction_state import TransactionState
from kourou.client.sync.transaction_producer import TransactionProducer
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.properties import MessageConst

GROUP: Final = "benchmark_transaction_producer"
PLAN: Final = "BENCH_PLAN"
BATCH: Final = "BENCH_BATCH"
NUMBER: Final = "BENCH_NUMBER"
_MAX_CHECKS: Final = 20
_LETTERS: Final = {
    "C": TransactionState.COMMIT,
    "R": TransactionState.ROLLBACK,
    "U": TransactionState.UNKNOWN,
}


@dataclass(frozen=True, kw_only=True)
class TransactionBench:
    """Options; rates are from 0 to 1."""

    target: Target
    batch_id: int
    threads: int = 32
    size_bytes: int = 2048
    quantity: int = 0
    send_rollback_rate: float = 0.0
    send_unknown_rate: float = 0.0
    check_rollback_rate: float = 0.0
    check_unknown_rate: float = 0.0
    interval_ms: int = 0
    report_interval_ms: int = 1_000


def make_plan(bench: TransactionBench, rng: random.Random) -> str:
    """The outcome of a transaction, one letter, then the answer to each check."""
    plan = _outcome(bench.send_rollback_rate, bench.send_unknown_rate, rng)
    while plan[-1] == "U" and len(plan) <= _MAX_CHECKS:
        plan += _outcome(bench.check_rollback_rate, bench.check_unknown_rate, rng)
    return plan


def _outcome(rollback_rate: float, unknown_rate: float, rng: random.Random) -> str:
    drawn = rng.random()
    if drawn < rollback_rate:
        return "R"
    return "U" if drawn < rollback_rate + unknown_rate else "C"


class Checks:
    """Answers checks by the plan in the message, and detects unexpected ones."""

    def __init__(self, batch_id: int) -> None:
        self._batch_id = str(batch_id)
        self._lock = threading.Lock()
        self._seen: set[tuple[str, int]] = set()
        self.count = self.unexpected = self.duplicated = 0

    def answer(self, message: MessageExt) -> TransactionState:
        """The state of the transaction by its plan."""
        plan = message.get_property(PLAN)
        if plan is None or message.get_property(BATCH) != self._batch_id:
            return TransactionState.ROLLBACK  # of an earlier run that has ended
        times = int(message.get_property(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES) or 1)
        with self._lock:
            self.count += 1
            self._verify(message, plan, times)
        # Brokers may check more often than planned; then the last letter of the plan applies.
        return _LETTERS[plan[min(times, len(plan) - 1)]]

    def _verify(self, message: MessageExt, plan: str, times: int) -> None:
        if times >= len(plan):
            self.unexpected += 1
            print(
                f"unexpected check: msgId={message.msg_id}, txId={message.transaction_id}, "
                f"checkTimes={times}, sendResult={_LETTERS[plan[0]].name}",
                flush=True,
            )
        asked = (message.get_property(NUMBER) or message.msg_id, times)
        if asked in self._seen:
            self.duplicated += 1
        self._seen.add(asked)


class TransactionLoad(ProducerLifecycle, SendLoad):
    """Threads that share one sync TransactionProducer."""

    _producer: TransactionProducer

    def __init__(self, bench: TransactionBench) -> None:
        super().__init__(bench.threads, self._work)
        self._bench = bench
        self._body = random_text(bench.size_bytes).encode()
        self._numbers = itertools.count()
        self._checks = Checks(bench.batch_id)
        self._producer = TransactionProducer(
            GROUP, check=self._checks.answer, trace=bench.target.trace, **bench.target.client_options()
        )
        self._topic = bench.target.topic

    @property
    def options(self) -> Mapping[str, object]:
        return {"command": "transaction", **self._bench.target.shown(), **self._parameters()}

    def head(self) -> Sequence[str]:
        return [shown(topic=self._bench.target.topic, **self._parameters())]

    def _parameters(self) -> dict[str, object]:
        bench = self._bench
        return {
            "threadCount": bench.threads,
            "messageSize": bench.size_bytes,
            "messageQuantity": bench.quantity,
            "sendRollbackRate": bench.send_rollback_rate,
            "sendUnknownRate": bench.send_unknown_rate,
            "checkRollbackRate": bench.check_rollback_rate,
            "checkUnknownRate": bench.check_unknown_rate,
            "batchId": bench.batch_id,
            "sendInterval": bench.interval_ms,
            "reportInterval": bench.report_interval_ms,
        }

    def counts(self) -> Mapping[str, int]:
        checks = self._checks
        return {
            **super().counts(),
            "checks": checks.count,
            "unexpected_checks": checks.unexpected,
            "duplicated_checks": checks.duplicated,
        }

    def line(self, span: Span) -> str:
        """A progress line in the format of Apache's TransactionProducer."""
        times, counts = span.times["rt"], span.counts
        return (
            f"Send TPS: {span.per_s('messages'):.0f} | Max RT(ms): {span.peak_ms('rt')} "
            f"| AVG RT(ms): {times.average_ms:7.3f} "
            f"| Send Failed: {counts[SEND_FAILED] + counts[RESPONSE_FAILED]} | Check: {counts['checks']} "
            f"| UnexpectedCheck: {counts['unexpected_checks']} "
            f"| DuplicatedCheck: {counts['duplicated_checks']} | {percentiles(times)}"
        )

    def last_line(self, total: Span) -> str:
        return f"Send Total: {total.counts['messages']} | {self.line(total)}"

    def _work(self, number: int) -> None:
        left = share_of(self._bench.quantity, self._bench.threads, number)
        rng = random.Random()
        while left != 0 and not self.workers.is_stopping:
            self._send_one(number, make_plan(self._bench, rng))
            if left is not None:
                left -= 1
            if self._bench.interval_ms:
                self.workers.pause(self._bench.interval_ms / 1000)

    def _send_one(self, number: int, plan: str) -> None:
        properties = {PLAN: plan, BATCH: str(self._bench.batch_id), NUMBER: str(next(self._numbers))}
        message = Message(self._bench.target.topic, self._body, properties=properties)
        outcome = _LETTERS[plan[0]]
        self.send(number, lambda: self._producer.send_in_transaction(message, lambda _: outcome))
