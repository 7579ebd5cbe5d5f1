"""TransactionProducer: AsyncTransactionProducer without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Unpack

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions
from kourou.client.producer.queue_choice import QueueSelector
from kourou.client.sync.blocking_portal import BlockingPortal
from kourou.client.sync.producer import SyncProducer
from kourou.client.transactions.transaction_producer import (
    AsyncTransactionProducer,
    Transaction,
    TransactionSendResult,
)
from kourou.client.transactions.transactions import TransactionCheck, wrong_state
from kourou.errors import ClientStateError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message

_log = logging.getLogger(__name__)


@lists_options(ProducerOptions, ClientSettings)
class TransactionProducer(SyncProducer[AsyncTransactionProducer]):
    """Sends messages in transactions, and answers the checks of brokers.

        def check(message: MessageExt) -> TransactionState:
            return COMMIT if orders.exists(message.keys[0]) else ROLLBACK

        with TransactionProducer("orders-tx", namesrv="127.0.0.1:9876", check=check) as producer:
            with producer.transaction(Message("Orders", body, keys=["order-1"])) as tx:
                orders.insert("order-1")

    A block that ends normally commits; an exception rolls back and propagates; `tx.unknown()` leaves the
    decision to `check`, which gets the message and returns a TransactionState. It runs in a thread of the
    producer. It may get messages of any process of the group, so it must look where all of them write.
    Ordinary sends work too, but should use a producer with its own group.

    `stop` waits for open blocks, at most `send_timeout_ms`. A block that is still open then is neither
    committed nor rolled back: the broker sends the check to another producer of the group, or to the next
    one of this application.
    """

    def __init__(
        self,
        group: str,
        *,
        check: TransactionCheck,
        check_concurrency: int = 1,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        super().__init__(
            AsyncTransactionProducer(group, check=check, check_concurrency=check_concurrency, **options)
        )

    @contextlib.contextmanager
    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> Iterator[Transaction]:
        """Store the half message, run the block, then commit; see the class for other outcomes.

        If the half message cannot be stored, SendFailedError is raised before the block runs, and a half
        message that a broker may have is dropped. After a normal end the broker has confirmed the commit, or
        will send a check; a lost connection is logged, not raised.
        """
        block = self._client.transaction(
            message,
            queue=queue,
            selector=selector,
            arg=arg,
            sharding_key=sharding_key,
            timeout_ms=timeout_ms,
        )
        portal = self._running()
        transaction = self._call(block.__aenter__)
        try:
            yield transaction
        except BaseException as error:
            raised = error
            try:
                portal.call(lambda: block.__aexit__(type(raised), raised, raised.__traceback__))
            except ClientStateError as stopped:  # the exception of the block is more important
                _log.warning("transaction %s was not rolled back: %s", transaction.msg_id, stopped)
            raise
        portal.call(lambda: block.__aexit__(None, None, None))

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message], TransactionState],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionSendResult:
        """As Java's sendMessageInTransaction: store the half message, call `local` with the message in this
        thread, end the transaction with the state that it returns.

        An exception of `local` is logged and means UNKNOWN: the check decides. If the half message is stored
        less safely than configured, `local` is not called and the message is dropped.
        """
        turn = _CallersTurn(self._running())
        sending = self._submit(
            lambda: self._client.send_in_transaction(
                message,
                turn.request,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
            )
        )
        sending.add_done_callback(lambda _: turn.cancel())
        if turn.wait():
            turn.run(local, message)
        return sending.result()


class _CallersTurn:
    """Runs a function in the thread that waits for a coroutine, on request of the coroutine."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._turns: SimpleQueue[bool] = SimpleQueue()
        self._answer: asyncio.Future[TransactionState] | None = None
        self._problem: RuntimeError | None = None

    # -- on the loop -----------------------------------------------------------------------------

    async def request(self, _: Message) -> TransactionState:
        """Let the waiting thread run its function, and wait for the result."""
        if self._problem is not None:
            raise self._problem
        self._answer = asyncio.get_running_loop().create_future()
        self._turns.put(True)
        return await self._answer

    def _settle(self, outcome: TransactionState | Exception) -> None:
        answer = self._answer
        if answer is None or answer.done():  # not requested yet, or the producer was stopped meanwhile
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    # -- in the caller's thread ------------------------------------------------------------------

    def wait(self) -> bool:
        """Wait for the request; False when there is none. Ctrl-C is reported to the coroutine."""
        try:
            return self._turns.get()
        except BaseException as error:
            self._interrupted(error)
            raise

    def cancel(self) -> None:
        """End the wait for a request."""
        self._turns.put(False)

    def run(self, local: Callable[[Message], TransactionState], message: Message) -> None:
        """Call the function, and pass its result to the loop."""
        try:
            state = local(message)
            if not isinstance(state, TransactionState):
                raise wrong_state(local, state)
        except Exception as error:
            raised = error
            self._portal.post(lambda: self._settle(raised))
        except BaseException as error:
            self._interrupted(error)
            raise
        else:
            self._portal.post(lambda: self._settle(state))

    def _interrupted(self, error: BaseException) -> None:
        """The outcome of the local transaction is unknown: the check decides."""
        problem = self._problem = RuntimeError(f"the local transaction was interrupted by {error!r}")
        self._portal.post(lambda: self._settle(problem))
