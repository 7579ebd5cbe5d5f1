"""AsyncTransactionProducer: messages that are delivered if, and only if, something local was done.

The message is stored first, as a half message that is not delivered; when the local transaction is over, the
producer has the broker deliver or drop it. If that does not happen, because the process died or lost its
connection, the broker sends a check to any producer of the group, whose `check` looks up the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Unpack

from kourou.argument_types import check_int
from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.pending_send import ChooseQueue
from kourou.client.producer.producer import AsyncProducer, is_large
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions
from kourou.client.producer.queue_choice import QueueSelector
from kourou.client.producer.send_result import SendResult, SendStatus
from kourou.client.producer.sends import Sends
from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.transactions.transactions import (
    LocalTransaction,
    TransactionCheck,
    TransactionListener,
    Transactions,
    call_user,
)
from kourou.errors import ClientStateError, MessageRefusedError, SendFailedError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import MessageSysFlag, RequestCode
from kourou.protocol.message import Message
from kourou.protocol.properties import MessageConst, encode_properties
from kourou.transport.request import Processor, Request
from kourou.wording import counted

_log = logging.getLogger(__name__)

COMMIT: Final = TransactionState.COMMIT
ROLLBACK: Final = TransactionState.ROLLBACK
UNKNOWN: Final = TransactionState.UNKNOWN
_PREPARED: Final = MessageSysFlag.TRANSACTION_PREPARED_TYPE.value
# For sync functions passed to send_in_transaction; started as they are needed.
_LOCAL_THREADS: Final = 20
_DELAYS: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
)


class Transaction:
    """One transaction, inside its block. A normal end of the block commits, unless the outcome was set."""

    def __init__(self, message: Message, half: SendResult) -> None:
        self.message = message
        self.half = half
        """The stored half message; its offset is in the topic of half messages."""
        self._state: TransactionState | None = None
        self._is_over = False

    @property
    def msg_id(self) -> str:
        """The id of the message that consumers and `check` see."""
        return self.half.msg_id

    @property
    def state(self) -> TransactionState | None:
        """The outcome, if it was set."""
        return self._state

    def commit(self) -> None:
        """Deliver the message, even if the rest of the block raises."""
        self._set(COMMIT)

    def rollback(self) -> None:
        """Drop the message, even if the block ends normally."""
        self._set(ROLLBACK)

    def unknown(self) -> None:
        """Leave the decision to the check: the outcome of the local transaction is not known."""
        self._set(UNKNOWN)

    def _set(self, state: TransactionState) -> None:
        if self._is_over:
            raise ClientStateError(f"transaction {self.msg_id} has ended; its outcome cannot change")
        if self._state not in (None, state):
            assert self._state is not None
            raise ClientStateError(
                f"transaction {self.msg_id} was set to {self._state.name}; it cannot be {state.name} too"
            )
        self._state = state

    def close(self, default: TransactionState) -> TransactionState:
        """For the producer: end the block; returns the outcome."""
        self._is_over = True
        self._state = self._state or default
        return self._state


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The result of `send_in_transaction`. `error` is the exception of the local transaction, if any."""

    half: SendResult
    state: TransactionState
    error: Exception | None = None

    @property
    def msg_id(self) -> str:
        """The id of the message that consumers see."""
        return self.half.msg_id


