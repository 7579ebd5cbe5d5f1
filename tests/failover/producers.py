"""Producers of a workload: each sends unique values, one send after the other, at a bounded rate.

- SingleSender lets the client choose queues and repeat what fails.
- OrderlySender sends the values of a key to one queue, and repeats nothing.
- BatchSender sends several values at once.
- IdempotentSender continues what is undecided until it is decided: its values must be stored once.
- IdempotentBatchSender does the same with several values at once.
- AtomicSender publishes several values in several queues, all or none.
- TransactionSender commits, rolls back, or leaves the decision to the broker's check.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from kourou import AsyncProducer, AsyncTransactionProducer, Message, MessageExt, TransactionState
from kourou.client.producer.send_result import SendResult, split_result
from kourou.errors import KourouError, PartlySentError, SendFailedError
from kourou.protocol.message_id import parse_offset_msg_id
from tests.failover.history import Decision, History, Operation, Outcome
from tests.failover.outcomes import AttemptHook, Attempts, outcome_of, publish_outcome

_MAX_BATCH: Final = 8
_ATOMIC_MS: Final = (1_000, 4_000, 8_000)
"""For how long a publish may take: shorter than some faults, and than a workload waits in the end."""
_STATES: Final[dict[str, TransactionState]] = {
    "commit": TransactionState.COMMIT,
    "rollback": TransactionState.ROLLBACK,
}


def queue_text(topic: str, broker_name: str, queue_id: int) -> str:
    """A queue as histories name it."""
    return f"{topic}/{broker_name}/{queue_id}"


class Sender:
    """One process of a history that sends. Start it as a context manager, then `run` it."""

    kind: str
    is_idempotent = False
    _batches = 0

    def __init__(self, number: int, history: History, topic: str, chance: random.Random, rate: float) -> None:
        self.process = f"{self.kind}-{number}"
        self._history = history
        self._topic = topic
        self._chance = chance
        self._pause_s = 1 / rate
        self._values = 0
        self._hook = AttemptHook()
        self._is_stopping = False

    async def start(self, stack: AsyncExitStack, **options: Any) -> Self:
        """Make the client, which lives as long as `stack`. Options are those of a producer."""
        self.producer = await stack.enter_async_context(self._client(hooks=[self._hook], **options))
        return self

    def _client(self, **options: Any) -> AsyncProducer:
        return AsyncProducer(self.process, **options)

    def stop(self) -> None:
        """Begin no more sends."""
        self._is_stopping = True

    async def run(self) -> None:
        """Send until `stop`. Whatever a cluster does is an outcome, not an error."""
        while not self._is_stopping:
            await self._send_some()
            await asyncio.sleep(self._pause_s * self._chance.uniform(0.5, 1.5))

    async def _send_some(self) -> None:
        raise NotImplementedError

    def _message(self) -> Message:
        """A new value, with some more bytes."""
        self._values += 1
        value = f"{self.process}:{self._values}"
        return Message(self._topic, value.encode() + b" " * self._chance.choice((0, 10, 500)))

    def _messages(self) -> list[Message]:
        """Those of the next batch."""
        self._batches += 1
        return [self._message() for _ in range(self._chance.randint(2, _MAX_BATCH))]

    async def _attempt(
        self, messages: Sequence[Message], send: Callable[[], Any], *, batch: int | None = None
    ) -> None:
        """One send, from its begin to its outcome."""
        attempts = self._hook.expect(messages)
        operations = [
            self._history.begin(
                "send",
                self.process,
                value=value_of(message.body),
                is_idempotent=self.is_idempotent,
                batch=batch,
                index=index,
            )
            for index, message in enumerate(messages)
        ]
        results: Sequence[object] = ()
        try:
            answer = await send()
            results = answer if isinstance(answer, list) else [answer]
        except PartlySentError as error:
            results = error.results
        except (KourouError, TimeoutError) as error:
            results = [error] * len(messages)
        finally:
            # Also when it is cancelled: what has begun has an outcome.
            self._hook.forget(messages)
            missing = [asyncio.CancelledError()] * (len(messages) - len(results))
            for operation, result in zip(operations, [*results, *missing], strict=True):
                self._end(operation, result, attempts)

    def _end(self, operation: Operation, result: object, attempts: Attempts) -> None:
        operation.unsure_attempts = attempts.unsure
        operation.address = attempts.address
        if isinstance(result, SendResult):
            note_place(operation, result)
            self._history.end(operation, "ok" if result.is_ok else "unknown")
        else:
            assert isinstance(result, BaseException)
            operation.error = f"{type(result).__name__}: {result}"[:300]
            self._history.end(operation, outcome_of(result, attempts))


def note_place(operation: Operation, result: SendResult) -> None:
    """Where a broker stored the message of an operation."""
    queue = result.queue
    operation.queue = queue_text(queue.topic, queue.broker_name, queue.queue_id)
    operation.queue_offset = result.queue_offset
    operation.phy_offset = parse_offset_msg_id(result.offset_msg_id).phy_offset


def value_of(body: bytes) -> str:
    """The value that a message carries."""
    return body.decode().rstrip()


class SingleSender(Sender):
    """Sends single messages, which the client may repeat at another broker."""

    kind = "single"

    async def _send_some(self) -> None:
        message = self._message()
        await self._attempt([message], lambda: self.producer.send(message))


class OrderlySender(Sender):
    """Sends messages with keys; those of a key go to one queue."""

    kind = "orderly"

    async def _send_some(self) -> None:
        message, key = self._message(), f"key-{self._chance.randrange(3)}"
        await self._attempt([message], lambda: self.producer.send(message, sharding_key=key))


class BatchSender(Sender):
    """Sends several messages with one request."""

    kind = "batch"

    async def _send_some(self) -> None:
        messages = self._messages()
        await self._attempt(messages, lambda: self.producer.send_many(messages), batch=self._batches)


class IdempotentSender(Sender):
    """Sends each message until it is decided. At a stop the last one may stay unknown."""

    kind = "idempotent"
    is_idempotent = True

    def _client(self, **options: Any) -> AsyncProducer:
        return super()._client(idempotent=True, **options)

    async def _send_some(self) -> None:
        message, key = self._message(), f"key-{self._chance.randrange(3)}"
        await self._attempt([message], lambda: self._send_surely(message, key))

    async def _send_surely(self, message: Message, key: str) -> SendResult:
        try:
            return await self.producer.send(message, sharding_key=key)
        except SendFailedError as error:
            return await self._until_decided(error)

    async def _until_decided(self, failure: SendFailedError) -> SendResult:
        """Of a batch, the result is that of all of it."""
        while failure.undecided is not None and not self._is_stopping:
            await asyncio.sleep(self._pause_s)
            try:
                return await self.producer.send_again(failure)
            except SendFailedError as error:
                failure = error
        raise failure


class IdempotentBatchSender(IdempotentSender):
    """Sends several messages with one request, which is repeated as a whole."""

    kind = "idempotent-batch"

    async def _send_some(self) -> None:
        messages = self._messages()
        await self._attempt(messages, lambda: self._send_all_surely(messages), batch=self._batches)

    async def _send_all_surely(self, messages: Sequence[Message]) -> list[SendResult]:
        try:
            return await self.producer.send_many(messages)
        except PartlySentError as error:
            failure = error.results[0]  # one request, so that all have the same
        assert isinstance(failure, Exception)
        if not isinstance(failure, SendFailedError):
            raise failure
        return split_result(await self._until_decided(failure), [""] * len(messages))


class _RolledBack(Exception):
    """What a block is left by."""


class AtomicSender(Sender):
    """Publishes several messages as one, and rolls some publishes back."""

    kind = "atomic"

    async def _send_some(self) -> None:
        messages = self._messages()
        operations = [
            self._history.begin(
                "publish", self.process, value=value_of(message.body), batch=self._batches, index=index
            )
            for index, message in enumerate(messages)
        ]
        outcome: Outcome = "unknown"
        problem: str | None = None
        try:
            await self._publish(messages)
            outcome = "ok"
        except (_RolledBack, KourouError, TimeoutError) as error:
            outcome = publish_outcome(error)
            problem = f"{type(error).__name__}: {error}"[:300]
        finally:
            for operation in operations:
                operation.error = problem
                self._history.end(operation, outcome)

    async def _publish(self, messages: Sequence[Message]) -> None:
        async with self.producer.atomic(timeout_ms=self._chance.choice(_ATOMIC_MS)) as batch:
            for message in messages:
                await batch.send(message, sharding_key=f"key-{self._chance.randrange(3)}")
            if self._chance.random() < 0.2:
                raise _RolledBack


class TransactionSender(Sender):
    """Begins transactions, and decides each once."""

    kind = "transaction"

    def __init__(self, number: int, history: History, topic: str, chance: random.Random, rate: float) -> None:
        super().__init__(number, history, topic, chance, rate)
        self._decisions: dict[str, Decision] = {}
        self.committed: set[str] = set()
        """Values that have to become visible."""

    def _client(self, **options: Any) -> AsyncProducer:
        return AsyncTransactionProducer(self.process, check=self._check, **options)

    async def _send_some(self) -> None:
        message, decision = self._message(), self._chance.choice(("commit", "commit", "rollback"))
        value = value_of(message.body)
        attempts = self._hook.expect([message])
        operation = self._history.begin("transaction", self.process, value=value)
        try:
            await self._transact(message, operation, decision)
        except (KourouError, TimeoutError) as error:
            operation.error = f"{type(error).__name__}: {error}"[:300]
            if operation.decision is None:
                # The client drops a half message that it cannot be sure of.
                operation.decision = "rollback"
                operation.outcome = outcome_of(error, attempts)
        finally:
            self._hook.forget([message])
            operation.unsure_attempts, operation.address = attempts.unsure, attempts.address
            self._history.end(operation, operation.outcome)

    async def _transact(self, message: Message, operation: Operation, decision: Decision) -> None:
        assert isinstance(self.producer, AsyncTransactionProducer)
        async with self.producer.transaction(message) as transaction:
            assert operation.value is not None
            self._decisions[operation.value] = operation.decision = decision
            operation.outcome = "ok"
            if decision == "commit":
                self.committed.add(operation.value)
            if self._chance.random() < 0.3:
                transaction.unknown()  # the broker asks `_check`
            elif decision == "commit":
                transaction.commit()
            else:
                transaction.rollback()

    async def _check(self, message: MessageExt) -> TransactionState:
        value = value_of(message.body)
        decision = self._decisions.get(value)
        if decision is None:
            return TransactionState.UNKNOWN
        self._history.note("check", self.process, value=value, decision=decision)
        return _STATES[decision]


SENDERS: Final[tuple[type[Sender], ...]] = (
    SingleSender,
    OrderlySender,
    BatchSender,
    IdempotentSender,
    IdempotentBatchSender,
    AtomicSender,
    TransactionSender,
)
