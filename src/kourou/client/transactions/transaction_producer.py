"""AsyncTransactionProducer: messages that are delivered if, and only if, something local was done.

The message is stored first, as a half that nobody gets; when the local transaction is over, the broker is
told to deliver or to drop it. If it is not told, because this process died or lost its connection, it
asks any producer of the group, and that one's `check` looks up what became of the transaction.
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
from kourou.client.producer.pending_send import ChooseQueue
from kourou.client.producer.producer import AsyncProducer, is_large
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions
from kourou.client.producer.queue_choice import QueueSelector
from kourou.client.producer.send_result import SendResult, SendStatus
from kourou.client.producer.sends import Sends
from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.transactions.transaction_state import TransactionState
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
# For plain functions that are given to send_in_transaction; started as they are needed.
_LOCAL_THREADS: Final = 20
_DELAYS: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
)


class Transaction:
    """One transaction, inside its block. Left in order it commits, unless it is told otherwise."""

    def __init__(self, message: Message, half: SendResult) -> None:
        self.message = message
        self.half = half
        """The stored half; its offset is one among halves."""
        self._state: TransactionState | None = None
        self._is_over = False

    @property
    def msg_id(self) -> str:
        """The id under which consumers will see the message, and `check` is asked about it."""
        return self.half.msg_id

    @property
    def state(self) -> TransactionState | None:
        """How it is to end, as far as was said."""
        return self._state

    def commit(self) -> None:
        """Deliver the message, whatever happens in the rest of the block."""
        self._set(COMMIT)

    def rollback(self) -> None:
        """Drop the message, even if the block is left in order."""
        self._set(ROLLBACK)

    def unknown(self) -> None:
        """Leave it to the check: nobody knows what became of the local transaction."""
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
        """For the producer: how it ends."""
        self._is_over = True
        self._state = self._state or default
        return self._state


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """What became of `send_in_transaction`. `error` is what the local transaction raised, if it did."""

    half: SendResult
    state: TransactionState
    error: Exception | None = None

    @property
    def msg_id(self) -> str:
        """The id under which consumers see the message."""
        return self.half.msg_id


@lists_options(ProducerOptions, ClientSettings)
class AsyncTransactionProducer(AsyncProducer):
    """Sends messages in transactions, and answers brokers that ask about them.

        async def check(message: MessageExt) -> TransactionState:
            return COMMIT if await orders.exists(message.keys[0]) else ROLLBACK

        async with AsyncTransactionProducer("orders-tx", namesrv="…", check=check) as producer:
            async with producer.transaction(Message("Orders", body, keys=["order-1"])) as tx:
                await orders.insert("order-1")

    Left in order the block commits; an exception rolls back and goes on; `tx.unknown()` leaves it to
    `check`. `check` gets the message and returns a TransactionState; a plain function runs in a thread.
    It may be asked about messages of any process of the group, so it must look where all of them write.
    Ordinary sends work too, but are better done by a producer with a group of its own.

    `stop` waits for open blocks, at most `send_timeout_ms`. One that is still open then has no outcome,
    and is neither committed nor rolled back by us: the broker asks another producer of the group, or
    this application's next one.
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
        """Find a name server, and tell every broker of the group: one may have half messages to ask for that
        this group left before."""
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
        )

    async def stop(self) -> None:
        """Wait for open transactions and for what is in flight, at most `send_timeout_ms`; close all."""
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
                    "group %s: stopped with %s open; brokers will ask what became of them",
                    self._group,
                    counted(left, "transaction"),
                )
        await super()._finish_work(sends)

    def processors(self) -> Mapping[int, Processor]:
        """For the instance: what brokers may ask of this producer."""
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
        """Store the message as a half, run the block, then commit; see the class for other ends.

        SendFailedError and the like come before the block: then nothing of it was run, and what a
        broker may have of the message is dropped. When the block has ended in order the broker has
        confirmed the commit, or will ask for it; a lost connection is no error here, but logged.
        """
        choose = self._choice(message, queue, selector, arg, sharding_key)
        half, topic = await self._send_half(message, choose, timeout_ms)
        if half.status is not SendStatus.SEND_OK:
            await self._end(message, half, topic, ROLLBACK)
            raise SendFailedError(
                message.topic,
                [f"the half message is not safe at broker {half.queue.broker_name}: {half.status.name}"],
                self._deadline(timeout_ms)[0],
            )
        transaction = Transaction(message, half)
        try:
            yield transaction
        except GeneratorExit:  # the block was abandoned by its task, and the loop is closing
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
        """As Java's sendMessageInTransaction: store the half, call `local` with the message, end as it says.

        What `local` raises is logged and means UNKNOWN: the check decides. It is not called, and the
        message is dropped, where the half is stored less safely than configured.
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
        """The stored half, and its topic as brokers know it."""
        sends = self._running()
        transactions = self._transactions_now()
        if any(message.get_property(name) for name in _DELAYS):
            raise MessageRefusedError(
                f"topic {message.topic!r}: a message in a transaction cannot be delayed"
            )
        timeout_ms, deadline = self._deadline(timeout_ms)
        body = await self._compressed_early(message) if is_large(message) else None
        # Every transaction has an id of its own, even of a message that was sent before: outcomes are
        # told apart by it.
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
            # A broker may have it all the same, and will ask: the transaction was never begun.
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
            # Not cut short by a cancellation of the block: `stop` waits for it.
            work = transactions.end(message, half, topic, state)
            await asyncio.shield(self._instance.tasks.start(work, f"end-{half.msg_id}"))
            return
        transactions.record(half.msg_id, state)
        if is_failing or state is UNKNOWN:
            return  # what is raised in the block says more
        raise ClientStateError(
            f"this producer was stopped before transaction {half.msg_id} ended; no broker knows that it is "
            f"to {state.name}; one will ask a producer of group {self._group!r}, whose check has to answer"
        )

    def _transactions_now(self) -> Transactions:
        assert self._transactions is not None, "a transaction is open, so the producer was started"
        return self._transactions
