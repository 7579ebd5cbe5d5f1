"""TransactionProducer: AsyncTransactionProducer without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Unpack

from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions
from kourou.client.producer.queue_choice import QueueSelector
from kourou.client.sync.blocking_portal import BlockingPortal
from kourou.client.sync.producer import SyncProducer
from kourou.client.transactions.transaction_producer import (
    AsyncTransactionProducer,
    Transaction,
    TransactionSendResult,
)
from kourou.client.transactions.transaction_state import TransactionState
from kourou.client.transactions.transactions import TransactionCheck, wrong_state
from kourou.errors import ClientStateError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message

_log = logging.getLogger(__name__)


@lists_options(ProducerOptions, ClientSettings)
class TransactionProducer(SyncProducer[AsyncTransactionProducer]):
    """Sends messages in transactions, and answers brokers that ask about them.

        def check(message: MessageExt) -> TransactionState:
            return COMMIT if orders.exists(message.keys[0]) else ROLLBACK

        with TransactionProducer("orders-tx", namesrv="127.0.0.1:9876", check=check) as producer:
            with producer.transaction(Message("Orders", body, keys=["order-1"])) as tx:
                orders.insert("order-1")

    Left in order the block commits; an exception rolls back and goes on; `tx.unknown()` leaves it to
    `check`, which gets the message and returns a TransactionState. It runs in a thread of the producer. It
    may be asked about messages of any process of the group, so it must look where all of them write.
    Ordinary sends work too, but are better done by a producer with a group of its own.

    `stop` waits for open blocks, at most `send_timeout_ms`. One that is still open then has no outcome,
    and is neither committed nor rolled back by us: the broker asks another producer of the group, or
    this application's next one.
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
        """Store the message as a half, run the block, then commit; see the class for other ends.

        SendFailedError and the like come before the block: then nothing of it was run, and what a
        broker may have of the message is dropped. When the block has ended in order the broker has
        confirmed the commit, or will ask for it; a lost connection is no error here, but logged.
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
        transaction = portal.call(block.__aenter__)
        try:
            yield transaction
        except BaseException as error:
            raised = error
            try:
                portal.call(lambda: block.__aexit__(type(raised), raised, raised.__traceback__))
            except ClientStateError as stopped:  # what was raised in the block says more
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
        """As Java's sendMessageInTransaction: store the half, call `local` with the message in this thread,
        end as it says.

        What `local` raises is logged and means UNKNOWN: the check decides. It is not called, and the
        message is dropped, where the half is stored less safely than configured.
        """
        turn = _CallersTurn(self._running())
        sending = self._submit(
            lambda: self._client.send_in_transaction(
                message,
                turn.ask,
                queue=queue,
                selector=selector,
                arg=arg,
                sharding_key=sharding_key,
                timeout_ms=timeout_ms,
            )
        )
        sending.add_done_callback(lambda _: turn.cancel())
        if turn.wait():
            turn.take(local, message)
        return sending.result()


class _CallersTurn:
    """A function that a coroutine on the loop has called in the thread that waits for the coroutine."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._turns: SimpleQueue[bool] = SimpleQueue()
        self._answer: asyncio.Future[TransactionState] | None = None
        self._problem: RuntimeError | None = None

    # -- on the loop -----------------------------------------------------------------------------

    async def ask(self, _: Message) -> TransactionState:
        """Give the turn to the caller, and wait for what comes of it."""
        if self._problem is not None:
            raise self._problem
        self._answer = asyncio.get_running_loop().create_future()
        self._turns.put(True)
        return await self._answer

    def _settle(self, outcome: TransactionState | Exception) -> None:
        answer = self._answer
        if answer is None or answer.done():  # not asked yet, or the producer was stopped meanwhile
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    # -- in the caller's thread ------------------------------------------------------------------

    def wait(self) -> bool:
        """Wait for the turn; False when there is none. Who leaves by Ctrl-C says so."""
        try:
            return self._turns.get()
        except BaseException as error:
            self._interrupted(error)
            raise

    def cancel(self) -> None:
        """There is no turn, or there was: nobody has to wait for one."""
        self._turns.put(False)

    def take(self, local: Callable[[Message], TransactionState], message: Message) -> None:
        """Call the function, and tell the loop what came of it."""
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
        """Nobody knows what becomes of the local transaction: the check decides."""
        problem = self._problem = RuntimeError(f"the local transaction was interrupted by {error!r}")
        self._portal.post(lambda: self._settle(problem))