@lists_options(ProducerOptions, ClientSettings)
class AsyncTransactionProducer(AsyncProducer):
    """Sends messages in transactions, and answers the checks of brokers.

        async def check(message: MessageExt) -> TransactionState:
            return COMMIT if await orders.exists(message.keys[0]) else ROLLBACK

        async with AsyncTransactionProducer("orders-tx", namesrv="…", check=check) as producer:
            async with producer.transaction(Message("Orders", body, keys=["order-1"])) as tx:
                await orders.insert("order-1")

    A block that ends normally commits; an exception rolls back and propagates; `tx.unknown()` leaves the
    decision to `check`, which gets the message and returns a TransactionState; a sync function runs in a
    thread. It may get messages of any process of the group, so it must look where all of them write.
    Ordinary sends work too, but should use a producer with its own group.

    `stop` waits for open blocks, at most `send_timeout_ms`. A block that is still open then is neither
    committed nor rolled back: the broker sends the check to another producer of the group, or to the next
    one of this application.
    """

    _is_transactional = True

    def __init__(
        self,
        group: str,
        *,
        check: TransactionCheck,
        check_concurrency: int = 1,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        if not callable(check):
            raise TypeError(f"check is a function that gets a message, not {check!r}")
        check_int("check_concurrency", check_concurrency, at_least=1)
        super().__init__(group, **options)
        self._check = check
        self._check_concurrency = check_concurrency
        self._transactions: Transactions | None = None
        self._threads: list[HandlerThreads] = []

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find a name server, and register with every broker: one may have half messages that this group left
        before."""
        await super().start()
        assert self._sends is not None
        check_threads = HandlerThreads(f"{self._group}-checks", self._check_concurrency)
        self._local_threads = HandlerThreads(f"{self._group}-transactions", _LOCAL_THREADS)
        self._threads = [check_threads, self._local_threads]
        self._transactions = Transactions(
            self._instance,
            self._namespace,
            self._wire_group,
            TransactionListener(self._check, check_threads, self._check_concurrency),
            self._sends.counters,
            self._hooks,
            self._failures,
        )

    async def stop(self) -> None:
        """Wait for open transactions and sends in flight, at most `send_timeout_ms`, and disconnect."""
        try:
            await super().stop()
        finally:
            while self._threads:
                await self._threads.pop().stop()

    async def _finish_work(self, sends: Sends) -> None:
        if self._transactions is not None:
            left = await self._transactions.wait_ended(self._options.send_timeout_ms)
            if left:
                _log.warning(
                    "group %s: stopped with %s open; brokers will send checks",
                    self._group,
                    counted(left, "transaction"),
                )
        await super()._finish_work(sends)

    def processors(self) -> Mapping[int, Processor]:
        """For the instance: the requests that brokers send to this producer."""
        return {**super().processors(), RequestCode.CHECK_TRANSACTION_STATE: self._handle_check}

    def _handle_check(self, request: Request) -> None:
        if self._transactions is not None:
            self._transactions.check(request)

    # -- transactions ----------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> AsyncIterator[Transaction]:
        """Store the half message, run the block, then commit; see the class for other outcomes.

        If the half message cannot be stored, SendFailedError is raised before the block runs, and a half
        message that a broker may have is dropped. After a normal end the broker has confirmed the commit, or
        will send a check; a lost connection is logged, not raised.
        """
        choose = self._choice(message, queue, selector, arg, sharding_key)
        half, topic = await self._send_half(message, choose, timeout_ms)
        if half.status is not SendStatus.SEND_OK:
            await self._end(message, half, topic, ROLLBACK)
            raise SendFailedError(
                message.topic,
                [f"broker {half.queue.broker_name} stored the half message unsafely: {half.status.name}"],
                self._deadline(timeout_ms)[0],
            )
        transaction = Transaction(message, half)
        try:
            yield transaction
        except GeneratorExit:  # the task abandoned the block, and the loop is closing
            self._transactions_now().record(half.msg_id, UNKNOWN)
            raise
        except BaseException:
            await self._end(message, half, topic, transaction.close(ROLLBACK), is_failing=True)
            raise
        await self._end(message, half, topic, transaction.close(COMMIT))

    async def send_in_transaction(
        self,
        message: Message,
        local: LocalTransaction,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionSendResult:
        """As Java's sendMessageInTransaction: store the half message, call `local` with the message, end the
        transaction with the state that it returns.

        An exception of `local` is logged and means UNKNOWN: the check decides. If the half message is stored
        less safely than configured, `local` is not called and the message is dropped.
        """
        choose = self._choice(message, queue, selector, arg, sharding_key)
        half, topic = await self._send_half(message, choose, timeout_ms)
        error: Exception | None = None
        state = ROLLBACK
        try:
            if half.status is SendStatus.SEND_OK:
                state = UNKNOWN
                state = await call_user(local, message, self._local_threads)
        except Exception as raised:
            _log.exception("the local transaction of message %s failed", half.msg_id)
            error = raised
        finally:
            await self._end(message, half, topic, state)
        return TransactionSendResult(half, state, error)

    async def _send_half(
        self, message: Message, choose: ChooseQueue | None, timeout_ms: int | None
    ) -> tuple[SendResult, str]:
        """The stored half message, and its topic as brokers know it."""
        sends = self._running()
        transactions = self._transactions_now()
        if any(message.get_property(name) for name in _DELAYS):
            raise MessageRefusedError(
                f"topic {message.topic!r}: a message in a transaction cannot be delayed"
            )
        timeout_ms, deadline = self._deadline(timeout_ms)
        body = await self._compressed_early(message) if is_large(message) else None
        # Every transaction has its own id, even for a message that was sent before: it identifies the
        # outcome.
        message.clear_property(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        msg_id = self._outgoing.uniq_key(message)
        extra = encode_properties(
            {
                MessageConst.PROPERTY_TRANSACTION_PREPARED: "true",
                MessageConst.PROPERTY_PRODUCER_GROUP: self._wire_group,
                MessageConst.PROPERTY_TRANSACTION_ID: msg_id,
            }
        )
        request = self._outgoing.request(message, extra=extra, sys_flag=_PREPARED, body=body)
        transactions.open(msg_id)
        try:
            half = await self._send(sends, request, (message,), choose, timeout_ms, deadline)
        except BaseException:
            # A broker may have it nevertheless, and will send a check: the transaction was never begun.
            transactions.record(msg_id, ROLLBACK)
            raise
        return half, request.topic

    async def _end(
        self,
        message: Message,
        half: SendResult,
        topic: str,
        state: TransactionState,
        *,
        is_failing: bool = False,
    ) -> None:
        transactions = self._transactions_now()
        if self._instance.is_running:
            # Not cancelled with the block: `stop` waits for it.
            work = transactions.end(message, half, topic, state)
            await asyncio.shield(self._instance.tasks.start(work, f"end-{half.msg_id}"))
            return
        transactions.record(half.msg_id, state)
        if is_failing or state is UNKNOWN:
            return  # the exception of the block is more important
        raise ClientStateError(
            f"this producer was stopped before transaction {half.msg_id} ended; no broker knows that it is "
            f"to {state.name}; one will send a check to a producer of group {self._group!r}"
        )

    def _transactions_now(self) -> Transactions:
        assert self._transactions is not None, "a transaction is open, so the producer was started"
        return self._transactions
